//! Network phase 2: what a pod does for its VM's network once virt-handler has done phase 1.
//!
//! virt-handler makes bridges, tap devices and NAT rules in the pod (phase 1). Then the launcher
//!
//! 1. reads the pod's links by netlink ([`PodLinks`]),
//! 2. finds the tap device, MTU and MAC address of each interface that is attached by a tap
//!    ([`plan`]), for libvirt's `<interface>` ([`TapInterface`]),
//! 3. runs a DHCP server on the guest's bridge for bridge and masquerade bindings ([`dhcp4`],
//!    [`dhcp6`]), because the address that the guest is to use is known to the pod only.
//!
//! ```text
//! guest NIC -- tap0 -- bridge k6t-eth0 -- (NAT, or the pod's veth as a port) -- eth0
//!                          |
//!                    DHCP servers of the launcher, UDP 67 and 547
//! ```
//!
//! [`NetworkSetup`] does all of it. Nothing is sent out of any link but the guest's bridge.

mod config;
pub mod dhcp4;
pub mod dhcp6;
mod error;
mod links;
mod mac;
mod masquerade;
pub mod names;
pub mod plan;
mod rate;
mod reply;
mod request;
mod resolv_conf;
mod search_domains;
mod serve;
mod servers;
mod setup;
mod udp;
mod vif_cache;

pub use config::{PodDns, ServerConfig};
pub use error::NetworkError;
pub use links::{Link, PodLinks};
pub use mac::MacAddress;
pub use plan::TapInterface;
pub use reply::{DhcpAnswer, Ignored};
pub use request::{NetworkRequest, Scope};
pub use resolv_conf::ResolvConf;
pub use servers::DhcpServers;
pub use setup::{NetworkPaths, NetworkSetup};
pub use vif_cache::CachedAddress;
