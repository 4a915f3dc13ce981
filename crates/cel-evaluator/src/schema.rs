//! The struct types of CEL expressions: names of types and fields, and their places in XML or JSON.
//!
//! In KubeVirt these types are Go structs, found by reflection: `domainSpec` is a
//! `libvirtxml.Domain` of the Go module `libvirt.org/go/libvirtxml`, `vmi` a
//! `v1.VirtualMachineInstance` of KubeVirt's API. Plugin authors write Go's names. [`domain`] has
//! KubeVirt's JSON names instead, and [`api`] has only the fields that a launcher reads. So two
//! tables list Go's names, `libvirtxml.txt` and `vmi.txt`, each with its notation at the top. Tests
//! check that the tables agree with [`domain`] and [`api`] about the names in XML and JSON.

use std::collections::HashMap;
use std::sync::OnceLock;

use cel::common::types::Type as CelType;

#[derive(Debug)]
pub struct Schema {
    types: HashMap<&'static str, StructType>,
}

#[derive(Debug)]
pub struct StructType {
    /// The Go type's name without its package, such as `DomainDisk`.
    pub name: &'static str,
    /// The type in expressions, named with the package: `libvirtxml.DomainDisk`.
    pub cel_type: CelType,
    /// The attribute that selects the variant, if the type is a union such as the source of a disk.
    pub discriminator: Option<Discriminator>,
    /// Fields in the table's order. If an expression sets several variants of a union, this order
    /// decides: the first one wins.
    pub fields: Vec<Field>,
}

/// The attribute that selects the variant of a union.
#[derive(Debug, PartialEq, Eq)]
pub enum Discriminator {
    /// Attributes of the element itself. With several, the variant is their values joined by `/`.
    Own(Vec<&'static str>),
    /// An attribute of the parent element.
    Parent(&'static str),
    /// An attribute of a child element: name of the child, name of the attribute.
    Child(&'static str, &'static str),
}

#[derive(Debug)]
pub struct Field {
    /// The name in expressions.
    pub name: &'static str,
    /// Where the XML or JSON has the field.
    pub location: Location,
    /// The type of the value or of the list's items.
    pub value_type: ValueType,
    pub is_list: bool,
    /// Whether it is a pointer in Go, where absent differs from zero.
    pub is_pointer: bool,
    /// Whether a zero value is not written (`omitempty`).
    pub omits_zero: bool,
    /// The union's variant that it belongs to, if any.
    pub variant: Option<&'static str>,
    schema: fn() -> &'static Schema,
}

/// Where the XML or JSON has a field.
#[derive(Debug, PartialEq, Eq)]
pub enum Location {
    Attribute(&'static str),
    /// A child element, or a member of the JSON object. The last element of a path holds the field.
    Element(Vec<&'static str>),
    /// The text of the element, or the JSON value itself.
    Text,
    /// The element's whole content, as XML.
    InnerXml,
    /// An embedded struct: its fields are in the enclosing element or object, or in the named
    /// member of that object.
    Embedded(Option<&'static str>),
    /// The element itself, if the union has this field's variant.
    Variant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    String,
    Int,
    Uint,
    Bool,
    Double,
    /// Occurs only in JSON.
    Timestamp,
    /// A struct type of the same schema.
    Struct(&'static str),
    /// Any JSON value.
    Any,
    /// `map(string, dyn)`; only in JSON.
    Map,
}

/// A field and the path to it through embedded structs.
#[derive(Debug)]
pub struct FieldPath {
    /// The embedded structs' fields, outermost first.
    pub embedded: Vec<&'static Field>,
    pub field: &'static Field,
    /// The struct that declares the field.
    pub owner: &'static StructType,
}

/// The schema of `domainSpec`.
pub fn libvirtxml() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::read(include_str!("libvirtxml.txt"), "libvirtxml", libvirtxml))
}

/// The schema of `vmi`.
pub fn vmi() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| Schema::read(include_str!("vmi.txt"), "v1", vmi))
}

pub fn domain() -> Option<&'static StructType> {
    libvirtxml().get("Domain")
}

/// The CEL variables, with their types.
pub fn variables() -> impl Iterator<Item = (&'static str, &'static StructType)> {
    let vmi = vmi().get("VirtualMachineInstance");
    let variables = [("vmi", vmi), ("domainSpec", domain())];
    variables
        .into_iter()
        .filter_map(|(name, of)| Some((name, of?)))
}

impl Schema {
    pub fn get(&self, name: &str) -> Option<&StructType> {
        self.types.get(name)
    }

    fn read(table: &'static str, package: &str, schema: fn() -> &'static Self) -> Self {
        let mut types: Vec<StructType> = Vec::new();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            match types.last_mut().filter(|_| line.starts_with(' ')) {
                Some(of) => of
                    .fields
                    .extend(field(name, words.next(), words.next(), schema)),
                None => types.push(StructType {
                    name,
                    cel_type: CelType::new_struct(format!("{package}.{name}")),
                    discriminator: words.next().map(discriminator),
                    fields: Vec::new(),
                }),
            }
        }
        Self {
            types: types.into_iter().map(|of| (of.name, of)).collect(),
        }
    }
}

/// Parses a discriminator: `@type`, `@mode@type`, `..@type` or `address@type`.
fn discriminator(text: &'static str) -> Discriminator {
    match text.split_once('@') {
        Some(("..", attribute)) => Discriminator::Parent(attribute),
        Some((child, attribute)) if !child.is_empty() => Discriminator::Child(child, attribute),
        _ => Discriminator::Own(text.split('@').filter(|name| !name.is_empty()).collect()),
    }
}

fn field(
    name: &'static str,
    location: Option<&'static str>,
    value_type: Option<&'static str>,
    schema: fn() -> &'static Schema,
) -> Option<Field> {
    let (location, value_type) = (location?, value_type?);
    let omits_zero = location.ends_with('?');
    let (location, variant) = parse_location(location.trim_end_matches('?'));
    Some(Field {
        name,
        location,
        value_type: parse_type(value_type.trim_start_matches(['*', '[', ']'])),
        is_list: value_type.starts_with("[]"),
        is_pointer: value_type.starts_with('*'),
        omits_zero,
        variant,
        schema,
    })
}

/// Parses a field's location and variant.
fn parse_location(text: &'static str) -> (Location, Option<&'static str>) {
    if let Some(attribute) = text.strip_prefix('@') {
        return (Location::Attribute(attribute), None);
    }
    if let Some(variant) = text.strip_prefix('=') {
        return (Location::Variant, Some(variant));
    }
    let (text, variant) = match text.split_once('=') {
        Some((text, variant)) => (text, Some(variant)),
        None => (text, None),
    };
    let location = match text {
        "." => Location::Text,
        "!" => Location::InnerXml,
        "^" => Location::Embedded(None),
        _ => match text.strip_prefix('^') {
            Some(member) => Location::Embedded(Some(member)),
            None => Location::Element(text.split('>').collect()),
        },
    };
    (location, variant)
}

fn parse_type(text: &'static str) -> ValueType {
    match text {
        "s" => ValueType::String,
        "i" => ValueType::Int,
        "u" => ValueType::Uint,
        "b" => ValueType::Bool,
        "f" => ValueType::Double,
        "t" => ValueType::Timestamp,
        "?" => ValueType::Any,
        map if map.starts_with("{}") => ValueType::Map,
        name => ValueType::Struct(name),
    }
}

impl StructType {
    /// Finds a field by name. As in Go, a struct also has the fields of its embedded structs.
    pub fn find(&'static self, name: &str) -> Option<FieldPath> {
        if let Some(field) = self.fields.iter().find(|field| field.name == name) {
            return Some(FieldPath {
                embedded: Vec::new(),
                field,
                owner: self,
            });
        }
        let embedded = self.fields.iter().filter(|field| field.is_embedded());
        embedded
            .filter_map(|outer| Some((outer, outer.struct_type()?)))
            .find_map(|(outer, of)| {
                let mut path = of.find(name)?;
                path.embedded.insert(0, outer);
                Some(path)
            })
    }
}

impl Field {
    /// The struct type of the value or of the list's items.
    pub fn struct_type(&self) -> Option<&'static StructType> {
        match self.value_type {
            ValueType::Struct(name) => (self.schema)().get(name),
            _ => None,
        }
    }

    pub fn is_embedded(&self) -> bool {
        matches!(self.location, Location::Embedded(_))
    }
}

impl PartialEq for StructType {
    fn eq(&self, other: &Self) -> bool {
        self.cel_type == other.cel_type
    }
}

#[cfg(test)]
mod tests;
