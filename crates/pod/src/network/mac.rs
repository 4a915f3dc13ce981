//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address, written as `02:00:00:00:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacAddress(pub [u8; 6]);

/// The text is not a 48-bit MAC address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not six hexadecimal octets such as 02:00:00:00:00:01")]
pub struct InvalidMac;

/// The forms that KubeVirt admits in a VMI: `02:00:00:00:00:01`, `02-00-00-00-00-01` and
/// `0200.0000.0001`.
impl FromStr for MacAddress {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let (separator, digits) = match text.as_bytes().get(2) {
            Some(b':') => (':', 2),
            Some(b'-') => ('-', 2),
            _ => ('.', 4),
        };
        let groups: Vec<&str> = text.split(separator).collect();
        if groups.len() * digits != 12 || groups.iter().any(|group| group.len() != digits) {
            return Err(InvalidMac);
        }
        let hex = groups.concat();
        let mut octets = [0; 6];
        for (octet, pair) in octets.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *octet = match pair {
                [high, low] => digit(*high)? << 4 | digit(*low)?,
                _ => return Err(InvalidMac),
            };
        }
        Ok(Self(octets))
    }
}

fn digit(character: u8) -> Result<u8, InvalidMac> {
    char::from(character)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
        .ok_or(InvalidMac)
}

impl MacAddress {
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl TryFrom<&[u8]> for MacAddress {
    type Error = InvalidMac;

    fn try_from(octets: &[u8]) -> Result<Self, InvalidMac> {
        octets.try_into().map(Self).map_err(|_| InvalidMac)
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_one_address() {
        for text in ["02:00:00:aA:0b:01", "02-00-00-AA-0b-01", "0200.00aa.0b01"] {
            assert_eq!(
                text.parse::<MacAddress>().map(|mac| mac.to_string()),
                Ok("02:00:00:aa:0b:01".to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_an_address_is_refused() {
        for text in [
            "",
            "02:00:00",
            "02:00:00:00:00:0",
            "02:00:00:00:00:00:00:00",
            "02:00-00:00:00:00",
            "0g:00:00:00:00:00",
            "0200000000aa",
        ] {
            assert_eq!(text.parse::<MacAddress>(), Err(InvalidMac), "{text}");
        }
        for text in ["+2:00:00:00:00:00", "é:00:00:00:00:00", "0200.0000.000é"] {
            assert_eq!(text.parse::<MacAddress>(), Err(InvalidMac), "{text}");
        }
    }
}
