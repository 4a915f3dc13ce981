//! The network of a VM as a pod has it: its launcher's network namespace, with a tap device for the guest. Needs root.
//!
//! ```text
//!  this machine      the launcher's network namespace
//!  lctl0 ─────────── eth0 ─── NAT ─── k6t-eth0 ─── tap0 ─── guest     masquerade: the guest is 10.0.2.2
//!  10.213.0.1        10.213.0.2       10.0.2.1
//!
//!  lctl0 ─────────── eth0-nic ─────── k6t-eth0 ─── tap0 ─── guest     bridge: the guest is 10.213.0.2
//! ```
//!
//! This is what a CNI plugin and virt-handler do; the launcher does the rest (DHCP), as in a pod. The namespace ends with the
//! launcher and its QEMU, and the links with it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::process::Command;

use super::NetworkError;
use crate::ctl::files::FileError;
use crate::ctl::manifest::Tap;
use crate::ctl::registry::VmDir;
use api::pod_paths::{PRIVATE_DIR, RESOLV_CONF};
use api::proto::cmd::v1::VirtualMachineOptions;
use os::command::{CommandError, Limits};
use pod::network::{MacAddress, ResolvConf, masquerade_ipv4_in};

/// The addresses of all VMs' links; each VM has the third byte to itself.
const SUBNET: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 213, 0, 0), 16);
/// What is run, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 4] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
];
/// What one of them may take.
const LIMITS: Limits = Limits {
    memory: 0,
    cpu: 5,
    wall: Duration::from_secs(10),
};
/// Where systemd-resolved lists the servers that it asks. Its own address is this machine's only.
const RESOLVED_CONF: &str = "/run/systemd/resolve/resolv.conf";
/// virt-handler's address of the guest's bridge, where the pod's address is the guest's.
const BRIDGE_ADDRESS: &str = "169.254.75.10/32";

/// The network of a VM in a namespace of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNetwork {
    /// The interface's name in the VMI.
    interface: String,
    /// The guest's hardware address.
    mac: String,
    /// None with a bridge binding.
    nat: Option<Nat>,
    /// Once its launcher runs: the number of the link on this machine.
    number: Option<u8>,
    /// Once its launcher runs: that link's index, which no later link of this machine has.
    link_index: Option<u32>,
}

/// The guest's network behind NAT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Nat {
    gateway: Ipv4Addr,
    guest: Ipv4Addr,
    mask: Ipv4Addr,
}

impl PodNetwork {
    /// The network for the interface.
    ///
    /// # Errors
    /// If this user cannot make it, or its CIDR is not one.
    pub(super) fn of(tap: Tap) -> Result<Self, NetworkError> {
        let nat = tap.cidr.map(|cidr| match masquerade_ipv4_in(&cidr) {
            Ok(Some(net)) => Ok(Nat {
                gateway: net.gateway,
                guest: net.guest,
                mask: net.mask,
            }),
            _ => Err(NetworkError::Cidr(cidr)),
        });
        Ok(Self {
            interface: tap.interface,
            mac: tap.mac,
            nat: nat.transpose()?,
            number: None,
            link_index: None,
        })
    }

    /// Whether this user can make it.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check() -> Result<(), NetworkError> {
        if !rustix::process::geteuid().is_root() {
            return Err(NetworkError::TapNeedsRoot);
        }
        for (program, package) in PROGRAMS {
            let path = std::env::split_paths(&search_path())
                .map(|directory| directory.join(program))
                .find(|file| file.is_file());
            if path.is_none() {
                return Err(NetworkError::NoProgram { program, package });
            }
        }
        Ok(())
    }

    /// The address by which this machine reaches the guest, once its launcher runs.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.number.map(|number| address(number, 2))
    }

    /// Options of a sync: the interface has a tap device.
    #[must_use]
    pub fn sync_options(&self) -> VirtualMachineOptions {
        VirtualMachineOptions {
            interface_domain_attachment: HashMap::from([(
                self.interface.clone(),
                "tap".to_owned(),
            )]),
            ..VirtualMachineOptions::default()
        }
    }

    /// Removes the rules on this machine, which a killed supervisor has left. Those of a later VM stay, though its link has
    /// the same name.
    pub(super) fn remove_stale_rules(&self) {
        let Some(link) = self.number.map(link) else {
            return;
        };
        let index = link_index(&link);
        if index.is_none() || index == self.link_index {
            drop(HostRules(link));
        }
    }

    /// Does what a CNI plugin and virt-handler do before the first sync, for a launcher that has been started by
    /// [`command`]. What is returned holds as long as it is kept. Blocks.
    ///
    /// # Errors
    /// If a program fails.
    pub(super) fn set_up(
        mut self,
        launcher: u32,
        dir: &VmDir,
    ) -> Result<(Self, HostRules), NetworkError> {
        let number = add_link(launcher)?;
        self.number = Some(number);
        let rules = HostRules::add(number)?;
        self.link_index = link_index(&link(number));
        let binding = if let Some(nat) = &self.nat {
            masquerade_script(nat)
        } else {
            self.save_address(number, dir)?;
            bridge_script(number, &self.mac)
        };
        let script = [pod_script(number), binding].concat();
        let namespace = format!("--net=/proc/{launcher}/ns/net");
        run("nsenter", &[&namespace, "--", "sh", "-euc", &script])?;
        Ok((self, rules))
    }

    /// For the launcher's DHCP server: the address that goes to the guest.
    fn save_address(&self, number: u8, dir: &VmDir) -> Result<(), NetworkError> {
        let octets = self.mac.parse::<MacAddress>();
        let octets = octets.map_err(|_| NetworkError::Mac(self.mac.clone()))?;
        let (gateway, mask) = (address(number, 1), STANDARD.encode([255, 255, 255, 252]));
        let saved = json!({
            "IP": {"IP": address(number, 2), "Mask": mask}, "MAC": STANDARD.encode(octets.octets()),
            "Routes": [{"Dst": null, "Gw": gateway}], "IPAMDisabled": false, "Gateway": gateway,
        });
        let file = dir.path(PRIVATE_DIR).join("vif-cache-eth0.json");
        let written = std::fs::write(&file, saved.to_string());
        Ok(written.map_err(FileError::on("write", file))?)
    }
}

/// This machine's nftables rules for one VM. They are removed when this is dropped, as the VM's supervisor ends.
#[derive(Debug)]
pub struct HostRules(String);

impl HostRules {
    fn add(number: u8) -> Result<Self, NetworkError> {
        let (link, own, guest) = (link(number), address(number, 1), address(number, 2));
        let (subnet, prefix) = SUBNET;
        let rules = Self(link.clone());
        // A VM before, whose supervisor was killed, may have left a table of that name. Guests see each other by their own
        // addresses.
        let script = format!(
            "ip address add {own}/30 dev {link}
            ip link set {link} up
            nft -f - <<END
            table ip {link}
            delete table ip {link}
            table ip {link} {{
                chain postrouting {{
                    type nat hook postrouting priority 100
                    ip saddr {guest} ip daddr != {subnet}/{prefix} masquerade
                }}
            }}
END
            echo 1 >/proc/sys/net/ipv4/ip_forward"
        );
        run("sh", &["-euc", &script])?;
        Ok(rules)
    }
}

impl Drop for HostRules {
    fn drop(&mut self) {
        // Without its link it does nothing.
        let _ = run("nft", &["delete", "table", "ip", &self.0]);
    }
}

/// The program in a network namespace of its own, with name servers that can be reached from there.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.env("PATH", search_path()).arg("--net");
    match reachable_resolv_conf() {
        None => command.arg("--"),
        Some(file) => command
            .args(["--mount", "--propagation", "slave", "--", "sh", "-c"])
            .arg(format!("mount --bind \"$0\" {RESOLV_CONF} && exec \"$@\""))
            .arg(file),
    };
    command.arg(program);
    command
}

/// The file to use in place of /etc/resolv.conf, if all servers there are on this machine.
fn reachable_resolv_conf() -> Option<PathBuf> {
    let servers = ResolvConf::read(Path::new(RESOLV_CONF)).ok()?.ipv4;
    let other = PathBuf::from(RESOLVED_CONF);
    (servers.iter().all(Ipv4Addr::is_loopback) && other.exists()).then_some(other)
}

/// The address of a VM's link: 1 is this machine's, 2 the pod's.
fn address(number: u8, host: u8) -> Ipv4Addr {
    let [first, second, ..] = SUBNET.0.octets();
    Ipv4Addr::new(first, second, number, host)
}

/// The link on this machine.
fn link(number: u8) -> String {
    format!("lctl{number}")
}

/// The kernel's index of a link of this machine. The kernel gives none twice.
fn link_index(link: &str) -> Option<u32> {
    let any = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    rustix::net::netdevice::name_to_index(any, link).ok()
}

/// Adds a pair of links, one of them in the launcher's namespace; the kernel knows which numbers are taken.
fn add_link(launcher: u32) -> Result<u8, NetworkError> {
    for number in 0..=u8::MAX {
        let (link, launcher) = (link(number), launcher.to_string());
        let peer = ["type", "veth", "peer", "name", "eth0", "netns", &launcher];
        match run("ip", &[&["link", "add", &link][..], &peer].concat()) {
            Err(NetworkError::Program(CommandError::Failed { stderr, .. }))
                if stderr.contains("File exists") => {}
            added => return added.map(|()| number),
        }
    }
    Err(NetworkError::NoLinkLeft)
}

/// As a CNI plugin does it.
fn pod_script(number: u8) -> String {
    let (own, gateway) = (address(number, 2), address(number, 1));
    format!(
        "ip link set lo up
        ip address add {own}/30 dev eth0
        ip link set eth0 up
        ip route add default via {gateway}
        "
    )
}

/// As virt-handler does it.
fn masquerade_script(nat: &Nat) -> String {
    let Nat { gateway, guest, .. } = nat;
    let prefix = nat.mask.to_bits().count_ones();
    format!(
        "ip link add name k6t-eth0 address 02:00:00:00:00:00 type bridge
        ip address add {gateway}/{prefix} dev k6t-eth0
        ip link set k6t-eth0 up
        {TAP}
        nft -f - <<END
        table ip nat {{
            chain prerouting {{
                type nat hook prerouting priority -100
                iifname eth0 dnat to {guest}
            }}
            chain postrouting {{
                type nat hook postrouting priority 100
                ip saddr {guest} oifname eth0 masquerade
            }}
        }}
END
        echo 1 >/proc/sys/net/ipv4/ip_forward"
    )
}

/// As virt-handler does it: the address goes to the guest. A link that is down keeps it, by which the launcher finds the
/// interface.
fn bridge_script(number: u8, mac: &str) -> String {
    let own = address(number, 2);
    format!(
        "ip link add name k6t-eth0 type bridge
        ip address add {BRIDGE_ADDRESS} dev k6t-eth0
        ip link set k6t-eth0 up
        ip address flush dev eth0
        ip link set eth0 down
        ip link set eth0 name eth0-nic
        ip link set eth0-nic master k6t-eth0 up
        {TAP}
        ip link add name eth0 address {mac} type veth peer name eth0-peer
        ip address add {own}/30 dev eth0
        echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore"
    )
}

/// The guest's own link.
const TAP: &str = "ip tuntap add mode tap name tap0; ip link set tap0 master k6t-eth0 up";

/// Runs a program, which must succeed.
fn run(program: &'static str, arguments: &[&str]) -> Result<(), NetworkError> {
    let path = search_path();
    os::command::run(program, arguments, &[("PATH", &path)], None, LIMITS)
        .map(drop)
        .map_err(NetworkError::Program)
}

/// With the directories of programs for administrators, which root may be without.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tap(cidr: Option<&str>) -> Tap {
        Tap {
            interface: "default".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            cidr: cidr.map(str::to_owned),
        }
    }

    #[test]
    fn the_guests_network_behind_nat_is_the_vmis() {
        let own = PodNetwork::of(tap(Some("10.9.8.0/24"))).unwrap();
        let script = masquerade_script(&own.nat.unwrap());
        assert!(script.contains("10.9.8.1/24"), "{script}");
        assert!(script.contains("dnat to 10.9.8.2"), "{script}");
        let default = PodNetwork::of(tap(Some(""))).unwrap();
        assert!(masquerade_script(&default.nat.unwrap()).contains("10.0.2.1/24"));
        assert_eq!(PodNetwork::of(tap(None)).unwrap().nat, None);
        for wrong in ["ten", "10.0.0.0/31"] {
            let error = PodNetwork::of(tap(Some(wrong))).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn the_launcher_reads_the_address_that_goes_to_the_guest() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = VmDir::at(scratch.path().to_owned());
        std::fs::create_dir_all(dir.path(PRIVATE_DIR)).unwrap();
        let network = PodNetwork::of(tap(None)).unwrap();
        network.save_address(7, &dir).unwrap();
        let file = dir.path(PRIVATE_DIR).join("vif-cache-eth0.json");
        let read = pod::network::CachedAddress::read(&file).unwrap();
        let mask = Ipv4Addr::new(255, 255, 255, 252);
        assert_eq!(read.ipv4, Some((address(7, 2), Some(mask))));
        assert_eq!(read.gateway, Some(address(7, 1)));
        assert_eq!(read.mac.unwrap().to_string(), network.mac);
    }
}
