//! PCI addresses: as sysfs, libvirt's errors and the VMI write them (`0000:81:11.1`), and as four
//! attributes of `<address>`.

use super::address::{Address, AddressType};
use std::fmt;
use std::str::FromStr;

/// Where a device is on the PCI buses of a machine, host or guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain; host bridges of some machines have large numbers.
    pub domain: u32,
    pub bus: u8,
    /// Slot, called device in PCI's specification; 0 to 31.
    pub slot: u8,
    /// Function; 0 to 7.
    pub function: u8,
}

/// Why a text is not a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a PCI address; expected one such as 0000:81:11.1 (domain, bus, slot, function)"
)]
pub struct PciAddressError(String);

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// Takes four, two, two and one hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| PciAddressError(crate::xml::quoted(text)))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (slot, function) = rest.split_once('.')?;
    Some(PciAddress {
        domain: hexadecimal(domain, 4)?,
        bus: hexadecimal(bus, 2)?.try_into().ok()?,
        slot: hexadecimal(slot, 2)?.try_into().ok()?,
        function: hexadecimal(function, 1)
            .filter(|&function| function < 8)?
            .try_into()
            .ok()?,
    })
}

fn hexadecimal(digits: &str, length: usize) -> Option<u32> {
    let is_right = digits.len() == length && digits.bytes().all(|b| b.is_ascii_hexdigit());
    is_right.then(|| u32::from_str_radix(digits, 16).ok())?
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (domain, bus, slot, function) = (self.domain, self.bus, self.slot, self.function);
        write!(f, "{domain:04x}:{bus:02x}:{slot:02x}.{function:x}")
    }
}

impl From<PciAddress> for Address {
    /// `<address type="pci">`, with the numbers as libvirt writes them.
    fn from(address: PciAddress) -> Self {
        Self {
            r#type: AddressType::Pci,
            domain: format!("0x{:04x}", address.domain),
            bus: format!("0x{:02x}", address.bus),
            slot: format!("0x{:02x}", address.slot),
            function: format!("0x{:x}", address.function),
            ..Self::default()
        }
    }
}

impl Address {
    /// The PCI address that the attributes hold. None if the address is of another type or a part
    /// is missing or not a number.
    #[must_use]
    pub fn pci(&self) -> Option<PciAddress> {
        if !matches!(self.r#type, AddressType::Pci | AddressType::Unset) {
            return None;
        }
        Some(PciAddress {
            domain: number(&self.domain)?,
            bus: number(&self.bus)?.try_into().ok()?,
            slot: number(&self.slot)?.try_into().ok()?,
            function: number(&self.function)?.try_into().ok()?,
        })
    }
}

/// libvirt writes hexadecimal numbers with `0x`; without it a number is decimal.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // D-conv-6 (docs/differences.md).
    fn an_address_reads_back_as_the_same_text() {
        let address: PciAddress = "0000:81:1a.7".parse().unwrap();
        let attributes = Address::from(address);
        assert_eq!(
            [
                attributes.domain.as_str(),
                &attributes.bus,
                &attributes.slot,
                &attributes.function
            ],
            ["0x0000", "0x81", "0x1a", "0x7"]
        );
        assert_eq!(attributes.pci(), Some(address));
        assert_eq!(address.to_string(), "0000:81:1a.7");
        assert_eq!("0000:81:1A.7".parse(), Ok(address));
    }

    #[test]
    fn all_four_parts_must_be_there_in_full() {
        for text in [
            "",
            "81:00.0",
            "0000:81:00",
            "0000:81:00.8",
            "0000:81:00.00",
            "0000:81:00.0:1",
            "00000:81:00.0",
            "0000:8g:00.0",
            "0000:+1:00.0",
            "0000:81:00.0 ",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn other_addresses_are_not_pci_addresses() {
        let pci = Address::from("0000:00:02.0".parse::<PciAddress>().unwrap());
        for address in [
            Address::default(),
            Address {
                r#type: AddressType::Drive,
                ..pci.clone()
            },
            Address {
                bus: "256".into(),
                ..pci.clone()
            },
            Address {
                slot: "0x".into(),
                ..pci
            },
        ] {
            assert_eq!(address.pci(), None, "{address:?}");
        }
    }
}
