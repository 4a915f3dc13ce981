//! Go-named JSON: what virt-handler decodes (docs/contract.md §6).

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// How Go's encoder shows a value: an empty list is null, an absent pointer is null, text and
/// numbers are always there.
pub trait Json {
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
impl Json for String {
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self)
    }
}
impl<T: Json> Json for Option<T> {
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(value) => value.json(s),
            None => s.serialize_none(),
        }
    }
}
impl<T: Json> Json for Box<T> {
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (**self).json(s)
    }
}
impl<T: Json> Json for Vec<T> {
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if self.is_empty() {
            s.serialize_none()
        } else {
            s.collect_seq(self.iter().map(Go))
        }
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
