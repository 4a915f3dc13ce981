//! Compares `vmi.txt` with [`api`]: the table has the JSON name of each field that is read.

use std::cell::RefCell;

use api::vmi::Vmi;
use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::super::{Field, Location, StructType, vmi};

/// A deserializer that gives every field a value and records all fields' paths.
#[derive(Clone)]
struct Recorder<'r> {
    path: Vec<&'static str>,
    fields: &'r RefCell<Vec<Vec<&'static str>>>,
}

/// Gives the deserializer one value of a list or map, or all fields of a struct.
struct Members<'r> {
    recorder: Recorder<'r>,
    names: &'static [&'static str],
    next: usize,
}

impl<'de> SeqAccess<'de> for Members<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.next += 1;
        match self.next {
            1 => seed.deserialize(self.recorder.clone()).map(Some),
            _ => Ok(None),
        }
    }
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.get(self.next) else {
            return Ok(None);
        };
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let mut recorder = self.recorder.clone();
        recorder.path.extend(self.names.get(self.next));
        self.next += 1;
        seed.deserialize(recorder)
    }
}

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("1")
    }
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }
    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i64(1)
    }
    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(1)
    }
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(1.0)
    }
    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i32(1)
    }
    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u32(1)
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Members {
            recorder: self,
            names: &[],
            next: 0,
        })
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        for name in names {
            let mut path = self.path.clone();
            path.push(name);
            self.fields.borrow_mut().push(path);
        }
        visitor.visit_map(Members {
            recorder: self,
            names,
            next: 0,
        })
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        // A map's keys are not fields.
        visitor.visit_map(Members {
            recorder: self,
            names: &[],
            next: 0,
        })
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }
    serde::forward_to_deserialize_any! {
        i8 i16 u8 u16 f32 char str string bytes byte_buf unit unit_struct tuple tuple_struct
        enum identifier ignored_any
    }
}

/// Finds a field by its JSON name.
fn find(of: &'static StructType, json_name: &str) -> Option<&'static Field> {
    let own = of.fields.iter().find(|field| match &field.location {
        Location::Element(path) => path.last() == Some(&json_name),
        Location::Embedded(Some(member)) => *member == json_name,
        _ => false,
    });
    own.or_else(|| {
        let inline = of
            .fields
            .iter()
            .filter(|field| field.location == Location::Embedded(None));
        inline
            .filter_map(|field| field.struct_type())
            .find_map(|of| find(of, json_name))
    })
}

fn is_known(path: &[&'static str]) -> bool {
    let mut of = vmi().get("VirtualMachineInstance");
    path.iter().all(|name| {
        let field = of.and_then(|of| find(of, name));
        of = field.and_then(|field| field.struct_type());
        field.is_some()
    })
}

#[test]
fn the_table_has_every_field_that_the_launcher_reads() {
    let fields = RefCell::default();
    let recorder = Recorder {
        path: Vec::new(),
        fields: &fields,
    };
    Vmi::deserialize(recorder).unwrap();
    let fields = fields.into_inner();
    assert!(fields.len() > 200, "{} fields", fields.len());
    let unknown: Vec<_> = fields
        .iter()
        .filter(|path| !is_known(path))
        .map(|path| path.join("."))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
