//! Random values of every type that can be read: a serde deserializer that makes up what it is
//! asked for. New fields of the VMI and the context take part without a word here; where a field's
//! values mean something, [`words`](crate::words) knows some of them by the name of the field.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};

/// Numbers that look random but follow from a seed.
pub struct Random {
    state: u64,
    /// One value in so many is not one of the sensible ones.
    wildness: u64,
    /// One optional field in so many is there.
    sparseness: u64,
    /// Place of the item in its list, for lists whose items have different names.
    place: usize,
}

impl Random {
    /// The generator of that seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1,
            wildness: 1,
            sparseness: 1,
            place: 0,
        };
        random.wildness = [1_000_000, 1_000_000, 500, 40][random.below(4)];
        random.sparseness = [2, 3, 5, 9][random.below(4)];
        random
    }

    /// A value of that type.
    pub fn value<T: DeserializeOwned>(&mut self) -> T {
        T::deserialize(Value {
            random: self,
            field: "",
            parent: "",
        })
        .expect("what is made up is always of the right kind")
    }

    fn next(&mut self) -> u64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    fn wild(&mut self) -> bool {
        let wildness = self.wildness;
        self.one_in(wildness)
    }

    /// Small numbers mostly.
    fn integer(&mut self) -> u64 {
        if self.wild() {
            return match self.below(4) {
                0 => u64::MAX,
                1 => i64::MAX as u64,
                2 => u64::from(u32::MAX),
                _ => self.next(),
            };
        }
        [0, 1, 1, 2, 2, 3, 4, 8, 512, 4096][self.below(10)]
    }

    fn text(&mut self, field: &str, parent: &str) -> String {
        if self.wild() {
            const ODD: [&str; 8] = [
                "",
                " ",
                "<&>\"'",
                "ä\u{1F600}",
                "a\nb\tc",
                "0",
                "-1",
                "x/../y",
            ];
            return ODD[self.below(ODD.len())].to_owned();
        }
        let words = crate::words::of(field, parent);
        let at = if crate::words::in_turn(field, parent) {
            self.place % words.len()
        } else {
            self.below(words.len())
        };
        words[at].to_owned()
    }
}

/// The next value: what it is asked to be.
struct Value<'r> {
    random: &'r mut Random,
    /// Name of the field that it is for, and of the field around that.
    field: &'static str,
    parent: &'static str,
}

macro_rules! integers {
    ($($method:ident $visit:ident $t:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
            visitor.$visit(self.random.integer() as $t)
        }
    )*};
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Error;

    integers!(
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64
    );

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = match crate::words::truth(self.field) {
            Some(likely) => likely != self.random.one_in(12),
            None => self.random.one_in(2),
        };
        visitor.visit_bool(value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let sparseness = self.random.sparseness;
        let there = crate::words::always(self.field, self.parent) || self.random.one_in(sparseness);
        if there {
            visitor.visit_some(self)
        } else {
            visitor.visit_none()
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.random.text(self.field, self.parent))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = crate::words::many(self.field).unwrap_or_else(|| self.random.below(4));
        visitor.visit_seq(Items {
            value: self,
            left,
            place: 0,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = crate::words::many(self.field).unwrap_or_else(|| self.random.below(5));
        visitor.visit_map(Entries { value: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // One source, one binding, one kind of device: what excludes each other is chosen from.
        let chosen = crate::words::exclusive(fields)
            .map(|choices| choices[self.random.below(choices.len())]);
        visitor.visit_map(Members {
            value: Value {
                parent: self.field,
                ..self
            },
            all: fields,
            fields,
            chosen,
        })
    }

    serde::forward_to_deserialize_any! {
        f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any i128 u128
    }
}

/// The members of an object, in their order.
struct Members<'r> {
    value: Value<'r>,
    all: &'static [&'static str],
    fields: &'static [&'static str],
    chosen: Option<&'static str>,
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((&field, rest)) = self.fields.split_first() else {
            return Ok(None);
        };
        self.fields = rest;
        // Another name of the same field, as in Go.
        let name = field.replace('_', "");
        if name != field && self.all.iter().any(|it| it.eq_ignore_ascii_case(&name)) {
            return self.next_key_seed(seed);
        }
        let excluded =
            crate::words::is_exclusive(field) && self.chosen.is_some_and(|chosen| chosen != field);
        if excluded && !self.value.random.wild() {
            return self.next_key_seed(seed);
        }
        self.value.field = field;
        let key: StrDeserializer<'_, Error> = field.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Value {
            random,
            field,
            parent,
        } = &mut self.value;
        seed.deserialize(Value {
            random,
            field,
            parent,
        })
    }
}

/// The items of a list.
struct Items<'r> {
    value: Value<'r>,
    left: usize,
    place: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let Value {
            random,
            field,
            parent,
        } = &mut self.value;
        random.place = self.place;
        self.place += 1;
        seed.deserialize(Value {
            random,
            field,
            parent,
        })
        .map(Some)
    }
}

/// The entries of a map.
struct Entries<'r> {
    value: Value<'r>,
    left: usize,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let keys = crate::words::keys(self.value.field);
        let key: StrDeserializer<'_, Error> =
            keys[self.value.random.below(keys.len())].into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let Value {
            random,
            field,
            parent,
        } = &mut self.value;
        seed.deserialize(Value {
            random,
            field,
            parent,
        })
    }
}
