//! Unions: structs with one variant set, which an attribute selects ([`Discriminator`]).
//!
//! ```text
//!  <disk type="file"><source file="/a.img"/></disk>     DomainDiskSource{File: …}
//!        ──────────── discriminator                                      ──── variant
//! ```

use std::sync::Arc;

use domain::xml::tree::Element;

use super::xml_edit;
use crate::schema::{Discriminator, Field, Location, StructType};
use crate::xml_data::{self, XmlData};

/// The element that a struct is written to.
pub struct UnionTarget<'t> {
    pub element: &'t mut Element,
    /// The attributes of the element's parent. `None` for a struct nested in another struct of the
    /// same element: its discriminator is an attribute of the element itself.
    pub parent_attributes: Option<&'t mut Vec<(String, String)>>,
}

impl UnionTarget<'_> {
    /// The target of a struct that is nested in this one, but is in the same element.
    pub fn same_element(&mut self) -> UnionTarget<'_> {
        UnionTarget {
            element: self.element,
            parent_attributes: None,
        }
    }

    fn parent_attributes(&mut self) -> &mut Vec<(String, String)> {
        match &mut self.parent_attributes {
            Some(attributes) => attributes,
            None => &mut self.element.attributes,
        }
    }
}

/// The field of the variant that is set.
pub fn present(of: &'static StructType, target: &UnionTarget<'_>) -> Option<&'static Field> {
    let parent_attributes = match &target.parent_attributes {
        Some(attributes) => attributes.as_slice(),
        None => target.element.attributes.as_slice(),
    };
    let variant = xml_data::variant(of, target.element, parent_attributes)?;
    of.fields
        .iter()
        .find(|field| field.variant == Some(variant.as_str()))
}

pub fn comes_first(of: &'static StructType, field: &Field, other: &Field) -> bool {
    let mut fields = of.fields.iter();
    let first = fields.find(|one| std::ptr::eq(*one, field) || std::ptr::eq(*one, other));
    first.is_some_and(|first| std::ptr::eq(first, field))
}

/// Writes the discriminator; variant "" removes it.
pub fn select(of: &'static StructType, target: &mut UnionTarget<'_>, variant: &str) {
    let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match &of.discriminator {
        Some(Discriminator::Own(names)) => {
            let mut values = variant.split('/');
            for name in names {
                let value = value(values.next().unwrap_or_default());
                xml_edit::set_attribute(&mut target.element.attributes, name, value);
            }
        }
        Some(Discriminator::Parent(name)) => {
            xml_edit::set_attribute(target.parent_attributes(), name, value(variant));
        }
        Some(Discriminator::Child(child, name)) => {
            xml_edit::edit_child(&mut target.element.nodes, child, |child| {
                xml_edit::set_attribute(&mut child.attributes, name, value(variant));
            });
        }
        None => {}
    }
}

/// Writes the discriminator, unless a variant is set that comes earlier in the table.
pub fn select_if_first(of: &'static StructType, target: &mut UnionTarget<'_>, variant: &str) {
    let present = present(of, target).and_then(|field| field.variant);
    let mut variants = of.fields.iter().filter_map(|field| field.variant);
    let first = variants.find(|one| *one == variant || Some(*one) == present);
    if first == Some(variant) {
        select(of, target, variant);
    }
}

/// Replaces the element's content with a part of the domain.
pub fn copy(of: &'static StructType, target: &mut UnionTarget<'_>, part: &XmlData) {
    let Element {
        attributes, nodes, ..
    } = Arc::unwrap_or_clone(Arc::clone(&part.element));
    target.element.attributes = attributes;
    target.element.nodes = nodes;
    if let (Some(Discriminator::Parent(name)), Some(attributes)) =
        (&of.discriminator, &mut target.parent_attributes)
    {
        let mut parent = part.parent_attributes.iter();
        let value = parent.find(|(key, _)| key == name);
        xml_edit::set_attribute(attributes, name, value.map(|(_, value)| value.clone()));
    }
}

/// Removes a struct's data from an element.
pub fn clear(of: &'static StructType, element: &mut Element) {
    for field in &of.fields {
        match &field.location {
            Location::Attribute(name) => {
                xml_edit::set_attribute(&mut element.attributes, name, None);
            }
            Location::Element(path) => {
                if let Some((name, parents)) = path.split_last() {
                    xml_edit::remove_at(element, parents, name);
                }
            }
            Location::Text | Location::InnerXml => element.nodes.clear(),
            Location::Embedded(_) | Location::Variant => {
                if let Some(of) = field.struct_type() {
                    clear(of, element);
                }
            }
        }
    }
}
