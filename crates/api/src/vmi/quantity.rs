//! Kubernetes quantities (`1.5Gi`, `100m`) and values that are a number or a text.
//!
//! The value of a quantity follows the API server's arithmetic
//! (<https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>) in its edge
//! cases too, because sizes in the domain depend on it: a quantity is stored either exactly, as a
//! short number with a decimal exponent, or, when it has many digits or a binary suffix on a
//! fraction, as a number of billionths, rounded up.

use serde::de::{Deserialize, Deserializer, Visitor};

/// A quantity as written, e.g. `1.5Gi`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Quantity(pub String);

/// A factor or fraction: a number, or a quantity such as `400m`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Factor {
    /// Written as a JSON number.
    Number(f64),
    /// Written as a quantity.
    Quantity(f64),
}

/// A number or a text, such as a port or a page size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntOrString(pub String);

/// Why a text is not a quantity, or not one that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a suffix.
    #[error(
        "{0:?} is not a quantity: expected a number with one of the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
    )]
    Malformed(String),
    /// More digits than any resource has.
    #[error("{0:?} is too large for a quantity")]
    TooLarge(String),
    /// A size below zero; also one that is so large that it wraps around.
    #[error("the size {0:?} must be at least 0 and below 2^63")]
    NegativeSize(String),
}

/// Digits that the exact form holds.
const EXACT_DIGITS: i32 = 18;
/// The smallest unit: ten to this power.
const NANO: i32 = -9;
const BILLION: i128 = 1_000_000_000;

/// What a quantity is worth: `number` times ten to the power of `scale`.
#[derive(Debug, Clone, Copy)]
struct Amount {
    number: i128,
    scale: i32,
    /// Stored as written, so that an integer can be recognized.
    exact: bool,
}

/// What a suffix stands for.
enum Suffix {
    Binary(u32),
    Decimal(i32),
}

impl Quantity {
    /// Its value, rounded up. What does not fit wraps around or becomes 0, as for the API server.
    ///
    /// # Errors
    /// When the text is not a quantity.
    pub fn value(&self) -> Result<i64, QuantityError> {
        self.amount().map(Amount::value)
    }

    /// A thousand times its value, rounded up, as CPUs are compared.
    ///
    /// # Errors
    /// When the text is not a quantity.
    pub fn thousandths(&self) -> Result<i64, QuantityError> {
        let amount = self.amount()?;
        let scale = amount.scale.saturating_add(3);
        Ok(Amount { scale, ..amount }.value())
    }

    /// Its value if it is an integer that is stored exactly; `1.5Gi`, although whole, is not.
    ///
    /// # Errors
    /// When the text is not a quantity.
    pub fn as_integer(&self) -> Result<Option<i64>, QuantityError> {
        self.amount().map(Amount::as_integer)
    }

    /// Its value as a size in bytes. What is not stored exactly loses one byte, as in
    /// the reference: a fraction such as `1.5Gi`, and whatever is capped at 2^63 - 1.
    ///
    /// # Errors
    /// When the text is not a quantity, or a negative one.
    pub fn bytes(&self) -> Result<u64, QuantityError> {
        let amount = self.amount()?;
        let bytes = amount
            .as_integer()
            .unwrap_or_else(|| amount.value().wrapping_sub(1));
        u64::try_from(bytes).map_err(|_| QuantityError::NegativeSize(self.0.clone()))
    }

    /// Whether both have the same value, however they are written.
    ///
    /// # Errors
    /// When one of the texts is not a quantity.
    pub fn equals(&self, other: &Self) -> Result<bool, QuantityError> {
        Ok(self.amount()?.reduced() == other.amount()?.reduced())
    }

    // D-conv-2 (docs/differences.md).
    fn amount(&self) -> Result<Amount, QuantityError> {
        let malformed = || QuantityError::Malformed(self.0.clone());
        let text = self.0.trim();
        if text.is_empty() {
            return Err(malformed());
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = split_digits(unsigned.trim_start_matches('0'));
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let suffix = Suffix::parse(suffix).ok_or_else(malformed)?;
        let amount = exact(whole, fraction, &suffix).or_else(|| rounded(whole, fraction, &suffix));
        let mut amount = amount.ok_or_else(|| QuantityError::TooLarge(self.0.clone()))?;
        if negative {
            amount.number = -amount.number;
        }
        Ok(amount)
    }
}

/// The leading digits, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.find(|c: char| !c.is_ascii_digit())
        .and_then(|end| text.split_at_checked(end))
        .unwrap_or((text, ""))
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" => Self::Decimal(0),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => Self::Decimal(text.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// All digits as one number; `None` when they are too many.
fn digits(whole: &str, fraction: &str) -> Option<i128> {
    whole
        .bytes()
        .chain(fraction.bytes())
        .try_fold(0_i128, |number, digit| {
            number
                .checked_mul(10)?
                .checked_add(i128::from(digit.wrapping_sub(b'0')))
        })
}

/// The exact form, for numbers that are short enough to certainly fit.
fn exact(whole: &str, fraction: &str, suffix: &Suffix) -> Option<Amount> {
    let (whole_len, fraction_len) = (
        i32::try_from(whole.len().max(1)).ok()?,
        i32::try_from(fraction.len()).ok()?,
    );
    let (number, scale) = match *suffix {
        Suffix::Decimal(exponent) if whole_len + fraction_len <= EXACT_DIGITS => (
            digits(whole, fraction)?,
            exponent.checked_sub(fraction_len)?,
        ),
        // A binary suffix is worth three digits for each ten bits.
        Suffix::Binary(bits)
            if fraction.is_empty() && 14 - whole_len >= i32::try_from(bits * 3 / 10).ok()? =>
        {
            (digits(whole, fraction)? << bits, 0)
        }
        _ => return None,
    };
    (scale >= NANO).then_some(Amount {
        number,
        scale,
        exact: true,
    })
}

/// The form for all others: billionths, rounded up; with a binary suffix at most 2^63 - 1.
fn rounded(whole: &str, fraction: &str, suffix: &Suffix) -> Option<Amount> {
    let fraction_len = i32::try_from(fraction.len()).ok()?;
    let billionths = match *suffix {
        Suffix::Decimal(exponent) => scaled(
            digits(whole, fraction)?,
            exponent.checked_sub(fraction_len)?.checked_sub(NANO)?,
        )?,
        Suffix::Binary(bits) => {
            let number = digits(whole, fraction).and_then(|number| number.checked_mul(1 << bits));
            let billionths = number.and_then(|number| scaled(number, -fraction_len - NANO));
            match billionths {
                Some(billionths) if billionths <= i128::from(i64::MAX) * BILLION => billionths,
                _ => {
                    return Some(Amount {
                        number: i64::MAX.into(),
                        scale: 0,
                        exact: false,
                    });
                }
            }
        }
    };
    let scale = if billionths == 0 { 0 } else { NANO };
    Some(Amount {
        number: billionths,
        scale,
        exact: false,
    })
}

/// `number` times ten to the power of `exponent`, rounded up; `number` is not negative.
fn scaled(number: i128, exponent: i32) -> Option<i128> {
    match 10_i128.checked_pow(exponent.unsigned_abs()) {
        Some(factor) if exponent >= 0 => number.checked_mul(factor),
        Some(divisor) => Some(number / divisor + i128::from(number % divisor != 0)),
        None if number == 0 => Some(0),
        None if exponent < 0 => Some(1),
        None => None,
    }
}

/// The low 64 bits.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the wrap-around is the rule"
)]
fn low(number: i128) -> i64 {
    number as i64
}

impl Amount {
    fn as_integer(self) -> Option<i64> {
        if !self.exact || self.scale < 0 {
            return None;
        }
        let factor = 10_i128.checked_pow(self.scale.unsigned_abs());
        match factor.and_then(|factor| self.number.checked_mul(factor)) {
            Some(number) => i64::try_from(number).ok(),
            None => (self.number == 0).then_some(0),
        }
    }

    fn value(self) -> i64 {
        if self.scale >= 0 {
            return if self.exact {
                self.as_integer().unwrap_or(0)
            } else {
                low(self.number)
            };
        }
        let divisor = 10_i128
            .checked_pow(self.scale.unsigned_abs())
            .unwrap_or(i128::MAX);
        if self.exact {
            // Away from zero.
            return low(self.number / divisor
                + i128::from(self.number % divisor != 0) * self.number.signum());
        }
        if self.number < i128::from(i64::MAX) {
            let number = i128::from(low(self.number));
            return low(number / divisor + i128::from(number % divisor != 0));
        }
        low(self.number / divisor + i128::from(self.number % divisor != 0))
    }

    /// Exact for what has few digits, as a factor does.
    #[allow(clippy::cast_precision_loss, reason = "it is approximate")]
    fn approximate(self) -> f64 {
        let power = 10_f64.powi(self.scale.saturating_abs());
        if self.scale < 0 {
            self.number as f64 / power
        } else {
            self.number as f64 * power
        }
    }

    /// The canonical form: the same for all quantities of one value.
    fn reduced(mut self) -> (i128, i32) {
        if self.number == 0 {
            return (0, 0);
        }
        while self.number % 10 == 0 {
            self.number /= 10;
            self.scale = self.scale.saturating_add(1);
        }
        (self.number, self.scale)
    }
}

struct AnyText;
impl Visitor<'_> for AnyText {
    type Value = String;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a text or a number")
    }
    fn visit_str<E>(self, v: &str) -> Result<String, E> {
        Ok(v.into())
    }
    fn visit_i64<E>(self, v: i64) -> Result<String, E> {
        Ok(format!("{v}"))
    }
    fn visit_u64<E>(self, v: u64) -> Result<String, E> {
        Ok(format!("{v}"))
    }
    fn visit_f64<E>(self, v: f64) -> Result<String, E> {
        Ok(format!("{v}"))
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(AnyText).map(Self)
    }
}

impl Default for Factor {
    fn default() -> Self {
        Self::Number(0.0)
    }
}

impl Factor {
    /// What it is worth.
    #[must_use]
    pub fn value(self) -> f64 {
        match self {
            Self::Number(value) | Self::Quantity(value) => value,
        }
    }
}

impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(d)? {
            Written::Number(value) => Ok(Self::Number(value)),
            Written::Text(text) => {
                let amount = Quantity(text).amount().map_err(serde::de::Error::custom)?;
                Ok(Self::Quantity(amount.approximate()))
            }
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(AnyText).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity(text.into())
    }

    #[test]
    fn values_round_up() {
        for (text, value) in [
            ("0", 0),
            ("2", 2),
            ("100m", 1),
            ("1500m", 2),
            ("-1500m", -2),
            ("1.5Gi", 1_610_612_736),
            ("1Gi", 1 << 30),
            ("1e3", 1000),
            ("12E", 0),
            ("8Ei", i64::MAX),
            ("9223372036854775807", i64::MAX),
            ("18446744073709551615", -1),
            ("1e30", 0),
            ("0.0000000001", 1),
        ] {
            assert_eq!(q(text).value(), Ok(value), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_not_kept_exactly_lose_one_byte() {
        for (text, bytes) in [
            ("1Gi", 1 << 30),
            ("1.5Gi", 1_610_612_735),
            ("100m", 0),
            ("64M", 64_000_000),
            ("9223372036854775807", i64::MAX as u64 - 1),
            ("8Ei", i64::MAX as u64 - 1),
            ("128974848", 128_974_848),
        ] {
            assert_eq!(q(text).bytes(), Ok(bytes), "{text}");
        }
        for text in ["-1", "18446744073709551615", "12E"] {
            assert_eq!(
                q(text).bytes(),
                Err(QuantityError::NegativeSize(text.into())),
                "{text}"
            );
        }
    }

    #[test]
    fn only_exact_integers_are_integers() {
        assert_eq!(q("5Gi").as_integer(), Ok(Some(5 << 30)));
        assert_eq!(q("5k").as_integer(), Ok(Some(5000)));
        assert_eq!(q("1.5k").as_integer(), Ok(Some(1500)));
        assert_eq!(q("1.5Gi").as_integer(), Ok(None));
        assert_eq!(q("100m").as_integer(), Ok(None));
    }

    #[test]
    fn equal_is_by_worth() {
        assert_eq!(q("1024Mi").equals(&q("1Gi")), Ok(true));
        assert_eq!(q("1.5Gi").equals(&q("1536Mi")), Ok(true));
        assert_eq!(q("1k").equals(&q("1Ki")), Ok(false));
        assert_eq!(q("0").equals(&q("0.0")), Ok(true));
    }

    #[test]
    // D-conv-2 (docs/differences.md).
    fn what_is_no_quantity_is_refused() {
        for text in ["", "x", "1GiB", "1.2.3", "1e", "--1", "1 Gi", "1e1.5"] {
            assert_eq!(
                q(text).value(),
                Err(QuantityError::Malformed(text.into())),
                "{text}"
            );
        }
        let many = "9".repeat(50);
        assert_eq!(
            q(&many).value(),
            Err(QuantityError::TooLarge(many.as_str().into()))
        );
        assert_eq!(q(&format!("{many}Ei")).value(), Ok(i64::MAX));
    }
}
