//! Values: what an attribute or a text holds. They are read as Go's decoder reads them, so that a
//! document which the reference takes is taken here and means the same.

use std::fmt::Write;

use super::error::{ValueError, quoted};
use super::escape::escape;

/// A value held in an attribute or in text.
pub trait Value: Default {
    /// Appends the value, escaped.
    fn write(&self, out: &mut String);
    /// Reads the value from unescaped text.
    ///
    /// # Errors
    /// The text is not such a value. The error does not say where the text stands.
    fn parse(text: &str) -> Result<Self, ValueError>;
    /// Whether an optional attribute or element with this value is left out.
    fn is_absent(&self) -> bool;
}

impl Value for String {
    fn write(&self, out: &mut String) {
        escape(self, out);
    }
    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(text.into())
    }
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

/// Whole numbers: spaces around them do not count, and nothing at all is zero. Only signed ones may
/// have a sign.
macro_rules! number {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn write(&self, out: &mut String) {
                // Writing to a String cannot fail.
                let _ = write!(out, "{self}");
            }
            fn parse(text: &str) -> Result<Self, ValueError> {
                if text.is_empty() {
                    return Ok(0);
                }
                let digits = text.trim();
                let parsed = if Self::MIN == 0 && digits.starts_with('+') { None } else { digits.parse().ok() };
                parsed.ok_or_else(|| ValueError::Number { text: quoted(text), min: Self::MIN.into(), max: Self::MAX.into() })
            }
            fn is_absent(&self) -> bool {
                *self == 0
            }
        }
    )*};
}
number!(u32, u64, i32, i64);

impl Value for bool {
    fn write(&self, out: &mut String) {
        out.push_str(if *self { "true" } else { "false" });
    }
    fn parse(text: &str) -> Result<Self, ValueError> {
        match text.trim() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            "" if text.is_empty() => Ok(false),
            _ => Err(ValueError::Bool { text: quoted(text) }),
        }
    }
    fn is_absent(&self) -> bool {
        !self
    }
}
/// Present or not, where a zero has a meaning of its own.
impl<T: Value> Value for Option<T> {
    fn write(&self, out: &mut String) {
        self.iter().for_each(|value| value.write(out));
    }
    fn parse(text: &str) -> Result<Self, ValueError> {
        T::parse(text).map(Some)
    }
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        assert_eq!(u32::parse("\n 12\t").unwrap(), 12);
        assert_eq!(u64::parse("").unwrap(), 0);
        assert_eq!(i64::parse("-3").unwrap(), -3);
        assert_eq!(i32::parse("+3").unwrap(), 3);
        assert_eq!(Option::<u64>::parse("").unwrap(), Some(0));
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "+3",
            "-1",
            " ",
            "1.0",
            "0x10",
            "1_000",
            "12 34",
            "4294967296",
            "١",
        ] {
            assert!(u32::parse(text).is_err(), "{text:?}");
        }
        assert!(i32::parse("2147483648").is_err());
        assert_eq!(
            u32::parse("many").unwrap_err().to_string(),
            "\"many\" is not a whole number from 0 to 4294967295"
        );
    }

    #[test]
    fn truth_has_gos_spellings() {
        assert!(
            [" true ", "1", "T", "TRUE"]
                .iter()
                .all(|text| bool::parse(text).unwrap())
        );
        assert!(
            ["false", "0", "F", ""]
                .iter()
                .all(|text| !bool::parse(text).unwrap())
        );
        assert_eq!(
            bool::parse("yes").unwrap_err().to_string(),
            "\"yes\" is neither true nor false"
        );
        assert!(bool::parse(" ").is_err());
    }

    #[test]
    fn a_long_value_does_not_fill_the_log() {
        let error = u32::parse(&"x".repeat(1 << 20)).unwrap_err().to_string();
        assert!(error.len() < 200, "{}", error.len());
    }
}
