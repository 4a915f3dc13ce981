//! Validity of texts, with descriptions for messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use pod::network::MacAddress;

pub(super) const LABEL: &str = "at most 63 characters of a to z, 0 to 9 and '-', with a letter or digit first and \
    last";
pub(super) const SUBDOMAIN: &str = "at most 253 characters of a to z, 0 to 9, '-' and '.', with a letter or digit first \
    and last, and beside each '.'";
pub(super) const MAC: &str = "a MAC address is such as 02:00:00:00:00:01";
pub(super) const SERIAL: &str = "at most 256 letters, digits, '_', '.', '+' and '-'";
pub(super) const BASE64: &str = "expected Base64; plain text belongs into userData or networkData";
pub(super) const CLOUD_INIT: &str = "at most 2048 bytes are allowed; put it into a Secret (secretRef, \
    networkDataSecretRef)";

/// Bytes of cloud-init data in the VMI itself.
const MAX_CLOUD_INIT: usize = 2048;

/// Letters, digits and inner hyphens.
fn is_name(name: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(is_outer)
        && name.ends_with(is_outer)
        && name.chars().all(|c| is_outer(c) || c == '-')
}

/// A DNS label: names of volumes, disks and hosts.
pub fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_name(name)
}

pub(super) fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_name)
}

pub(super) fn is_serial(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    text.len() <= 256 && text.chars().all(is_allowed)
}

pub(super) fn is_mac(text: &str) -> bool {
    text.parse::<MacAddress>().is_ok()
}

/// The bytes of Base64, in which line breaks are allowed.
fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text.replace(['\r', '\n'], "")).ok()
}

pub(super) fn is_base64(text: &str) -> bool {
    decoded(text).is_some()
}

/// Likewise as Base64; another rule says where it is none.
pub(super) fn may_be_encoded_cloud_init(text: &str) -> bool {
    decoded(text).is_none_or(|bytes| bytes.len() <= MAX_CLOUD_INIT)
}

/// Cloud-init data in the VMI itself.
pub(super) fn may_be_cloud_init(text: &str) -> bool {
    text.len() <= MAX_CLOUD_INIT
}
