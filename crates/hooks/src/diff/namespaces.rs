//! One spelling for XML namespaces, so that documents can be compared: libraries that write XML make up prefixes, such
//! as `ns0`, declare them elsewhere, and drop those that are not used.
//!
//! ```text
//!  <ns0:commandline>, ns0 declared as libvirt's QEMU namespace    ──►  <qemu:commandline>
//!  <ns1:kubevirt>, ns1 declared as http://kubevirt.io             ──►  <kubevirt xmlns="http://kubevirt.io">
//! ```

use domain::xml::tree::{Element, Node};

/// Namespaces of libvirt. Behind it is the prefix that everybody uses, such as `qemu/1.0`.
const LIBVIRT: &str = "http://libvirt.org/schemas/domain/";

/// Limit of the prefixes that are known in one place; a domain has two. Elements with other prefixes are compared as they
/// are written.
const MAX_PREFIXES: usize = 32;

/// The document with the same prefixes that every other normalized document has.
pub fn normalized(document: &Element) -> Element {
    normalize(document, &[], "")
}

/// `declared` are the prefixes that the elements around this one declare, innermost last; `outer` is their namespace.
fn normalize(element: &Element, declared: &[(&str, &str)], outer: &str) -> Element {
    let own = element
        .attributes
        .iter()
        .filter_map(|(name, uri)| Some((declared_prefix(name)?, uri.as_str())));
    let declared: Vec<_> = declared
        .iter()
        .copied()
        .chain(own)
        .take(MAX_PREFIXES)
        .collect();
    let (prefix, local) = element.name.split_once(':').unwrap_or(("", &element.name));
    let mut innermost_first = declared.iter().rev();
    let namespace = innermost_first
        .find(|(known, _)| *known == prefix)
        .map_or("", |(_, uri)| *uri);

    let mut attributes: Vec<_> = element
        .attributes
        .iter()
        .filter(|(name, _)| declared_prefix(name).is_none())
        .cloned()
        .collect();
    if namespace != outer && !namespace.starts_with(LIBVIRT) {
        attributes.push(("xmlns".to_owned(), namespace.to_owned()));
    }
    let nodes = element.nodes.iter().map(|node| match node {
        Node::Element(child) => Node::Element(normalize(child, &declared, namespace)),
        Node::Text(text) => Node::Text(text.clone()),
    });
    Element {
        name: match libvirt_prefix(namespace) {
            Some(prefix) => format!("{prefix}:{local}"),
            None if namespace.is_empty() => element.name.clone(),
            None => local.to_owned(),
        },
        nodes: nodes.collect(),
        attributes,
    }
}

/// `qemu` for the namespace of libvirt's QEMU elements, and so on.
fn libvirt_prefix(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(LIBVIRT)?.split('/').next()
}

/// The prefix that an attribute declares: `qemu` for `xmlns:qemu`, the empty one for `xmlns`.
fn declared_prefix(attribute: &str) -> Option<&str> {
    match attribute.strip_prefix("xmlns")? {
        "" => Some(""),
        prefix => prefix.strip_prefix(':'),
    }
}
