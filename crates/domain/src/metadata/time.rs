//! Times in metadata.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::fmt::strtime;
use serde::Serializer;

use crate::xml::{Json, Value, ValueError, quoted};

/// A point in time: in XML with all its digits, in JSON to the second, always UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time(pub Timestamp);

impl Time {
    #[must_use]
    pub fn now() -> Self {
        Self(Timestamp::now())
    }

    /// As a part of file names, in UTC: `2026-01-02_03-04-05`.
    #[must_use]
    pub fn to_file_name(self) -> String {
        // A format that is right does not fail.
        strtime::format("%Y-%m-%d_%H-%M-%S", self.0).unwrap_or_default()
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub fn as_second(self) -> i64 {
        self.0.as_second()
    }
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl FromStr for Time {
    type Err = jiff::Error;

    /// Takes RFC 3339.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl Value for Time {
    fn write(&self, out: &mut String) {
        use std::fmt::Write;
        // Writing to a String cannot fail.
        let _ = write!(out, "{}", self.0);
    }
    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .map_err(|_| ValueError::Time { text: quoted(text) })
    }
    fn is_absent(&self) -> bool {
        false
    }
}

impl Json for Time {
    fn from_json(value: &serde_json::Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
    fn json<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match strtime::format("%Y-%m-%dT%H:%M:%SZ", self.0) {
            Ok(text) => s.serialize_str(&text),
            Err(e) => Err(serde::ser::Error::custom(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::Go;

    #[test]
    fn times_are_shown_in_utc() {
        let time = Time::parse("2026-01-02T05:04:05.25+02:00").unwrap();
        let mut xml = String::new();
        time.write(&mut xml);
        assert_eq!(xml, "2026-01-02T03:04:05.25Z");
        assert_eq!(
            serde_json::to_string(&Go(&time)).unwrap(),
            "\"2026-01-02T03:04:05Z\""
        );
    }

    #[test]
    fn times_are_parts_of_file_names() {
        let time = Time::parse("2026-01-02T05:04:05.75+02:00").unwrap();
        assert_eq!(time.to_file_name(), "2026-01-02_03-04-05");
        assert_eq!(time.as_second(), 1_767_323_045);
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in ["", "yesterday", "2026-01-02", "1767322800"] {
            assert!(Time::parse(text).is_err(), "{text:?}");
        }
    }
}
