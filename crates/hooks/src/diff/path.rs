//! An element's path: its label among its siblings, and the labels of its ancestors.

use std::collections::HashMap;
use std::fmt;

use domain::xml::tree::Element;

use super::changes::truncated;
use super::scope::{Name, Namespaces, Scoped};

/// Limit of a path, in characters. A longer path is cut at its beginning.
const MAX_PATH_CHARS: usize = 240;

/// An element's label among its siblings: `name`, `name[identity]`, and `#2`, `#3` for repetitions.
#[derive(Debug, Clone, Copy)]
pub struct Label<'t> {
    pub name: Name<'t>,
    identity: Option<Identity<'t>>,
    number: usize,
}

impl<'t> Label<'t> {
    /// The label of the `number`th sibling with this name and identity.
    pub fn new(element: &Scoped<'t>, number: usize) -> Self {
        Self {
            name: element.name,
            identity: Identity::of(element.name, element.element),
            number,
        }
    }

    /// The label of all siblings with its name.
    pub fn of_name(self) -> Self {
        Self {
            identity: None,
            number: 1,
            ..self
        }
    }
}

/// Tells elements of one name apart, such as a disk's `<target dev>` or an interface's MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Identity<'t> {
    value: &'t str,
    /// The index of a controller: each type of controller has its own numbers.
    index: Option<&'t str>,
}

impl<'t> Identity<'t> {
    fn of(name: Name<'t>, element: &'t Element) -> Option<Self> {
        let of_child = |child: &str, attribute: &str| element.child(child)?.attribute(attribute);
        let alias = || of_child("alias", "name");
        let value = match name.local {
            "disk" | "filesystem" => {
                of_child("target", "dev").or_else(|| of_child("target", "dir"))
            }
            "interface" => of_child("mac", "address"),
            "channel" => of_child("target", "name"),
            "controller" => {
                return Some(Self {
                    value: element.attribute("type")?,
                    index: element.attribute("index"),
                });
            }
            "hostdev" | "input" | "serial" | "console" | "tpm" | "watchdog" | "rng" | "sound"
            | "memory" | "shmem" | "redirdev" | "vsock" => None,
            _ => element
                .attribute("name")
                .or_else(|| element.attribute("id")),
        };
        let value = value.or_else(alias)?;
        Some(Self { value, index: None })
    }
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match &self.identity {
            Some(Identity {
                value,
                index: Some(index),
            }) => write!(f, "[{},{}]", truncated(value), truncated(index))?,
            Some(Identity { value, index: None }) => write!(f, "[{}]", truncated(value))?,
            None => {}
        }
        match self.number {
            1 => Ok(()),
            number => write!(f, "#{number}"),
        }
    }
}

/// An element and its key. The struct is small, because there may be many elements.
#[derive(Debug, Clone, Copy)]
pub struct Sibling<'t> {
    /// The number of the element's name and identity, and its position among siblings with that
    /// number. The element is paired with that of the other document which has the same key.
    pub key: (usize, usize),
    pub element: &'t Element,
}

/// Numbers the names and identities of siblings. Both documents share the numbers.
#[derive(Debug, Default)]
pub struct Numbering<'t>(HashMap<(Name<'t>, Option<Identity<'t>>), usize>);

impl<'t> Numbering<'t> {
    pub fn siblings(
        &mut self,
        parent: &Scoped<'t>,
        known: &mut Namespaces<'t>,
    ) -> Vec<Sibling<'t>> {
        let mut counts: HashMap<usize, usize> = HashMap::new();
        let sibling = |element: &'t Element| {
            let name = parent.child(element, known).name;
            let next = self.0.len();
            let number = *self
                .0
                .entry((name, Identity::of(name, element)))
                .or_insert(next);
            let count = counts.entry(number).or_default();
            *count = count.saturating_add(1);
            Sibling {
                key: (number, *count),
                element,
            }
        };
        parent.element.children().map(sibling).collect()
    }
}

/// The labels from the root to an element. They become text only when shown.
#[derive(Debug, Clone, Copy)]
pub enum Path<'p, 't> {
    Root,
    Below(&'p Path<'p, 't>, Label<'t>),
}

impl<'t> Path<'_, 't> {
    /// The path of an attribute.
    pub fn attribute(&self, name: &str) -> String {
        format!("{self}@{}", truncated(name))
    }

    pub fn child(&self, label: Label<'t>) -> Path<'_, 't> {
        Path::Below(self, label)
    }
}

impl fmt::Display for Path<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut innermost_first = Vec::new();
        let (mut path, mut chars) = (self, 0_usize);
        while let Path::Below(outer, label) = path {
            let label = label.to_string();
            chars = chars.saturating_add(label.chars().count());
            if chars > MAX_PATH_CHARS && !innermost_first.is_empty() {
                innermost_first.push("…".to_owned());
                break;
            }
            innermost_first.push(label);
            path = outer;
        }
        innermost_first.reverse();
        f.write_str(&innermost_first.join("/"))
    }
}
