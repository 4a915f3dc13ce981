//! The domain and the VMI as CEL values. A value is converted only when an expression reads it:
//!
//! ```text
//!  domainSpec.Devices.Disks[0].Target.Dev
//!  └─ Object(Domain, <domain>)
//!             └─ Object(DomainDeviceList, <devices>)
//!                     └─ list of Object(DomainDisk, <disk>)  …
//! ```
//!
//! In KubeVirt the values are Go structs, so an absent field reads as its zero value, and `has()`
//! tells whether a field is set.

use std::any::Any;
use std::fmt::Debug;

use cel::ExecutionError;
use cel::common::traits::Indexer;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
    Type as CelType,
};
use cel::common::value::{CowVal, StaticVal, Val};

use super::schema::{Field, StructType, ValueType};

/// The checker adds this prefix to a field's name in `has()`, to ask whether the field is set.
pub const IS_SET_PREFIX: char = '?';

/// The part of a document that a struct is read from.
pub trait Data: Debug + Clone + PartialEq + Default + Send + Sync + 'static {
    /// The data of a field of the struct type `of`, for a field that is a struct; `None` if absent.
    fn member(&self, of: &'static StructType, field: &'static Field) -> Option<Self>;

    /// The data of each item of a list; `None` if the list is absent.
    fn items(&self, field: &'static Field) -> Option<Vec<Self>>;

    /// The value of a field that is neither a struct nor a list; `None` if absent.
    fn scalar(&self, field: &'static Field) -> Option<Box<dyn Val>>;

    /// This data as a value: an item of a list that is not of structs.
    fn as_scalar(&self, value_type: ValueType) -> Option<Box<dyn Val>>;
}

/// A struct of a schema, read from a document.
#[derive(Debug, Clone)]
pub struct Object<D> {
    pub of: &'static StructType,
    /// The data that the fields are read from.
    pub data: D,
}

impl<D: Data> Object<D> {
    /// The field `name`, and the object that has it: this one or an embedded struct. An absent
    /// embedded struct is `None`.
    fn owner(&self, name: &str) -> Result<(Option<Self>, &'static Field), ExecutionError> {
        let path = self
            .of
            .find(name)
            .ok_or_else(|| ExecutionError::no_such_key(name))?;
        let mut embedded = path.embedded.iter();
        let owner = embedded.try_fold(self.clone(), |object, field| object.member(field));
        Ok((owner, path.field))
    }

    fn member(&self, field: &'static Field) -> Option<Self> {
        Some(Self {
            of: field.struct_type()?,
            data: self.data.member(self.of, field)?,
        })
    }

    /// The value of a field that this struct itself declares; `None` if absent.
    fn value(&self, field: &'static Field) -> Option<Box<dyn Val>> {
        let of = field.struct_type();
        if field.is_list {
            let items = self.data.items(field)?.into_iter();
            let values = items.filter_map(|data| match of {
                Some(of) => Some(Box::new(Self { of, data }) as Box<dyn Val>),
                None => data.as_scalar(field.value_type),
            });
            return Some(Box::new(CelList::from(values.collect::<Vec<_>>())));
        }
        match of {
            Some(_) => self
                .member(field)
                .map(|member| Box::new(member) as Box<dyn Val>),
            None => self.data.scalar(field),
        }
    }

    /// Whether a field that this struct itself declares is set: a pointer or list if it is present,
    /// another Go type if it is not zero.
    fn is_set(&self, field: &'static Field) -> bool {
        let is_struct = field.struct_type().is_some() && !field.is_list;
        if is_struct && (field.is_embedded() || !field.is_pointer) {
            let member = self.member(field);
            return member
                .is_some_and(|member| member.of.fields.iter().any(|field| member.is_set(field)));
        }
        self.value(field)
            .is_some_and(|value| field.is_pointer || field.is_list || !is_zero(field, &*value))
    }
}

fn is_zero(field: &Field, value: &dyn Val) -> bool {
    let has_zero = matches!(
        field.value_type,
        ValueType::String | ValueType::Int | ValueType::Uint | ValueType::Bool | ValueType::Double
    );
    has_zero && value.as_zeroer().is_some_and(|value| value.is_zero_value())
}

/// The value of an absent field.
fn zero<D: Data>(field: &'static Field) -> Box<dyn Val> {
    if field.is_list {
        return Box::new(CelList::from(Vec::new()));
    }
    match field.value_type {
        ValueType::Struct(_) => match field.struct_type() {
            Some(of) => Box::new(Object {
                of,
                data: D::default(),
            }),
            None => Box::new(CelNull),
        },
        ValueType::String => Box::new(CelString::from("")),
        ValueType::Timestamp => Box::new(CelString::from("1970-01-01T00:00:00Z")),
        ValueType::Int => Box::new(CelInt::from(0)),
        ValueType::Uint => Box::new(CelUInt::from(0)),
        ValueType::Bool => Box::new(CelBool::from(false)),
        ValueType::Double => Box::new(CelDouble::from(0.0)),
        ValueType::Map | ValueType::Any => Box::new(CelMap::from(std::collections::HashMap::<
            CelMapKey<'_>,
            Box<dyn Val>,
        >::new())),
    }
}

/// `Val::cel_type` returns this for all objects, although their types differ. The library reads it
/// only for the types in a function's declaration, and no function declares these.
pub(super) static OBJECT_TYPE: CelType = CelType::new_struct_type("object");

impl<D: Data> Val for Object<D> {
    fn get_type(&self) -> &CelType {
        &self.of.cel_type
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
            .is_some_and(|other| self.of == other.of && self.data == other.data)
    }
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
impl<D: Data> StaticVal for Object<D> {}

impl<D: Data> Indexer for Object<D> {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let name = index
            .downcast_ref::<CelString<'_>>()
            .ok_or_else(|| ExecutionError::no_such_key("a field name is a string"))?
            .inner();
        if let Some(name) = name.strip_prefix(IS_SET_PREFIX) {
            let (owner, field) = self.owner(name)?;
            // The library's `has()` turns this error into `false`.
            return match owner.is_some_and(|owner| owner.is_set(field)) {
                true => Ok(CowVal::owned(CelBool::from(true))),
                false => Err(ExecutionError::no_such_key(name)),
            };
        }
        let (owner, field) = self.owner(name)?;
        let value = owner.and_then(|owner| owner.value(field));
        Ok(CowVal::Owned(value.unwrap_or_else(|| zero::<D>(field))))
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}
