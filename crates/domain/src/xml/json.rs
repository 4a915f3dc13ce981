//! Go-named JSON: what virt-handler decodes (docs/contract.md §6), and back.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// How Go's encoder shows a value: an empty list is null, an absent pointer is null, text and
/// numbers are always there.
pub trait Json: Sized {
    /// Reads the value; `None` if it is of another type.
    fn from_json(value: &Value) -> Option<Self>;
    /// Writes the value.
    ///
    /// # Errors
    /// Those of the serializer.
    fn json<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

/// Lends a [`Json`] value to serde.
#[derive(Debug)]
pub struct Go<'a, T>(pub &'a T);

impl<T: Json> Serialize for Go<'_, T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.json(s)
    }
}
macro_rules! as_in_serde {
    ($($type:ty)*) => {$(
        impl Json for $type {
            fn from_json(value: &Value) -> Option<Self> {
                Self::deserialize(value).ok()
            }

            fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                self.serialize(s)
            }
        }
    )*};
}

as_in_serde!(String bool u32 u64 i32 i64);
impl<T: Json> Json for Option<T> {
    fn from_json(value: &Value) -> Option<Self> {
        T::from_json(value).map(Some)
    }
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => value.json(s),
            None => s.serialize_none(),
        }
    }
}
impl<T: Json> Json for Box<T> {
    fn from_json(value: &Value) -> Option<Self> {
        T::from_json(value).map(Self::new)
    }
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (**self).json(s)
    }
}
impl<T: Json> Json for Vec<T> {
    fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_json).collect()
    }
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.is_empty() {
            s.serialize_none()
        } else {
            s.collect_seq(self.iter().map(Go))
        }
    }
}

/// The value of an object's key; the empty value if the key is missing or null.
pub(crate) fn member<T: Json + Default>(object: &Value, key: &str) -> Option<T> {
    match object.get(key) {
        None | Some(Value::Null) => Some(T::default()),
        Some(value) => T::from_json(value),
    }
}

/// For serde's `deserialize_with`: null is the empty value, as in Go.
pub(crate) fn or_default<'de, T, D>(d: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Option::deserialize(d).map(Option::unwrap_or_default)
}

/// For serde's `with`: a [`Json`] value inside a type that serde derives.
pub(crate) mod go {
    use super::{Deserialize, Deserializer, Go, Json, Serialize, Serializer, Value};
    use serde::de::Error;

    pub fn serialize<T: Json, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        Go(value).serialize(s)
    }

    pub fn deserialize<'de, T: Json, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
        let value = Value::deserialize(d)?;
        T::from_json(&value).ok_or_else(|| D::Error::custom("not as KubeVirt's Domain has it"))
    }
}

/// Go's `xml.Name` of an element without a namespace.
#[derive(Debug)]
pub struct XmlName(pub &'static str);

impl Serialize for XmlName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Name", 2)?;
        out.serialize_field("Space", "")?;
        out.serialize_field("Local", self.0)?;
        out.end()
    }
}
