//! Reads fields of `domainSpec` from the domain XML.

use std::sync::Arc;

use cel::common::types::{CelBool, CelDouble, CelInt, CelString, CelUInt};
use cel::common::value::Val;
use domain::xml::tree::{Element, Node};

use super::object::Data;
use super::schema::{Discriminator, Field, Location, StructType, ValueType};

/// An element, and its parent's attributes, which may select the variant of a union.
#[derive(Debug, Clone, Default)]
pub struct XmlData {
    pub element: Arc<Element>,
    pub parent_attributes: Arc<Vec<(String, String)>>,
}

impl XmlData {
    pub fn root(element: Arc<Element>) -> Self {
        Self {
            element,
            parent_attributes: Arc::default(),
        }
    }

    fn child(child: &Element, parent: &Element) -> Self {
        Self {
            element: Arc::new(child.clone()),
            parent_attributes: Arc::new(parent.attributes.clone()),
        }
    }

    /// The data of a struct that is nested in this one, but is in the same element.
    fn same_element(&self) -> Self {
        Self {
            element: Arc::clone(&self.element),
            parent_attributes: Arc::new(self.element.attributes.clone()),
        }
    }
}

impl PartialEq for XmlData {
    fn eq(&self, other: &Self) -> bool {
        self.element.attributes == other.element.attributes
            && self.element.nodes == other.element.nodes
    }
}

impl Data for XmlData {
    fn member(&self, of: &'static StructType, field: &'static Field) -> Option<Self> {
        match &field.location {
            Location::Embedded(_) => Some(self.same_element()),
            Location::Variant => (variant(of, &self.element, &self.parent_attributes).as_deref()
                == field.variant)
                .then(|| self.same_element()),
            Location::Element(path) => {
                let child = Children::at(&self.element, path).and_then(|children| {
                    Some(Self::child(children.iter().next()?, children.parent))
                });
                child.or_else(|| {
                    // The parent's attribute may be enough, as in <serial type="pty">.
                    match field.struct_type()?.discriminator {
                        Some(Discriminator::Parent(attribute)) => {
                            self.element.attribute(attribute)?;
                            Some(Self {
                                element: Arc::default(),
                                ..self.same_element()
                            })
                        }
                        _ => None,
                    }
                })
            }
            Location::Attribute(_) | Location::Text | Location::InnerXml => None,
        }
    }

    fn items(&self, field: &'static Field) -> Option<Vec<Self>> {
        let Location::Element(path) = &field.location else {
            return None;
        };
        let children = Children::at(&self.element, path)?;
        let items: Vec<_> = children
            .iter()
            .map(|child| Self::child(child, children.parent))
            .collect();
        (!items.is_empty()).then_some(items)
    }

    fn scalar(&self, field: &'static Field) -> Option<Box<dyn Val>> {
        let element = &self.element;
        let text = match &field.location {
            Location::Attribute(name) => element.attribute(name)?.to_owned(),
            Location::Element(path) => Children::at(element, path)?.iter().next()?.text(),
            Location::Text => Some(element.text()).filter(|text| !text.is_empty())?,
            Location::InnerXml => Some(inner_xml(element)).filter(|text| !text.is_empty())?,
            Location::Embedded(_) | Location::Variant => return None,
        };
        (field.is_pointer || !text.is_empty())
            .then(|| parse(&text, field.value_type))
            .flatten()
    }

    fn as_scalar(&self, value_type: ValueType) -> Option<Box<dyn Val>> {
        parse(&self.element.text(), value_type)
    }
}

/// The elements at the end of a path.
struct Children<'e> {
    parent: &'e Element,
    name: &'static str,
}

impl<'e> Children<'e> {
    /// Returns `None` if the parent is missing.
    fn at(element: &'e Element, path: &[&'static str]) -> Option<Self> {
        let (name, parents) = path.split_last()?;
        let mut parents = parents.iter();
        let parent = parents.try_fold(element, |element, name| element.child(name))?;
        Some(Self { parent, name })
    }

    fn iter(&self) -> impl Iterator<Item = &'e Element> {
        let name = self.name;
        self.parent
            .children()
            .filter(move |child| child.name == name)
    }
}

/// The union's variant, or `None` if no attribute selects one.
pub fn variant(
    of: &StructType,
    element: &Element,
    parent_attributes: &[(String, String)],
) -> Option<String> {
    match of.discriminator.as_ref()? {
        Discriminator::Own(attributes) => {
            let values = attributes.iter().filter_map(|name| element.attribute(name));
            let variant = values.collect::<Vec<_>>().join("/");
            // Variant "" is an element without the attribute. An empty element has no variant.
            let is_empty = element.attributes.is_empty() && element.nodes.is_empty();
            (!variant.is_empty() || !is_empty).then_some(variant)
        }
        Discriminator::Parent(attribute) => {
            let mut attributes = parent_attributes.iter();
            let found = attributes.find(|(name, _)| name == attribute);
            Some(found.map_or_else(String::new, |(_, value)| value.clone()))
        }
        Discriminator::Child(child, attribute) => element
            .child(child)?
            .attribute(attribute)
            .map(str::to_owned),
    }
}

fn inner_xml(element: &Element) -> String {
    let parts = element.nodes.iter().map(|node| match node {
        Node::Element(child) => child.to_xml(),
        Node::Text(text) => text.clone(),
    });
    parts.collect()
}

/// Parses a text as a value of that type; `None` if it is not one. Numbers may be hexadecimal.
fn parse(text: &str, value_type: ValueType) -> Option<Box<dyn Val>> {
    let number = text.trim();
    let hexadecimal = number
        .strip_prefix("0x")
        .or_else(|| number.strip_prefix("0X"));
    let (digits, radix) = hexadecimal.map_or((number, 10), |digits| (digits, 16));
    Some(match value_type {
        ValueType::Int => Box::new(CelInt::from(i64::from_str_radix(digits, radix).ok()?)),
        ValueType::Uint => Box::new(CelUInt::from(u64::from_str_radix(digits, radix).ok()?)),
        ValueType::Bool => Box::new(CelBool::from(number.parse::<bool>().ok()?)),
        ValueType::Double => Box::new(CelDouble::from(number.parse::<f64>().ok()?)),
        _ => Box::new(CelString::from(text.to_owned())),
    })
}
