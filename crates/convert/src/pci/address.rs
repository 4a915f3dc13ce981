//! PCI addresses as text, `0000:81:11.1`: domain, bus, slot and function in hexadecimal.

use compact_str::format_compact;
use domain::Text;
use domain::devices::Address;

/// A PCI address in libvirt's terms.
#[must_use]
pub(crate) fn parse_address(text: &str) -> Option<Address> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (slot, function) = rest.split_once('.')?;
    let hexadecimal = |digits: &str, length| {
        digits.len() == length && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    if !hexadecimal(domain, 4)
        || !hexadecimal(bus, 2)
        || !hexadecimal(slot, 2)
        || !matches!(function.as_bytes(), [b'0'..=b'7'])
    {
        return None;
    }
    Some(Address {
        r#type: Text::const_new("pci"),
        domain: format_compact!("0x{domain}"),
        bus: format_compact!("0x{bus}"),
        slot: format_compact!("0x{slot}"),
        function: format_compact!("0x{function}"),
        ..Address::default()
    })
}

/// Why a text is no PCI address.
pub(crate) fn malformed_address(text: &str) -> String {
    format!("{text:?} is no PCI address; it looks like 0000:81:11.1 (domain, bus, slot, function)")
}

/// The text of an address, as sysfs names devices.
#[must_use]
pub(super) fn address_text(address: &Address) -> Text {
    let [domain, bus, slot, function] = [
        &address.domain,
        &address.bus,
        &address.slot,
        &address.function,
    ]
    .map(|part| part.strip_prefix("0x").unwrap_or(part));
    format_compact!("{domain}:{bus}:{slot}.{function}")
}

/// Whether any part of an address is given: whoever gave it wants the device there.
#[must_use]
pub(super) fn is_placed(address: &Address) -> bool {
    [
        &address.domain,
        &address.bus,
        &address.slot,
        &address.function,
    ]
    .iter()
    .any(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_reads_back_as_the_same_text() {
        let address = parse_address("0000:81:1A.7").unwrap();
        assert_eq!(
            (address.bus.as_str(), address.slot.as_str()),
            ("0x81", "0x1A")
        );
        assert_eq!(address_text(&address), "0000:81:1A.7");
    }

    #[test]
    fn all_four_parts_must_be_there_in_full() {
        for text in [
            "",
            "81:00.0",
            "0000:81:00",
            "0000:81:00.8",
            "0000:81:00.00",
            "00000:81:00.0",
            "0000:8g:00.0",
            "0000:81:00.0 ",
        ] {
            assert_eq!(parse_address(text), None, "{text:?}");
        }
    }
}
