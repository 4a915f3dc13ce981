//! Values of flags, read as Go reads them.

use std::time::Duration;

use crate::Root;

/// The values that would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub &'static str);

/// A type that a flag can have.
pub(super) trait FlagValue: Sized {
    /// On or off: the value may be left out.
    const IS_SWITCH: bool = false;

    /// Reads the flag's value.
    fn parse(text: &str) -> Result<Self, BadValue>;

    /// The value as it would be written.
    fn show(&self) -> String;
}

/// A whole number of seconds. A negative number counts as zero: a grace period that is over at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(Duration);

impl Seconds {
    /// So many seconds.
    #[must_use]
    pub const fn new(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }
}

/// Which libvirt driver runs QEMU (`--libvirt`, not in KubeVirt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LibvirtMode {
    /// virtqemud where it is installed, else libvirtd.
    #[default]
    Auto,
    /// The modular daemon.
    Virtqemud,
    /// The monolithic daemon.
    Libvirtd,
    /// The driver inside this process: no daemon, no root.
    Embed,
}

impl FlagValue for bool {
    const IS_SWITCH: bool = true;

    /// `strconv.ParseBool`.
    fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err(BadValue("true or false is expected")),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl FlagValue for String {
    fn parse(text: &str) -> Result<Self, BadValue> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

macro_rules! whole_number {
    ($($type:ty)*) => {
        $(impl FlagValue for $type {
            fn parse(text: &str) -> Result<Self, BadValue> {
                text.parse().map_err(|_| NOT_WHOLE)
            }

            fn show(&self) -> String {
                self.to_string()
            }
        })*
    };
}

whole_number!(u8 u32 u64);

const NOT_WHOLE: BadValue = BadValue("a whole number is expected");

impl FlagValue for Seconds {
    fn parse(text: &str) -> Result<Self, BadValue> {
        let seconds: i64 = text.parse().map_err(|_| NOT_WHOLE)?;
        Ok(Self::new(u64::try_from(seconds).unwrap_or(0)))
    }

    fn show(&self) -> String {
        self.0.as_secs().to_string()
    }
}

impl FlagValue for Duration {
    fn parse(text: &str) -> Result<Self, BadValue> {
        duration(text)
    }

    fn show(&self) -> String {
        format!("{}s", self.as_secs_f64())
    }
}

impl FlagValue for Root {
    fn parse(text: &str) -> Result<Self, BadValue> {
        Ok(Self::of_user(text))
    }

    fn show(&self) -> String {
        self.dir().display().to_string()
    }
}

impl FlagValue for LibvirtMode {
    fn parse(text: &str) -> Result<Self, BadValue> {
        Ok(match text {
            "auto" => Self::Auto,
            "virtqemud" => Self::Virtqemud,
            "libvirtd" => Self::Libvirtd,
            "embed" => Self::Embed,
            _ => return Err(BadValue("virtqemud, libvirtd, embed or auto is expected")),
        })
    }

    fn show(&self) -> String {
        match self {
            Self::Auto => "auto",
            Self::Virtqemud => "virtqemud",
            Self::Libvirtd => "libvirtd",
            Self::Embed => "embed",
        }
        .to_owned()
    }
}

/// `time.ParseDuration`, without negative ones: `253s`, `1.5h`, `1h2m3s`, `300ms`, `0`.
fn duration(text: &str) -> Result<Duration, BadValue> {
    const WRONG: BadValue = BadValue("a duration such as 253s or 1h2m3s is expected");
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(WRONG);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| !c.is_ascii_digit() && c != '.');
        total += number.parse::<f64>().map_err(|_| WRONG)? * seconds(unit).ok_or(WRONG)?;
        rest = after;
    }
    let total = Duration::try_from_secs_f64(total).map_err(|_| WRONG)?;
    let is_known_to_go = i64::try_from(total.as_nanos()).is_ok();
    is_known_to_go.then_some(total).ok_or(WRONG)
}

/// The longest start of the text in which every character is of the kind, and the rest.
fn split(text: &str, kind: impl Fn(char) -> bool) -> (&str, &str) {
    let rest = text.trim_start_matches(kind);
    (text.strip_suffix(rest).unwrap_or(text), rest)
}

fn seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go() {
        for (text, milliseconds) in [
            ("0", 0),
            ("253s", 253_000),
            ("5m", 300_000),
            ("4m0s", 240_000),
            ("1h2m3s", 3_723_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("300ms", 300),
            ("+2s", 2_000),
            ("2000us", 2),
            ("2000µs", 2),
            ("3000000ns", 3),
        ] {
            assert_eq!(
                duration(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_go_refuses() {
        for text in [
            "",
            "+",
            "1",
            "1.5",
            "s",
            ".",
            ".s",
            "1x",
            "1 s",
            "-1s",
            "1s ",
            "1.2.3s",
            "99999999999h",
            "١s",
        ] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn seconds_below_zero_are_zero() {
        assert_eq!(Seconds::parse("-5"), Ok(Seconds::new(0)));
        assert_eq!(Seconds::parse("45"), Ok(Seconds::new(45)));
        assert!(Seconds::parse("4.5").is_err());
    }

    #[test]
    fn booleans_of_go() {
        assert_eq!(bool::parse("TRUE"), Ok(true));
        assert_eq!(bool::parse("f"), Ok(false));
        assert!(bool::parse("yes").is_err() && bool::parse("").is_err());
    }
}
