//! Names of links in the pod, as virt-handler and virt-controller give them.

use sha2::{Digest, Sha256};

/// The pod's link of the primary network, where the VMI's status gives no other.
pub const PRIMARY_LINK: &str = "eth0";

/// Prefix of a hashed name. Bridges and NICs go without it.
pub const HASHED_PREFIX: &str = "pod";
/// Digits of the hash: the kernel's 15 characters less `-nic`.
const HASH_DIGITS: usize = 11;

/// The pod's link of a secondary network, by the hash of the network's name: `pod16477688c0e`.
#[must_use]
pub fn hashed_link(network: &str) -> String {
    let hash = Sha256::digest(network.as_bytes());
    let digits: String = hash
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect();
    format!(
        "{HASHED_PREFIX}{}",
        digits.get(..HASH_DIGITS).unwrap_or(&digits)
    )
}

/// The tap device between the guest's NIC and the bridge: `tap0` for the primary network, else
/// named after the pod's link.
#[must_use]
pub fn tap(pod_link: &str, is_secondary: bool) -> String {
    if is_secondary {
        format!("tap{}", pod_link.get(3..).unwrap_or_default())
    } else {
        "tap0".to_owned()
    }
}
