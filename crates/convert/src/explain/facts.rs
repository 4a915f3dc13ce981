//! A document as a list of facts: what each attribute and each text holds.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use domain::DomainSpec;
use domain::xml::ReadError;
use domain::xml::tree::Element;

/// What one attribute, text or empty element holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Does not depend on the document: elements are identified by alias, name or number.
    pub key: String,
    /// Where it is in this document, as an XPath.
    pub path: String,
    pub value: String,
}

/// All facts of a document, in its order.
#[derive(Debug, Default)]
pub struct DocumentFacts {
    facts: Vec<Fact>,
    by_key: BTreeMap<String, usize>,
}

impl DocumentFacts {
    /// The facts of a domain.
    ///
    /// # Errors
    /// When the domain is beyond the limits of a document, see [`ReadError`].
    pub fn of(domain: &DomainSpec) -> Result<Self, ReadError> {
        let root = Element::parse(&domain.to_xml())?;
        let path = format!("/{}", root.name);
        let mut all = Self::default();
        all.add(&root, &path, &path);
        Ok(all)
    }

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

    fn add(&mut self, element: &Element, key: &str, path: &str) {
        for (name, value) in &element.attributes {
            self.push(format!("{key}/@{name}"), format!("{path}/@{name}"), value);
        }
        let text = element.text();
        if !text.is_empty() || (element.attributes.is_empty() && element.nodes.is_empty()) {
            self.push(key.to_owned(), path.to_owned(), &text);
        }
        let mut totals = BTreeMap::<&str, usize>::new();
        for child in element.children() {
            *totals.entry(&child.name).or_default() += 1;
        }
        let mut places = BTreeMap::<&str, usize>::new();
        let mut identities = BTreeMap::<String, usize>::new();
        for child in element.children() {
            let name = child.name.as_str();
            let place = places.entry(name).or_default();
            *place += 1;
            let path = if totals.get(name) == Some(&1) {
                format!("{path}/{name}")
            } else {
                format!("{path}/{name}[{place}]")
            };
            // Elements of one name are distinguished by their identity, then by their position.
            let identity = format!("{name}[{}]", identity(child).unwrap_or_default());
            let repeated = identities.entry(identity.clone()).or_default();
            *repeated += 1;
            self.add(child, &format!("{key}/{identity}{repeated}"), &path);
        }
    }
}

/// What identifies an element among others of its name: its alias, or its name or number.
fn identity(element: &Element) -> Option<String> {
    if let Some(alias) = element.child("alias") {
        return alias.attribute("name").map(str::to_owned);
    }
    if element.name == "controller" {
        let (kind, index) = (element.attribute("type")?, element.attribute("index")?);
        return Some(format!("{kind},{index}"));
    }
    ["name", "id", "vcpu", "iothread", "cellid"]
        .iter()
        .find_map(|name| element.attribute(name))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(disks: &[&str]) -> DocumentFacts {
        let disks: String = disks
            .iter()
            .map(|name| format!("<disk type='file'><alias name='ua-{name}'/></disk>"))
            .collect();
        let xml =
            format!("<domain type='kvm'><name>a &amp; b</name><devices>{disks}</devices></domain>");
        DocumentFacts::of(&DomainSpec::from_xml(&xml).unwrap()).unwrap()
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
        assert_eq!(at("/domain/name"), Some("a & b"));
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
