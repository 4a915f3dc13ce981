//! Merges the result of a mutation into the domain XML, as KubeVirt merges it into a Go struct:
//!
//! ```text
//!  Domain{ Memory: DomainMemory{Unit: "GiB"},     structs are merged field by field
//!          Title: "a",                            scalars are set
//!          CPU: null,                             null removes
//!          Devices: DomainDeviceList{Disks: […]}  lists are replaced as a whole
//!  }
//! ```
//!
//! Everything else stays as it is, including elements that no table knows.

mod assignment;
mod union;
mod xml_edit;

use cel::common::types::{CelNull, CelStruct};
use domain::xml::tree::{Element, Node};

use self::assignment::{Assignment, StructValue};
use self::union::UnionTarget;
use super::error::{MergeError, MergeReason};
use super::schema::{Discriminator, Field, FieldPath, Location, StructType};

/// Prefixes in the table for libvirt's XML namespaces of single hypervisors.
const HYPERVISOR_PREFIXES: [&str; 5] = ["qemu", "lxc", "bhyve", "vmware", "xen"];

/// Merges `mutation`, a struct of type `of`, into the document.
///
/// # Errors
/// A field cannot be set.
pub fn merge(
    of: &'static StructType,
    document: &mut Element,
    mutation: &CelStruct<'_>,
) -> Result<(), MergeError> {
    let mut no_parent = Vec::new();
    let mut root = UnionTarget {
        element: document,
        parent_attributes: Some(&mut no_parent),
    };
    set_fields(of, &mut root, mutation).map_err(|mut error| {
        error.path.insert(0, of.name);
        error
    })?;
    declare_namespaces(document);
    Ok(())
}

fn declare_namespaces(document: &mut Element) {
    for prefix in HYPERVISOR_PREFIXES {
        let (declaration, used) = (format!("xmlns:{prefix}"), format!("{prefix}:"));
        let is_used = document
            .children()
            .any(|child| child.name.starts_with(&used));
        if is_used && document.attribute(&declaration).is_none() {
            let uri = format!("http://libvirt.org/schemas/domain/{prefix}/1.0");
            document.attributes.push((declaration, uri));
        }
    }
}

fn set_fields(
    of: &'static StructType,
    target: &mut UnionTarget<'_>,
    values: &CelStruct<'_>,
) -> Result<(), MergeError> {
    for (name, value) in values.field_values() {
        let Some(FieldPath { field, owner, .. }) = of.find(&name) else {
            let of = of.name;
            return Err(MergeReason::UndefinedField { field: name, of }.into());
        };
        let result = Assignment::new(field, value.as_ref())
            .map_err(MergeError::from)
            .and_then(|assignment| set_field(owner, field, target, assignment, values));
        result.map_err(|mut error| {
            error.path.insert(0, field.name);
            error
        })?;
    }
    Ok(())
}

impl From<MergeReason> for MergeError {
    fn from(reason: MergeReason) -> Self {
        Self {
            path: Vec::new(),
            reason: Box::new(reason),
        }
    }
}

/// Sets one field. `siblings` are all the fields that the expression sets in this struct.
fn set_field(
    owner: &'static StructType,
    field: &'static Field,
    target: &mut UnionTarget<'_>,
    assignment: Assignment<'_, '_>,
    siblings: &CelStruct<'_>,
) -> Result<(), MergeError> {
    match (&field.location, assignment) {
        (Location::Attribute(name), assignment) => {
            xml_edit::set_attribute(&mut target.element.attributes, name, assignment.into_text());
            Ok(())
        }
        (Location::Text, assignment) => {
            target.element.nodes = text_nodes(assignment.into_text());
            Ok(())
        }
        (Location::InnerXml, assignment) => {
            let xml = assignment.into_text().unwrap_or_default();
            let parsed = Element::parse(&format!("<all>{xml}</all>"))
                .map_err(|error| MergeError::from(MergeReason::Xml(error)))?;
            target.element.nodes = parsed.nodes;
            Ok(())
        }
        (Location::Embedded(_), assignment) => set_embedded(field, target, assignment),
        (Location::Variant, assignment) => set_variant(owner, field, target, assignment, siblings),
        (Location::Element(path), assignment) => {
            let is_set = !assignment.is_empty();
            match assignment {
                Assignment::List(items) => set_list(field, path, target.element, items)?,
                assignment => set_child(field, path, target.element, assignment)?,
            }
            if let Some(variant) = field.variant.filter(|_| is_set) {
                union::select_if_first(owner, target, variant);
            }
            Ok(())
        }
    }
}

fn text_nodes(text: Option<String>) -> Vec<Node> {
    let text = text.filter(|text| !text.is_empty());
    text.map(Node::Text).into_iter().collect()
}

fn set_embedded(
    field: &'static Field,
    target: &mut UnionTarget<'_>,
    assignment: Assignment<'_, '_>,
) -> Result<(), MergeError> {
    let Some(of) = field.struct_type() else {
        return Ok(());
    };
    match assignment {
        Assignment::Struct(StructValue::Literal(values)) => {
            set_fields(of, &mut target.same_element(), values)
        }
        // The embedded struct shares its element, so its fields cannot be copied alone.
        Assignment::Struct(StructValue::PartOfDomain(_)) => {
            Err(assignment::type_error(field, "a part of domainSpec").into())
        }
        _ => {
            union::clear(of, target.element);
            Ok(())
        }
    }
}

/// Sets or removes the first element with this name.
fn set_child(
    field: &'static Field,
    path: &[&'static str],
    element: &mut Element,
    assignment: Assignment<'_, '_>,
) -> Result<(), MergeError> {
    let Some((name, parents)) = path.split_last() else {
        return Ok(());
    };
    match assignment {
        Assignment::Struct(value) => xml_edit::edit_at(element, parents, |parent| {
            set_struct_child(field, name, parent, value)
        }),
        Assignment::Text(text) => {
            xml_edit::edit_at(element, path, |child| child.nodes = text_nodes(Some(text)));
            Ok(())
        }
        Assignment::Remove | Assignment::List(_) => {
            xml_edit::remove_at(element, parents, name);
            Ok(())
        }
    }
}

fn set_struct_child(
    field: &'static Field,
    name: &str,
    parent: &mut Element,
    value: StructValue<'_, '_>,
) -> Result<(), MergeError> {
    let Some(of) = field.struct_type() else {
        return Ok(());
    };
    let attributes = &mut parent.attributes;
    xml_edit::edit_child(&mut parent.nodes, name, |child| {
        let mut target = UnionTarget {
            element: child,
            parent_attributes: Some(attributes),
        };
        set_struct(of, &mut target, value)
    })?;
    // libvirt writes no element if its parent's attributes are enough: <serial type="pty">.
    let is_empty = |child: &Element| child.attributes.is_empty() && child.nodes.is_empty();
    if matches!(of.discriminator, Some(Discriminator::Parent(_)))
        && parent.child(name).is_some_and(is_empty)
    {
        xml_edit::remove_at(parent, &[], name);
    }
    Ok(())
}

/// Merges a struct literal into the element, or replaces the element with a part of the domain.
fn set_struct(
    of: &'static StructType,
    target: &mut UnionTarget<'_>,
    value: StructValue<'_, '_>,
) -> Result<(), MergeError> {
    match value {
        StructValue::Literal(values) => set_fields(of, target, values),
        StructValue::PartOfDomain(part) => {
            union::copy(of, target, part);
            Ok(())
        }
    }
}

/// Replaces all elements of a list. The new elements take the first one's place.
fn set_list(
    field: &'static Field,
    path: &[&'static str],
    element: &mut Element,
    items: Vec<Assignment<'_, '_>>,
) -> Result<(), MergeError> {
    let Some((name, parents)) = path.split_last() else {
        return Ok(());
    };
    let mut elements = Vec::new();
    for item in items {
        let mut element = Element::new(*name);
        match (item, field.struct_type()) {
            (Assignment::Struct(value), Some(of)) => {
                let mut target = UnionTarget {
                    element: &mut element,
                    parent_attributes: Some(&mut Vec::new()),
                };
                set_struct(of, &mut target, value)?;
            }
            (item, _) => element.nodes = text_nodes(item.into_text()),
        }
        elements.push(element);
    }
    if elements.is_empty() {
        xml_edit::remove_at(element, parents, name);
    } else {
        xml_edit::edit_at(element, parents, |parent| {
            xml_edit::replace_children(parent, name, elements);
        });
    }
    Ok(())
}

/// Sets or removes a variant of a union. To change the variant, an expression must set the current
/// one to `null`; otherwise the one that comes first in the table stays.
fn set_variant(
    owner: &'static StructType,
    field: &'static Field,
    target: &mut UnionTarget<'_>,
    assignment: Assignment<'_, '_>,
    siblings: &CelStruct<'_>,
) -> Result<(), MergeError> {
    let (Some(of), Some(variant)) = (field.struct_type(), field.variant) else {
        return Ok(());
    };
    let present = union::present(owner, target);
    let is_present = present.is_some_and(|present| std::ptr::eq(present, field));
    let Assignment::Struct(value) = assignment else {
        if is_present {
            union::clear(of, target.element);
            union::select(owner, target, "");
        }
        return Ok(());
    };
    if let Some(present) = present.filter(|_| !is_present) {
        let is_removed = siblings
            .field_value(present.name)
            .is_some_and(|value| value.downcast_ref::<CelNull>().is_some());
        if !is_removed && union::comes_first(owner, present, field) {
            return Ok(());
        }
        if let Some(of) = present.struct_type() {
            union::clear(of, target.element);
        }
    }
    set_struct(of, &mut target.same_element(), value)?;
    union::select(owner, target, variant);
    Ok(())
}
