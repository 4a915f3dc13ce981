//! The value that an expression assigns to a field, checked against the field's type.

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelNull, CelString, CelStruct, CelUInt,
};
use cel::common::value::Val;

use crate::error::MergeReason;
use crate::expr_type::ExprType;
use crate::object::Object;
use crate::schema::{Field, StructType, ValueType};
use crate::xml_data::XmlData;

pub enum Assignment<'b, 'v> {
    /// Removes the field: `null`, or a zero value that is not written.
    Remove,
    /// A scalar's text in XML.
    Text(String),
    Struct(StructValue<'b, 'v>),
    List(Vec<Self>),
}

pub enum StructValue<'b, 'v> {
    /// A struct that the expression constructs. It has only the fields to set.
    Literal(&'b CelStruct<'v>),
    /// A struct that the expression takes from `domainSpec`.
    PartOfDomain(&'b XmlData),
}

impl<'b, 'v> Assignment<'b, 'v> {
    pub fn new(field: &'static Field, value: &'b (dyn Val + 'v)) -> Result<Self, MergeReason> {
        if value.downcast_ref::<CelNull>().is_some() {
            return Ok(if field.is_list {
                Self::List(Vec::new())
            } else {
                Self::Remove
            });
        }
        if field.is_list {
            let list = value
                .downcast_ref::<CelList<'_>>()
                .ok_or_else(|| wrong_type(field, value))?;
            let items = list.inner().iter();
            let items = items.map(|item| Self::item(field, item.as_ref()));
            return Ok(Self::List(items.collect::<Result<_, _>>()?));
        }
        match Self::item(field, value)? {
            Self::Text(_) if field.omits_zero && !field.is_pointer && is_zero(value) => {
                Ok(Self::Remove)
            }
            assignment => Ok(assignment),
        }
    }

    /// Checks the value itself, or one item of a list.
    fn item(field: &'static Field, value: &'b (dyn Val + 'v)) -> Result<Self, MergeReason> {
        let assignment = match field.struct_type() {
            Some(of) => StructValue::new(of, value).map(Self::Struct),
            None => text(field.value_type, value).map(Self::Text),
        };
        assignment.ok_or_else(|| wrong_type(field, value))
    }

    /// The text, or `None` to remove the field.
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Remove | Self::Struct(_) | Self::List(_) => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Remove => true,
            Self::List(items) => items.is_empty(),
            Self::Text(_) | Self::Struct(_) => false,
        }
    }
}

impl<'b, 'v> StructValue<'b, 'v> {
    fn new(of: &'static StructType, value: &'b (dyn Val + 'v)) -> Option<Self> {
        if let Some(literal) = value.downcast_ref::<CelStruct<'_>>() {
            return (*literal.get_type() == of.cel_type).then_some(Self::Literal(literal));
        }
        let object = value.downcast_ref::<Object<XmlData>>()?;
        (object.of == of).then_some(Self::PartOfDomain(&object.data))
    }
}

/// A scalar's text in XML, or `None` if the value has another type.
fn text(value_type: ValueType, value: &dyn Val) -> Option<String> {
    Some(match value_type {
        ValueType::String => value.downcast_ref::<CelString<'_>>()?.inner().to_owned(),
        ValueType::Int => value.downcast_ref::<CelInt>()?.inner().to_string(),
        ValueType::Uint => value.downcast_ref::<CelUInt>()?.inner().to_string(),
        ValueType::Bool => value.downcast_ref::<CelBool>()?.inner().to_string(),
        ValueType::Double => value.downcast_ref::<CelDouble>()?.inner().to_string(),
        ValueType::Timestamp | ValueType::Struct(_) | ValueType::Any | ValueType::Map => {
            return None;
        }
    })
}

fn is_zero(value: &dyn Val) -> bool {
    value.as_zeroer().is_some_and(|value| value.is_zero_value())
}

fn wrong_type(field: &'static Field, value: &dyn Val) -> MergeReason {
    type_error(field, value.get_type().name())
}

/// The error for a value of type `found`, which the field does not accept.
pub fn type_error(field: &'static Field, found: &str) -> MergeReason {
    MergeReason::Type {
        expected: ExprType::of_field(field).to_string(),
        found: found.to_owned(),
    }
}
