//! The domain and the virtual machine instance as CEL values: nothing is converted before an
//! expression asks for it. As in KubeVirt, what is absent reads as zero, and `has()` tells.

use std::any::Any;
use std::sync::Arc;

use cel::ExecutionError;
use cel::common::traits::Indexer;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
    Type as CelType,
};
use cel::common::value::{CowVal, StaticVal, Val};
use serde_json::Value;

use super::schema::{Field, Holds, Place, Teller, Type};
use domain::xml::tree::{Element, Node};

/// Before a field's name: whether it is set is asked, not what it holds. See `expression`.
pub const IS_SET: char = '?';

/// A struct of a schema, backed by the document it is in.
#[derive(Debug, Clone)]
pub struct Native {
    /// Its type.
    pub of: &'static Type,
    /// Where it is.
    pub source: Source,
}

/// A part of a document.
#[derive(Debug, Clone)]
pub enum Source {
    /// An element, and the attributes of the one around it.
    Xml(Arc<Element>, Arc<Vec<(String, String)>>),
    /// A JSON value.
    Json(Arc<Value>),
}

impl Native {
    /// The root element of a document.
    pub fn element(of: &'static Type, element: Arc<Element>) -> Self {
        Self {
            of,
            source: Source::Xml(element, Arc::default()),
        }
    }

    /// A JSON object.
    pub fn json(of: &'static Type, value: Arc<Value>) -> Self {
        Self {
            of,
            source: Source::Json(value),
        }
    }

    /// The value of a field, or nothing where it is not set.
    fn field(&self, name: &str) -> Result<Option<Box<dyn Val>>, ExecutionError> {
        let (way, field) = self
            .of
            .find(name)
            .ok_or_else(|| ExecutionError::no_such_key(name))?;
        let mut holder = self.clone();
        for outer in way {
            holder = match holder.part(outer) {
                Some(inner) => inner,
                None => return Ok(None),
            };
        }
        Ok(holder.value(field))
    }

    /// What `has()` says: what may be absent is there, all else is not zero, as in Go.
    fn is_set(&self, name: &str) -> Result<bool, ExecutionError> {
        let (way, field) = self
            .of
            .find(name)
            .ok_or_else(|| ExecutionError::no_such_key(name))?;
        let holder = way
            .into_iter()
            .try_fold(self.clone(), |holder, outer| holder.part(outer));
        Ok(holder.is_some_and(|holder| holder.has(field)))
    }

    fn has(&self, field: &'static Field) -> bool {
        let flat = matches!(field.place, Place::Flat(_));
        if field.of().is_some() && !field.list && (flat || !field.pointer) {
            return self
                .part(field)
                .is_some_and(|part| part.of.fields.iter().any(|field| part.has(field)));
        }
        self.value(field)
            .is_some_and(|value| field.pointer || field.list || !is_zero(value.as_ref()))
    }

    /// The struct in a field that has one.
    fn part(&self, field: &'static Field) -> Option<Self> {
        let of = self.of.sibling(field.of()?)?;
        let source = match &self.source {
            Source::Json(value) => match &field.place {
                Place::Flat(None) => self.source.clone(),
                Place::Flat(Some(member)) => Source::Json(Arc::new(value.get(member)?.clone())),
                Place::Element(path) => Source::Json(Arc::new(
                    path.last()
                        .and_then(|name| value.get(name))
                        .filter(|v| !v.is_null())?
                        .clone(),
                )),
                _ => return None,
            },
            Source::Xml(element, parent) => {
                let own = || Arc::new(element.attributes.clone());
                match &field.place {
                    Place::Flat(_) => Source::Xml(Arc::clone(element), own()),
                    Place::Kind(kind)
                        if told(self.of, element, parent).as_deref() == Some(kind) =>
                    {
                        Source::Xml(Arc::clone(element), own())
                    }
                    Place::Element(path) => match (
                        last(element, path).and_then(|(_, mut all)| all.next()),
                        &of.kind,
                    ) {
                        (Some(child), _) => Source::Xml(Arc::new(child.clone()), own()),
                        // It may be told by this element what is in it, and then be left out.
                        (None, Some(Teller::Parent(attribute)))
                            if element.attribute(attribute).is_some() =>
                        {
                            Source::Xml(Arc::default(), own())
                        }
                        _ => return None,
                    },
                    _ => return None,
                }
            }
        };
        Some(Self { of, source })
    }

    fn value(&self, field: &'static Field) -> Option<Box<dyn Val>> {
        match (&self.source, field.of()) {
            (Source::Json(value), _) if field.list || field.of().is_none() => match &field.place {
                Place::Element(path) => from_json(self.of, field, value.get(path.last()?)?),
                // Of several fields the one that holds what it is, as a number or a name.
                Place::Text if field.holds == Holds::String && !value.is_string() => None,
                Place::Text => from_json(self.of, field, value),
                _ => None,
            },
            (Source::Xml(element, _), _) if field.list => self.list(field, element),
            (_, Some(_)) => self.part(field).map(|part| Box::new(part) as Box<dyn Val>),
            (Source::Xml(element, _), None) => {
                let text = match &field.place {
                    Place::Attribute(name) => element.attribute(name).map(str::to_owned),
                    Place::Element(path) => last(element, path)?.1.next().map(Element::text),
                    Place::Text => Some(element.text()).filter(|text| !text.is_empty()),
                    Place::Inner => Some(inner(element)).filter(|text| !text.is_empty()),
                    _ => None,
                }?;
                // What is no number where a number is expected is taken as absent; libvirt wrote it.
                let value = scalar(field.holds, &text)?;
                (field.pointer || !text.is_empty()).then_some(value)
            }
            (Source::Json(_), None) => None,
        }
    }

    fn list(&self, field: &'static Field, element: &Arc<Element>) -> Option<Box<dyn Val>> {
        let Place::Element(path) = &field.place else {
            return None;
        };
        let (container, all) = last(element, path)?;
        let around = Arc::new(container.attributes.clone());
        let values: Vec<Box<dyn Val>> = match field.of() {
            Some(name) => {
                let of = self.of.sibling(name)?;
                all.map(|child| {
                    Box::new(Self {
                        of,
                        source: Source::Xml(Arc::new(child.clone()), Arc::clone(&around)),
                    }) as Box<dyn Val>
                })
                .collect()
            }
            None => all
                .filter_map(|child| scalar(field.holds, &child.text()))
                .collect(),
        };
        (!values.is_empty()).then(|| Box::new(CelList::from(values)) as Box<dyn Val>)
    }
}

/// The kind of a struct that has several.
pub fn told(of: &Type, element: &Element, parent: &[(String, String)]) -> Option<String> {
    match of.kind.as_ref()? {
        Teller::Own(attributes) => {
            // Some kinds are told by the absence of the attribute.
            let values: Vec<&str> = attributes
                .iter()
                .filter_map(|name| element.attribute(name))
                .collect();
            let nothing = element.attributes.is_empty() && element.nodes.is_empty();
            Some(values.join("/")).filter(|kind| !kind.is_empty() || !nothing)
        }
        Teller::Parent(attribute) => Some(
            parent
                .iter()
                .find(|(name, _)| name == attribute)
                .map_or_else(String::new, |(_, value)| value.clone()),
        ),
        Teller::Child(child, attribute) => element
            .child(child)?
            .attribute(attribute)
            .map(str::to_owned),
    }
}

/// The element that holds the last of a path, and those of that name in it.
fn last<'e>(
    element: &'e Element,
    path: &[&'static str],
) -> Option<(&'e Element, impl Iterator<Item = &'e Element> + use<'e>)> {
    let (name, way) = path.split_last()?;
    let mut container = element;
    for step in way {
        container = container.child(step)?;
    }
    let name = *name;
    Some((
        container,
        container.children().filter(move |child| child.name == name),
    ))
}

fn inner(element: &Element) -> String {
    let parts = element.nodes.iter().map(|node| match node {
        Node::Element(child) => child.to_xml(),
        Node::Text(text) => text.clone(),
    });
    parts.collect()
}

fn scalar(holds: Holds, text: &str) -> Option<Box<dyn Val>> {
    let number = text.trim();
    let hex = number
        .strip_prefix("0x")
        .or_else(|| number.strip_prefix("0X"));
    Some(match holds {
        Holds::Int => Box::new(CelInt::from(
            hex.map_or_else(|| number.parse(), |hex| i64::from_str_radix(hex, 16))
                .ok()?,
        )),
        Holds::Uint => Box::new(CelUInt::from(
            hex.map_or_else(|| number.parse(), |hex| u64::from_str_radix(hex, 16))
                .ok()?,
        )),
        Holds::Bool => Box::new(CelBool::from(number.parse::<bool>().ok()?)),
        Holds::Double => Box::new(CelDouble::from(number.parse::<f64>().ok()?)),
        _ => Box::new(CelString::from(text.to_owned())),
    })
}

/// A JSON value where a field is.
fn from_json(of: &'static Type, field: &'static Field, value: &Value) -> Option<Box<dyn Val>> {
    if value.is_null() {
        return None;
    }
    if field.list {
        let item = |value: &Value| one(of, field, value);
        return Some(Box::new(CelList::from(
            value
                .as_array()?
                .iter()
                .filter_map(item)
                .collect::<Vec<_>>(),
        )));
    }
    one(of, field, value)
}

fn one(of: &'static Type, field: &'static Field, value: &Value) -> Option<Box<dyn Val>> {
    Some(match field.holds {
        Holds::Struct(name) => Box::new(Native::json(of.sibling(name)?, Arc::new(value.clone()))),
        Holds::Int => Box::new(CelInt::from(value.as_i64()?)),
        Holds::Uint => Box::new(CelUInt::from(value.as_u64()?)),
        Holds::Double => Box::new(CelDouble::from(value.as_f64()?)),
        Holds::Bool => Box::new(CelBool::from(value.as_bool()?)),
        // Quantities and the like may be numbers in JSON.
        Holds::String | Holds::Timestamp => Box::new(CelString::from(
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        )),
        Holds::Map => map(value.as_object()?),
        Holds::Any => any(value),
    })
}

fn map(members: &serde_json::Map<String, Value>) -> Box<dyn Val> {
    let members = members
        .iter()
        .map(|(name, value)| (CelMapKey::from(name.clone()), any(value)));
    Box::new(CelMap::from(
        members.collect::<std::collections::HashMap<_, _>>(),
    ))
}

fn any(value: &Value) -> Box<dyn Val> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::String(text) => Box::new(CelString::from(text.clone())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(any).collect::<Vec<_>>())),
        Value::Object(_) => Box::new(Loose(Arc::new(value.clone()))),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Box::new(CelInt::from(value)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
    }
}

/// What reads where nothing is set.
fn zero(of: &'static Type, field: &'static Field) -> Box<dyn Val> {
    if field.list {
        return Box::new(CelList::from(Vec::new()));
    }
    match field.holds {
        Holds::Struct(name) => match of.sibling(name) {
            Some(of) => Box::new(Native {
                of,
                source: Source::Xml(Arc::default(), Arc::default()),
            }),
            None => Box::new(CelNull),
        },
        Holds::String => Box::new(CelString::from("")),
        Holds::Timestamp => Box::new(CelString::from("1970-01-01T00:00:00Z")),
        Holds::Int => Box::new(CelInt::from(0)),
        Holds::Uint => Box::new(CelUInt::from(0)),
        Holds::Bool => Box::new(CelBool::from(false)),
        Holds::Double => Box::new(CelDouble::from(0.0)),
        Holds::Map | Holds::Any => map(&serde_json::Map::new()),
    }
}

fn is_zero(value: &dyn Val) -> bool {
    value
        .downcast_ref::<CelString<'_>>()
        .is_some_and(|text| text.inner().is_empty())
        || value
            .downcast_ref::<CelInt>()
            .is_some_and(|number| *number.inner() == 0)
        || value
            .downcast_ref::<CelUInt>()
            .is_some_and(|number| *number.inner() == 0)
        || value
            .downcast_ref::<CelDouble>()
            .is_some_and(|number| *number.inner() == 0.0)
        || value
            .downcast_ref::<CelBool>()
            .is_some_and(|truth| !*truth.inner())
}

impl Val for Native {
    fn get_type(&self) -> &CelType {
        &self.of.cel
    }
    #[allow(
        clippy::panic,
        reason = "as the trait asks of a type whose name varies; only overload macros call it, and none names this type"
    )]
    fn cel_type() -> &'static CelType {
        panic!("the type differs from value to value")
    }
    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }
    fn equals(&self, other: &dyn Val) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| {
            self.of.name == other.of.name
                && match (&self.source, &other.source) {
                    (Source::Xml(a, _), Source::Xml(b, _)) => {
                        a.attributes == b.attributes && a.nodes == b.nodes
                    }
                    (Source::Json(a), Source::Json(b)) => a == b,
                    _ => false,
                }
        })
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
impl StaticVal for Native {}

impl Indexer for Native {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = index
            .downcast_ref::<CelString<'_>>()
            .ok_or_else(|| ExecutionError::no_such_key("a field is named by a string"))?
            .inner();
        match name.strip_prefix(IS_SET) {
            Some(name) if self.is_set(name)? => Ok(CowVal::Owned(Box::new(CelBool::from(true)))),
            Some(name) => Err(ExecutionError::no_such_key(name)),
            None => match self.field(name)? {
                Some(value) => Ok(CowVal::Owned(value)),
                None => {
                    let (way, field) = self
                        .of
                        .find(name)
                        .ok_or_else(|| ExecutionError::no_such_key(name))?;
                    let holder = way
                        .last()
                        .and_then(|outer| self.of.sibling(outer.of()?))
                        .unwrap_or(self.of);
                    Ok(CowVal::Owned(zero(holder, field)))
                }
            },
        }
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

/// An object of a type that is in no table: members are found without regard to case, since Go's
/// names differ from JSON's only in that.
#[derive(Debug, Clone)]
struct Loose(Arc<Value>);

static LOOSE: CelType = CelType::new_struct_type("k8s.object");

impl Val for Loose {
    fn get_type(&self) -> &CelType {
        &LOOSE
    }
    fn cel_type() -> &'static CelType {
        &LOOSE
    }
    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }
    fn equals(&self, other: &dyn Val) -> bool {
        other
            .downcast_ref::<Self>()
            .is_some_and(|other| self.0 == other.0)
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
impl StaticVal for Loose {}

impl Indexer for Loose {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = index
            .downcast_ref::<CelString<'_>>()
            .map(|name| name.inner().to_owned())
            .unwrap_or_default();
        let members = self.0.as_object();
        let exact = members.and_then(|members| members.get(&name));
        let found = exact.or_else(|| {
            members?
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(&name))
                .map(|(_, value)| value)
        });
        found
            .map(|value| CowVal::Owned(any(value)))
            .ok_or_else(|| ExecutionError::no_such_key(&name))
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}
