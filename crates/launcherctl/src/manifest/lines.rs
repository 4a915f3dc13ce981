//! A manifest with the line of each part, for messages.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;

use super::paths::parts;
use super::yaml_error::YamlError;

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlNode {
    /// From 1; for a field's value, the line of the field's name.
    pub line: u64,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text, a number, a truth value or null.
    Scalar(Value),
    /// A list.
    List(Vec<YamlNode>),
    /// An object, in the document's order.
    Object(Vec<(String, YamlNode)>),
}

impl YamlNode {
    /// The documents of a text. Reads JSON as YAML.
    ///
    /// # Errors
    /// It is not YAML, or repeats a field.
    pub fn read(text: &str) -> Result<Vec<Self>, YamlError> {
        let documents: Vec<Self> = serde_saphyr::from_multiple(text)?;
        let documents = documents.into_iter().flat_map(Self::items);
        let is_null = |node: &Self| node.content == Content::Scalar(Value::Null);
        Ok(documents.filter(|document| !is_null(document)).collect())
    }

    /// Without the lines.
    pub fn value(&self) -> Value {
        let member = |(name, node): &(String, Self)| (name.clone(), node.value());
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::value).collect(),
            Content::Object(fields) => fields.iter().map(member).collect(),
        }
    }

    /// The items of a `List`.
    fn items(self) -> Vec<Self> {
        match self.get("items").map(|items| &items.content) {
            Some(Content::List(items)) if self.text("kind").ends_with("List") => items.clone(),
            _ => vec![self],
        }
    }

    pub fn get(&self, name: &str) -> Option<&Self> {
        let Content::Object(fields) = &self.content else {
            return None;
        };
        let mut fields = fields.iter();
        fields
            .find(|(field, _)| field == name)
            .map(|(_, node)| node)
    }

    /// A field's text; empty if missing.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name).map(|node| &node.content) {
            Some(Content::Scalar(value)) => value.as_str().unwrap_or_default(),
            _ => "",
        }
    }

    /// The part at a path, such as `spec.domain.devices.disks[0].name`.
    pub fn find(&self, path: &str) -> Option<&Self> {
        parts(path).try_fold(self, Self::inner)
    }

    /// A field of an object, or an item of a list.
    fn inner(&self, part: &str) -> Option<&Self> {
        match &self.content {
            Content::List(items) => items.get(part.parse::<usize>().ok()?),
            _ => self.get(part),
        }
    }

    /// The line of the innermost existing part at a path.
    pub fn line_of(&self, path: &str) -> u64 {
        let existing = parts(path).scan(self, |here, part| {
            *here = here.inner(part)?;
            Some(here.line)
        });
        existing.last().unwrap_or(self.line)
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            content: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let list = std::iter::from_fn(|| items.next_element().transpose());
        Ok(Content::List(list.collect::<Result<_, _>>()?))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Content, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = fields.next_key::<Spanned<String>>()? {
            let mut node: YamlNode = fields.next_value()?;
            node.line = match key.referenced.line() {
                0 => node.line,
                line => line,
            };
            object.push((key.value, node));
        }
        Ok(Content::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_the_line_of_its_name() {
        let text = "kind: A\n---\nkind: VirtualMachine\nspec:\n  disks:\n  - name: root\n    disk:\n      bus: virtio\n  - {name: data}\n";
        let documents = YamlNode::read(text).unwrap();
        assert_eq!(documents[1].text("kind"), "VirtualMachine");
        let line = |path| documents[1].line_of(path);
        assert_eq!(line("spec"), 4);
        assert_eq!(line("spec.disks[0].disk"), 7);
        assert_eq!(line("spec.disks[0].disk.bus"), 8);
        assert_eq!(line("spec.disks[1].name"), 9);
        // The line of the part that lacks it.
        assert_eq!(line("spec.disks[1].disk.bus"), 9);
        assert_eq!(line("spec.domain.memory"), 4);
    }

    #[test]
    fn json_has_lines_too() {
        let text = "{\n  \"kind\": \"List\",\n  \"items\": [\n    {\"kind\": \"B\",\n     \"spec\": null}\n  ]\n}\n";
        let documents = YamlNode::read(text).unwrap();
        assert_eq!(documents.len(), 1);
        assert_eq!(documents[0].line_of("spec"), 5);
    }
}
