//! Gives XML namespaces one spelling, so that documents can be compared: XML libraries invent
//! prefixes such as `ns0`, move their declarations, and drop unused ones.
//!
//! ```text
//!  <ns0:commandline>, ns0 declared as libvirt's QEMU namespace    ──►  qemu:commandline
//!  <ns1:kubevirt>, ns1 declared as http://kubevirt.io             ──►  kubevirt@xmlns
//! ```
//!
//! Nothing is copied: a namespace becomes a number, and its text stays in the document.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use domain::xml::tree::Element;

use super::changes::truncated;

/// Start of libvirt's namespaces. The usual prefix and the version follow, as in `qemu/1.0`.
const LIBVIRT: &str = "http://libvirt.org/schemas/domain/";

/// Limit of the prefixes in scope of an element; a domain has two. Elements with further prefixes
/// are compared as written.
const MAX_PREFIXES: usize = 32;

/// A namespace of the compared documents. Equal numbers mean equal texts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NumberedNamespace<'t> {
    number: usize,
    pub uri: &'t str,
}

impl PartialEq for NumberedNamespace<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// The namespaces declared so far. Number 0 means no namespace.
#[derive(Debug, Default)]
pub struct Namespaces<'t>(HashMap<&'t str, usize>);

impl<'t> Namespaces<'t> {
    fn named(&mut self, uri: &'t str) -> NumberedNamespace<'t> {
        if uri.is_empty() {
            return NumberedNamespace::default();
        }
        let next = self.0.len().saturating_add(1);
        let number = *self.0.entry(uri).or_insert(next);
        NumberedNamespace { number, uri }
    }
}

/// An element's name in the common spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'t> {
    prefix: Option<&'t str>,
    pub local: &'t str,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(prefix) = self.prefix {
            write!(f, "{}:", truncated(prefix))?;
        }
        f.write_str(&truncated(self.local))
    }
}

/// The prefixes in scope, innermost last.
type Prefixes<'t> = Rc<[(&'t str, NumberedNamespace<'t>)]>;

/// An element and its namespace.
#[derive(Debug, Clone)]
pub struct Scoped<'t> {
    pub element: &'t Element,
    pub name: Name<'t>,
    /// Its namespace, if it differs from the parent's and the name does not show it.
    pub new_namespace: Option<NumberedNamespace<'t>>,
    namespace: NumberedNamespace<'t>,
    prefixes: Prefixes<'t>,
}

impl<'t> Scoped<'t> {
    /// The root element of a document.
    pub fn root(element: &'t Element, known: &mut Namespaces<'t>) -> Self {
        Self::new(element, Rc::default(), NumberedNamespace::default(), known)
    }

    /// `outer` is the parent's namespace.
    fn new(
        element: &'t Element,
        outer_prefixes: Prefixes<'t>,
        outer: NumberedNamespace<'t>,
        known: &mut Namespaces<'t>,
    ) -> Self {
        let prefixes = with_declared(element, outer_prefixes, known);
        let (prefix, local) = match element.name.split_once(':') {
            Some((prefix, local)) => (Some(prefix), local),
            None => (None, element.name.as_str()),
        };
        let mut innermost_first = prefixes.iter().rev();
        let namespace = innermost_first
            .find(|(declared, _)| *declared == prefix.unwrap_or_default())
            .map_or_else(NumberedNamespace::default, |(_, namespace)| *namespace);
        let libvirt = libvirt_prefix(namespace.uri);
        Self {
            element,
            name: Name {
                prefix: match libvirt {
                    None if namespace.uri.is_empty() => prefix,
                    libvirt => libvirt,
                },
                local,
            },
            new_namespace: Some(namespace).filter(|of| *of != outer && libvirt.is_none()),
            namespace,
            prefixes,
        }
    }

    pub fn child(&self, child: &'t Element, known: &mut Namespaces<'t>) -> Self {
        Self::new(child, Rc::clone(&self.prefixes), self.namespace, known)
    }

    /// The attributes, without namespace declarations.
    pub fn attributes(&self) -> impl Iterator<Item = (&'t str, &'t str)> + use<'t> {
        let all = self.element.attributes.iter();
        all.map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| declared_prefix(name).is_none())
    }
}

/// The prefixes in scope inside the element.
fn with_declared<'t>(
    element: &'t Element,
    outer: Prefixes<'t>,
    known: &mut Namespaces<'t>,
) -> Prefixes<'t> {
    let mut own = element
        .attributes
        .iter()
        .filter_map(|(name, uri)| Some((declared_prefix(name)?, uri.as_str())))
        .take(MAX_PREFIXES.saturating_sub(outer.len()))
        .map(|(prefix, uri)| (prefix, known.named(uri)))
        .peekable();
    if own.peek().is_none() {
        return outer;
    }
    outer.iter().copied().chain(own).collect()
}

/// `qemu` for libvirt's QEMU namespace, and so on.
fn libvirt_prefix(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(LIBVIRT)?.strip_suffix("/1.0")
}

/// The prefix that an attribute declares: `qemu` for `xmlns:qemu`, empty for `xmlns`.
fn declared_prefix(attribute: &str) -> Option<&str> {
    match attribute.strip_prefix("xmlns")? {
        "" => Some(""),
        prefix => prefix.strip_prefix(':'),
    }
}
