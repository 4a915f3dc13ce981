//! The types that CEL expressions see, read from tables: names of types and fields, and where
//! each field is in the XML or JSON. The head of each table says how it is written.

use std::collections::HashMap;
use std::sync::OnceLock;

use cel::common::types::Type as CelType;

/// One table, read once for the life of the process.
#[derive(Debug)]
pub struct Schema {
    types: HashMap<&'static str, Type>,
}

/// A struct type.
#[derive(Debug)]
pub struct Type {
    /// Its name, without the package.
    pub name: &'static str,
    /// Its name in expressions, with the package.
    pub cel: CelType,
    /// For a type of several kinds, where its kind is told.
    pub kind: Option<Teller>,
    /// In the order of the table; of kinds the first one counts.
    pub fields: Vec<Field>,
    schema: &'static OnceLock<Schema>,
}

/// Where the kind of a type is told: attributes, joined by `/` when there are several.
#[derive(Debug, PartialEq, Eq)]
pub enum Teller {
    /// Of the element itself.
    Own(Vec<&'static str>),
    /// Of the element around it.
    Parent(&'static str),
    /// Of a child.
    Child(&'static str, &'static str),
}

/// A field.
#[derive(Debug)]
pub struct Field {
    /// Its name in expressions.
    pub name: &'static str,
    /// Where it is.
    pub place: Place,
    /// What it holds.
    pub holds: Holds,
    /// Whether it may be absent, which is then not the same as zero.
    pub pointer: bool,
    /// Whether it is a list.
    pub list: bool,
    /// Whether a zero value is left out.
    pub omit_zero: bool,
    /// The kind that the struct is of when this field is set, and told nowhere else.
    pub makes: Option<&'static str>,
}

/// Where a field is.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// An attribute.
    Attribute(&'static str),
    /// An element, or a member of a JSON object; the last of a path.
    Element(Vec<&'static str>),
    /// The text.
    Text,
    /// All that is inside, as XML.
    Inner,
    /// The same element, or the named member of it; its fields can be reached without its name too.
    Flat(Option<&'static str>),
    /// The same element when it is of this kind.
    Kind(&'static str),
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in CEL")]
pub enum Holds {
    String,
    Int,
    Uint,
    Bool,
    Double,
    /// In JSON; a text where it is looked at, see `expression`.
    Timestamp,
    Struct(&'static str),
    /// Whatever the JSON holds.
    Any,
    /// From string to string.
    Map,
}

static LIBVIRT: OnceLock<Schema> = OnceLock::new();
static VMI: OnceLock<Schema> = OnceLock::new();

impl Schema {
    /// The domain's types.
    pub fn libvirt() -> &'static Self {
        LIBVIRT.get_or_init(|| Self::read(include_str!("libvirtxml.txt"), "libvirtxml", &LIBVIRT))
    }

    /// The virtual machine instance's types.
    pub fn vmi() -> &'static Self {
        VMI.get_or_init(|| Self::read(include_str!("vmi.txt"), "v1", &VMI))
    }

    /// The type of that name.
    pub fn get(&'static self, name: &str) -> Option<&'static Type> {
        self.types.get(name)
    }

    fn read(table: &'static str, package: &str, schema: &'static OnceLock<Self>) -> Self {
        let mut types: Vec<Type> = Vec::new();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            match (line.starts_with(' '), types.last_mut()) {
                (true, Some(last)) => last.fields.extend(field(name, words.next(), words.next())),
                _ => {
                    let cel = CelType::new_struct(format!("{package}.{name}"));
                    types.push(Type {
                        name,
                        cel,
                        kind: words.next().map(teller),
                        fields: Vec::new(),
                        schema,
                    });
                }
            }
        }
        Self {
            types: types.into_iter().map(|one| (one.name, one)).collect(),
        }
    }
}

fn teller(text: &'static str) -> Teller {
    match text.split_once('@') {
        Some(("..", attribute)) => Teller::Parent(attribute),
        Some(("", attributes)) => Teller::Own(attributes.split('@').collect()),
        Some((child, attribute)) => Teller::Child(child, attribute),
        None => Teller::Own(vec![text]),
    }
}

fn field(
    name: &'static str,
    place: Option<&'static str>,
    holds: Option<&'static str>,
) -> Option<Field> {
    let (place, holds) = (place?, holds?);
    let pointer = holds.starts_with('*');
    let list = holds.starts_with("[]");
    let holds = match holds.trim_start_matches(['*', '[', ']']) {
        "s" => Holds::String,
        "i" => Holds::Int,
        "u" => Holds::Uint,
        "b" => Holds::Bool,
        "f" => Holds::Double,
        "t" => Holds::Timestamp,
        "?" => Holds::Any,
        map if map.starts_with("{}") => Holds::Map,
        name => Holds::Struct(name),
    };
    let omit_zero = place.ends_with('?');
    let (place, makes) = match place.split_once('=') {
        Some((place, kind)) if !place.is_empty() => (place, Some(kind)),
        _ => (place, None),
    };
    let place = match place.trim_end_matches('?') {
        "." => Place::Text,
        "!" => Place::Inner,
        "^" => Place::Flat(None),
        other => match other.split_at_checked(1) {
            Some(("@", attribute)) => Place::Attribute(attribute),
            Some(("=", kind)) => Place::Kind(kind),
            Some(("^", member)) => Place::Flat(Some(member)),
            _ => Place::Element(other.split('>').collect()),
        },
    };
    Some(Field {
        name,
        place,
        holds,
        pointer,
        list,
        omit_zero,
        makes,
    })
}

impl Type {
    /// A type of the same table.
    pub fn sibling(&self, name: &str) -> Option<&'static Self> {
        self.schema.get()?.get(name)
    }

    /// The field of that name, and the flat fields on the way to it: as in Go, the fields of an
    /// embedded struct are fields of the one around it.
    pub fn find(&'static self, name: &str) -> Option<(Vec<&'static Field>, &'static Field)> {
        if let Some(field) = self.fields.iter().find(|field| field.name == name) {
            return Some((Vec::new(), field));
        }
        let flat = self
            .fields
            .iter()
            .filter(|field| matches!(field.place, Place::Flat(_)));
        flat.filter_map(|outer| Some((outer, outer.of()?)))
            .find_map(|(outer, name_of)| {
                let (mut way, field) = self.sibling(name_of)?.find(name)?;
                way.insert(0, outer);
                Some((way, field))
            })
    }
}

impl Field {
    /// The kind that it belongs to.
    pub fn kind(&self) -> Option<&'static str> {
        match self.place {
            Place::Kind(kind) => Some(kind),
            _ => self.makes,
        }
    }

    /// The struct type that it holds.
    pub fn of(&self) -> Option<&'static str> {
        match self.holds {
            Holds::Struct(name) => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_type_that_a_field_names_is_in_its_table() {
        for schema in [Schema::libvirt(), Schema::vmi()] {
            for one in schema.types.values() {
                for field in &one.fields {
                    assert!(
                        field.of().is_none_or(|name| schema.get(name).is_some()),
                        "{}.{}",
                        one.name,
                        field.name
                    );
                    assert!(
                        !matches!(field.place, Place::Kind(_)) || one.kind.is_some(),
                        "{}.{}",
                        one.name,
                        field.name
                    );
                }
            }
        }
    }

    #[test]
    fn places_are_read() {
        let disk = Schema::libvirt().get("DomainDisk").unwrap();
        assert_eq!(
            disk.find("Device").unwrap().1.place,
            Place::Attribute("device")
        );
        assert_eq!(
            Schema::libvirt().get("DomainDiskSource").unwrap().kind,
            Some(Teller::Parent("type"))
        );
        assert_eq!(
            Schema::libvirt().get("DomainHostdev").unwrap().kind,
            Some(Teller::Own(vec!["mode", "type"]))
        );
    }

    #[test]
    fn fields_of_embedded_structs_are_found() {
        let (way, field) = Schema::vmi()
            .get("VirtualMachineInstance")
            .unwrap()
            .find("Labels")
            .unwrap();
        assert_eq!((way[0].name, field.name), ("ObjectMeta", "Labels"));
        assert!(
            Schema::vmi()
                .get("VirtualMachineInstance")
                .unwrap()
                .find("Nonsense")
                .is_none()
        );
    }
}
