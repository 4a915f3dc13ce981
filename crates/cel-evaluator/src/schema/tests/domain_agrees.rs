//! Compares `libvirtxml.txt` with [`domain`]: the table has every element and attribute that the
//! conversion writes, at the same place. The documents are golden files of the conversion.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ::domain::DomainSpec;
use ::domain::xml::tree::Element;

use super::super::{Discriminator, Field, Location, StructType, domain};

/// Paths that only KubeVirt has; libvirt ignores them.
const NOT_OF_LIBVIRT: [&str; 3] = [
    "/devices/disk/capacity",
    "/devices/disk/filesystemOverhead",
    // libvirt's name is `accessmode`.
    "/devices/filesystem/@accessMode",
];

/// A part of the table that may describe an element.
#[derive(Clone, Copy)]
enum Candidate {
    Struct(&'static StructType),
    /// A scalar field.
    Scalar,
    /// An element on a field's path, and the remaining names of the path.
    Container(&'static Field, &'static [&'static str]),
}

/// Collects a struct's fields in one element, including fields of embedded structs and variants.
fn fields_in_element(of: &'static StructType, fields: &mut Vec<&'static Field>) {
    for field in &of.fields {
        match field.location {
            Location::Embedded(_) | Location::Variant => {
                if let Some(of) = field.struct_type() {
                    fields_in_element(of, fields);
                }
            }
            _ => fields.push(field),
        }
    }
}

/// The attributes of the element and of its children that select a union's variant.
fn discriminators(
    of: &'static StructType,
    child: Option<&str>,
    found: &mut BTreeSet<&'static str>,
) {
    match (&of.discriminator, child) {
        (Some(Discriminator::Own(names)), None) => found.extend(names),
        (Some(Discriminator::Child(name, attribute)), Some(child)) if *name == child => {
            found.insert(attribute);
        }
        _ => {}
    }
    for field in &of.fields {
        let Some(inner) = field.struct_type() else {
            continue;
        };
        match field.location {
            Location::Embedded(_) | Location::Variant => discriminators(inner, child, found),
            Location::Element(_) if child.is_none() => {
                if let Some(Discriminator::Parent(attribute)) = inner.discriminator {
                    found.insert(attribute);
                }
            }
            _ => {}
        }
        // A union in the same element reads the discriminator of its "parent" there.
        if let (
            Location::Embedded(_) | Location::Variant,
            Some(Discriminator::Parent(attribute)),
            None,
        ) = (&field.location, &inner.discriminator, child)
        {
            found.insert(attribute);
        }
    }
}

impl Candidate {
    fn fields(self) -> Vec<&'static Field> {
        let mut fields = Vec::new();
        if let Self::Struct(of) = self {
            fields_in_element(of, &mut fields);
        }
        fields
    }

    fn has_attribute(self, name: &str) -> bool {
        let mut known = BTreeSet::new();
        if let Self::Struct(of) = self {
            discriminators(of, None, &mut known);
        }
        known.contains(name)
            || self
                .fields()
                .iter()
                .any(|field| matches!(field.location, Location::Attribute(known) if known == name))
    }

    fn has_child_attribute(self, child: &str, name: &str) -> bool {
        let mut known = BTreeSet::new();
        if let Self::Struct(of) = self {
            discriminators(of, Some(child), &mut known);
        }
        known.contains(name)
    }

    fn holds_any_xml(self) -> bool {
        self.fields()
            .iter()
            .any(|field| field.location == Location::InnerXml)
    }

    fn children(self, name: &str) -> Vec<Self> {
        let next = |field: &'static Field, path: &'static [&'static str]| match path.split_first() {
            Some((first, [])) if *first == name => {
                Some(field.struct_type().map_or(Self::Scalar, Self::Struct))
            }
            Some((first, rest)) if *first == name => Some(Self::Container(field, rest)),
            _ => None,
        };
        if let Self::Container(field, path) = self {
            return next(field, path).into_iter().collect();
        }
        let fields = self.fields().into_iter();
        let children = fields.filter_map(|field| match &field.location {
            Location::Element(path) => next(field, path),
            _ => None,
        });
        children.collect()
    }
}

/// The paths in the element that fit no candidate.
fn unknown(candidates: &[Candidate], element: &Element, path: &str, found: &mut BTreeSet<String>) {
    if candidates.iter().any(|one| one.holds_any_xml()) {
        return;
    }
    for (name, _) in &element.attributes {
        if !name.starts_with("xmlns") && !candidates.iter().any(|one| one.has_attribute(name)) {
            found.insert(format!("{path}/@{name}"));
        }
    }
    for child in element.children() {
        let path = format!("{path}/{}", child.name);
        let inner: Vec<_> = candidates
            .iter()
            .flat_map(|one| one.children(&child.name))
            .collect();
        if inner.is_empty() {
            found.insert(path);
            continue;
        }
        let mut child = child.clone();
        let name = child.name.clone();
        child.attributes.retain(|(attribute, _)| {
            !candidates
                .iter()
                .any(|one| one.has_child_attribute(&name, attribute))
        });
        unknown(&inner, &child, &path, found);
    }
}

fn documents(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "xml") {
            found.push(path);
        }
    }
}

#[test]
fn the_table_has_every_element_and_attribute_that_the_conversion_writes() {
    let mut files = Vec::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xml-fixtures");
    documents(&fixtures, &mut files);
    assert!(files.len() > 50, "{} documents", files.len());
    let mut found = BTreeSet::new();
    for file in files {
        // The typed schema drops elements that it does not know.
        let Ok(spec) = DomainSpec::from_xml(&std::fs::read_to_string(&file).unwrap()) else {
            continue;
        };
        let document = Element::parse(&spec.to_xml()).unwrap();
        unknown(
            &[Candidate::Struct(domain().unwrap())],
            &document,
            "",
            &mut found,
        );
    }
    assert_eq!(found, BTreeSet::from(NOT_OF_LIBVIRT.map(str::to_owned)));
}
