//! Types of expressions, as known before an expression runs.

use std::fmt;

use super::schema::{Field, StructType, ValueType};

#[derive(Debug, Clone, PartialEq)]
pub enum ExprType {
    /// A type that is known only when the expression runs.
    Dyn,
    /// `null_type`.
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    /// `list(T)`.
    List(Box<Self>),
    /// `map(string, T)`.
    Map(Box<Self>),
    /// A struct of one of the schemas.
    Struct(&'static StructType),
}

impl ExprType {
    pub fn list(item: Self) -> Self {
        Self::List(Box::new(item))
    }

    /// The type of a field.
    pub fn of_field(field: &Field) -> Self {
        let value = match field.value_type {
            ValueType::String => Self::String,
            ValueType::Int => Self::Int,
            ValueType::Uint => Self::Uint,
            ValueType::Bool => Self::Bool,
            ValueType::Double => Self::Double,
            ValueType::Timestamp => Self::Timestamp,
            ValueType::Any => Self::Dyn,
            ValueType::Map => Self::Map(Box::new(Self::Dyn)),
            ValueType::Struct(_) => field.struct_type().map_or(Self::Dyn, Self::Struct),
        };
        if field.is_list {
            Self::list(value)
        } else {
            value
        }
    }

    /// Whether a value of this type may be assigned to a field of type `field`.
    pub fn is_assignable_to(&self, field: &Self) -> bool {
        match (self, field) {
            (Self::Dyn, _) | (_, Self::Dyn) => true,
            (Self::Null, Self::Struct(_) | Self::Timestamp) => true,
            (Self::List(a), Self::List(b)) | (Self::Map(a), Self::Map(b)) => a.is_assignable_to(b),
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for ExprType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Null => f.write_str("null_type"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(item) => write!(f, "map(string, {item})"),
            Self::Struct(of) => f.write_str(of.cel_type.name()),
        }
    }
}
