//! Reads fields of `vmi` from its JSON.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use cel::ExecutionError;
use cel::common::traits::Indexer;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
    Type as CelType,
};
use cel::common::value::{CowVal, StaticVal, Val};
use serde_json::Value;

use super::object::{Data, OBJECT_TYPE};
use super::schema::{Field, Location, StructType, ValueType};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct JsonData(pub Arc<Value>);

impl JsonData {
    fn of(value: &Value) -> Self {
        Self(Arc::new(value.clone()))
    }

    fn get(&self, field: &Field) -> Option<&Value> {
        let value = match &field.location {
            Location::Element(path) => self.0.get(path.last()?)?,
            Location::Embedded(Some(member)) => self.0.get(member)?,
            Location::Embedded(None) | Location::Text => &self.0,
            Location::Attribute(_) | Location::InnerXml | Location::Variant => return None,
        };
        (!value.is_null()).then_some(value)
    }
}

impl Data for JsonData {
    fn member(&self, _: &'static StructType, field: &'static Field) -> Option<Self> {
        match field.location {
            Location::Embedded(None) => Some(self.clone()),
            _ => self.get(field).map(Self::of),
        }
    }

    fn items(&self, field: &'static Field) -> Option<Vec<Self>> {
        let items = self.get(field)?.as_array()?;
        Some(items.iter().map(Self::of).collect())
    }

    fn scalar(&self, field: &'static Field) -> Option<Box<dyn Val>> {
        let value = self.get(field)?;
        // An IntOrString has a field for each of its types, and only one of them is set.
        if field.location == Location::Text
            && field.value_type == ValueType::String
            && !value.is_string()
        {
            return None;
        }
        convert(value, field.value_type)
    }

    fn as_scalar(&self, value_type: ValueType) -> Option<Box<dyn Val>> {
        convert(&self.0, value_type)
    }
}

/// Converts a JSON value to that type; `None` if its type differs.
fn convert(value: &Value, value_type: ValueType) -> Option<Box<dyn Val>> {
    Some(match value_type {
        ValueType::Int => Box::new(CelInt::from(value.as_i64()?)),
        ValueType::Uint => Box::new(CelUInt::from(value.as_u64()?)),
        ValueType::Double => Box::new(CelDouble::from(value.as_f64()?)),
        ValueType::Bool => Box::new(CelBool::from(value.as_bool()?)),
        // A quantity may be a number in JSON.
        ValueType::String | ValueType::Timestamp => Box::new(CelString::from(match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })),
        ValueType::Map => {
            let members = value.as_object()?.iter();
            let members: HashMap<_, _> = members
                .map(|(name, value)| (CelMapKey::from(name.clone()), any(value)))
                .collect();
            Box::new(CelMap::from(members))
        }
        ValueType::Any => any(value),
        ValueType::Struct(_) => return None,
    })
}

/// Converts a JSON value of unknown type.
fn any(value: &Value) -> Box<dyn Val> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::String(text) => Box::new(CelString::from(text.clone())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(any).collect::<Vec<_>>())),
        Value::Object(_) => Box::new(UntypedObject(Arc::new(value.clone()))),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Box::new(CelInt::from(value)),
            None => Box::new(CelDouble::from(number.as_f64().unwrap_or_default())),
        },
    }
}

/// A JSON object of a type that is not in the table. Expressions use Go's names for its members,
/// which usually differ from JSON's only by case; so case does not matter.
#[derive(Debug, Clone)]
struct UntypedObject(Arc<Value>);

impl Val for UntypedObject {
    fn get_type(&self) -> &CelType {
        &OBJECT_TYPE
    }
    fn cel_type() -> &'static CelType {
        &OBJECT_TYPE
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
impl StaticVal for UntypedObject {}

impl Indexer for UntypedObject {
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
            let mut members = members?.iter();
            members
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
