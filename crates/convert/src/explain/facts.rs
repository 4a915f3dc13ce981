//! A document as a list of facts: what each attribute and each text holds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

use domain::DomainSpec;

/// What one attribute, text or empty element holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The same in all documents: elements are told apart by what names them.
    pub key: String,
    /// Where it is in this document, as an XPath.
    pub path: String,
    /// What it holds.
    pub value: String,
}

/// All facts of a document, in its order.
#[derive(Debug, Default)]
pub struct Facts {
    facts: Vec<Fact>,
    by_key: BTreeMap<String, usize>,
}

impl Facts {
    /// The facts of a domain.
    #[must_use]
    pub fn of(domain: &DomainSpec) -> Self {
        let mut all = Self::default();
        // What the domain writes is well-formed: reading it ends where the root element does.
        let xml = domain.to_xml();
        if let Some(root) = read(&mut Reader::from_str(&xml)) {
            all.add(
                &root,
                &format!("/{}", root.name),
                &format!("/{}", root.name),
            );
        }
        all
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Fact> {
        self.facts.iter()
    }

    /// The fact with that key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Fact> {
        self.facts.get(*self.by_key.get(key)?)
    }

    /// Facts that another document lacks, or has with another value.
    pub fn changed_since<'a, 'o>(
        &'a self,
        other: &'o Self,
    ) -> impl Iterator<Item = &'a Fact> + use<'a, 'o> {
        self.facts.iter().filter(|fact| {
            other
                .get(&fact.key)
                .is_none_or(|before| before.value != fact.value)
        })
    }

    fn push(&mut self, key: String, path: String, value: &str) {
        if let Entry::Vacant(free) = self.by_key.entry(key.clone()) {
            free.insert(self.facts.len());
            self.facts.push(Fact {
                key,
                path,
                value: value.to_owned(),
            });
        }
    }

    fn add(&mut self, element: &Node, key: &str, path: &str) {
        for (name, value) in &element.attributes {
            self.push(format!("{key}/@{name}"), format!("{path}/@{name}"), value);
        }
        if !element.text.is_empty()
            || (element.attributes.is_empty() && element.children.is_empty())
        {
            self.push(key.to_owned(), path.to_owned(), &element.text);
        }
        let mut places = BTreeMap::<&str, usize>::new();
        let mut names = BTreeMap::<String, usize>::new();
        for child in &element.children {
            let place = places.entry(&child.name).or_default();
            *place += 1;
            let alone = element
                .children
                .iter()
                .filter(|other| other.name == child.name)
                .count()
                == 1;
            let path = if alone {
                format!("{path}/{}", child.name)
            } else {
                format!("{path}/{}[{place}]", child.name)
            };
            // Elements of one name are told apart by what names them, and then by their place.
            let name = format!("{}[{}]", child.name, child.named().unwrap_or_default());
            let repeated = names.entry(name.clone()).or_default();
            *repeated += 1;
            self.add(child, &format!("{key}/{name}{repeated}"), &path);
        }
    }
}

/// An element.
#[derive(Debug, Default)]
struct Node {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Node>,
}

impl Node {
    fn open(start: &BytesStart<'_>) -> Self {
        let attribute = |attribute: quick_xml::events::attributes::Attribute<'_>| {
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .map(Cow::into_owned)
                .unwrap_or_default();
            (attribute.key.as_ref().to_owned(), value)
        };
        Self {
            name: start.name().as_ref().to_owned(),
            attributes: start
                .attributes()
                .filter_map(Result::ok)
                .map(attribute)
                .collect(),
            ..Self::default()
        }
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// What tells it from others of its name: its alias, or its name or number.
    fn named(&self) -> Option<String> {
        if let Some(alias) = self.children.iter().find(|child| child.name == "alias") {
            return alias.attribute("name").map(str::to_owned);
        }
        if self.name == "controller" {
            return Some(format!(
                "{},{}",
                self.attribute("type")?,
                self.attribute("index")?
            ));
        }
        ["name", "id", "vcpu", "iothread", "cellid"]
            .iter()
            .find_map(|name| self.attribute(name))
            .map(str::to_owned)
    }
}

/// Reads up to the end of the root element.
fn read(reader: &mut Reader<&[u8]>) -> Option<Node> {
    let mut open: Vec<Node> = Vec::new();
    loop {
        let done = match reader.read_event().ok()? {
            Event::Start(start) => {
                open.push(Node::open(&start));
                None
            }
            Event::Empty(start) => Some(Node::open(&start)),
            Event::End(_) => open.pop(),
            Event::Text(text) => {
                if let Some(node) = open.last_mut() {
                    node.text.push_str(text.xml10_content().trim());
                }
                None
            }
            Event::GeneralRef(entity) => {
                let text = quick_xml::escape::unescape(&format!("&{};", entity.xml10_content()))
                    .ok()?
                    .into_owned();
                if let Some(node) = open.last_mut() {
                    node.text.push_str(&text);
                }
                None
            }
            Event::Eof => return None,
            _ => None,
        };
        if let Some(node) = done {
            match open.last_mut() {
                Some(parent) => parent.children.push(node),
                None => return Some(node),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn facts(disks: &[&str]) -> Facts {
        let disks: String = disks
            .iter()
            .map(|name| format!("<disk type='file'><alias name='ua-{name}'/></disk>"))
            .collect();
        Facts::of(
            &DomainSpec::from_xml(&format!(
                "<domain type='kvm'><name>a&amp;b</name><devices>{disks}</devices></domain>"
            ))
            .unwrap(),
        )
    }

    #[test]
    fn paths_are_xpaths_and_values_are_unescaped() {
        let facts = facts(&["root", "data"]);
        let at = |path: &str| {
            facts
                .iter()
                .find(|fact| fact.path == path)
                .map(|fact| fact.value.as_str())
        };
        assert_eq!(at("/domain/@type"), Some("kvm"));
        assert_eq!(at("/domain/name"), Some("a&b"));
        assert_eq!(at("/domain/devices/disk[2]/alias/@name"), Some("ua-data"));
    }

    #[test]
    fn a_disk_is_the_same_when_another_one_goes() {
        let (both, one) = (facts(&["root", "data"]), facts(&["data"]));
        let changed: Vec<_> = both
            .changed_since(&one)
            .map(|fact| fact.path.as_str())
            .collect();
        assert!(
            !changed.is_empty()
                && changed
                    .iter()
                    .all(|path| path.starts_with("/domain/devices/disk[1]")),
            "{changed:?}"
        );
    }
}
