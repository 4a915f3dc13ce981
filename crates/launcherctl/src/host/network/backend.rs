//! The program that carries the guest's packets.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::error::{TextError, fail};
use crate::host::processes::find_on_path;

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// passt where it is installed, else (and as root) QEMU's user network
    Auto,
    /// passt: a process beside QEMU; IPv4 and IPv6
    Passt,
    /// QEMU's own user network: slower, and needs nothing
    User,
    /// No network
    None,
}

/// The chosen backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Passt,
    /// QEMU's user network.
    User,
}

impl Wanted {
    /// Chooses the backend, with the reason if it is not the better one.
    pub(super) fn backend(self) -> Result<(Backend, Option<&'static str>), TextError> {
        let is_installed = find_on_path("passt").is_some();
        let is_root = rustix::process::geteuid().is_root();
        let note = match self {
            Self::Passt if is_root => fail!(
                "passt does not run as root; start the VM as another user, or with --network user"
            ),
            Self::Passt if !is_installed => fail!(
                "passt is not installed (Debian's package passt); --network user needs nothing"
            ),
            Self::User | Self::None => None,
            // As root, passt becomes the user nobody, who must not write to the VM's directory.
            Self::Auto if is_root => None,
            Self::Auto if !is_installed => {
                Some("the guest has QEMU's user network, as passt is not installed")
            }
            // passt takes the guest's addresses from the interface with the default route.
            Self::Auto if !has_default_route() => Some(
                "the guest has QEMU's user network: passt needs a default route, and this machine has none",
            ),
            Self::Passt | Self::Auto => return Ok((Backend::Passt, None)),
        };
        Ok((Backend::User, note))
    }
}

fn has_default_route() -> bool {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    is_default_in(&read("/proc/net/route"), &read("/proc/net/ipv6_route"))
}

/// Whether a routing table of the kernel has a default route on an interface other than lo.
fn is_default_in(ipv4: &str, ipv6: &str) -> bool {
    let ipv4 = ipv4.lines().skip(1).any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        columns.next() == Some("00000000")
    });
    let ipv6 = ipv6.lines().any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        matches!(columns.as_slice(), [to, "00", .., device] if to.bytes().all(|digit| digit == b'0') && *device != "lo")
    });
    ipv4 || ipv6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_is_found_in_the_kernels_tables() {
        let header = "Iface\tDestination\tGateway \tFlags\n";
        let default = format!("{header}eth0\t00000000\t010200C0\t0003\n");
        assert!(is_default_in(&default, ""));
        assert!(!is_default_in(
            &format!("{header}eth0\t000200C0\t00000000\t0001\n"),
            ""
        ));
        let route = |to: &str, device| {
            format!(
                "{to} 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 1 0 3 {device}\n"
            )
        };
        let any = "0".repeat(32);
        assert!(is_default_in(header, &route(&any, "eth0")));
        assert!(!is_default_in(header, &route(&any, "lo")));
    }
}
