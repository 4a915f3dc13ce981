//! What can go wrong in phase 2.

use std::io;
use std::path::PathBuf;

use crate::network::mac::InvalidMac;
use os::file_error::FileError;

/// Longest file with a link's address that is read. A route takes less than 1 KiB.
pub(super) const MAX_CACHE_BYTES: u64 = 1 << 20;
/// More routes do not fit into a DHCP answer.
pub(super) const MAX_ROUTES: usize = 1000;

/// Why a VM's network could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The VMI does not have the network, or no interface uses it.
    #[error("network {network:?} has no interface in the VMI's spec")]
    NoInterface { network: String },
    /// It is neither the primary network nor a Multus network.
    #[error(
        "network {network:?} has no link in the pod: it is neither the VMI's primary network nor a Multus network"
    )]
    NotInPod { network: String },
    /// Phase 1 has not made the link, or it is gone.
    #[error(
        "interface {interface:?}: the pod has no link {names}, which virt-handler should have prepared"
    )]
    NoLink {
        interface: String,
        /// The names that were tried.
        names: String,
    },
    /// The VMI's MAC address.
    #[error("interface {interface:?}: invalid macAddress {text:?}")]
    InvalidMac {
        interface: String,
        text: String,
        #[source]
        source: InvalidMac,
    },
    /// The guest would get the link's hardware address, but that is not an Ethernet address.
    #[error(
        "interface {interface:?}: link {link} has no MAC address for the guest, please set macAddress"
    )]
    NoMac { interface: String, link: String },
    /// `vmNetworkCIDR` or `vmIPv6NetworkCIDR`.
    #[error("interface {interface:?}: invalid {field} {cidr:?}")]
    InvalidCidr {
        interface: String,
        field: &'static str,
        cidr: String,
        #[source]
        source: ipnet::AddrParseError,
    },
    /// A network, a gateway, a guest and a broadcast address are needed.
    #[error("interface {interface:?}: {field} {cidr:?} has less than four addresses")]
    SmallNetwork {
        interface: String,
        field: &'static str,
        cidr: String,
    },
    /// The server's address on a bridge holds the interface's index.
    #[error(
        "interface {interface:?}: there are no DHCP server addresses for more than 100 interfaces"
    )]
    TooManyInterfaces { interface: String },
    /// DHCPv4 can only name IPv4 addresses.
    #[error("interface {interface:?}: NTP server {server:?} is not an IPv4 address")]
    InvalidNtpServer { interface: String, server: String },
    /// The options do not fit into one datagram.
    #[error(
        "interface {interface:?}: a DHCP answer with these options has {bytes} bytes, a datagram holds {limit}"
    )]
    OptionsTooLong {
        interface: String,
        /// The size of the answer.
        bytes: usize,
        /// The most that is possible.
        limit: usize,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// virt-handler's cache of a bridge's addresses makes no sense.
    #[error("invalid DHCP data of virt-handler in {}", path.display())]
    InvalidCache {
        path: PathBuf,
        #[source]
        source: CacheError,
    },
    /// The kernel does not list the links or addresses.
    #[error("cannot list the pod's {what}")]
    Netlink {
        /// Links or addresses.
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot open a netlink socket")]
    NetlinkSocket(#[source] io::Error),
    /// The kernel does not answer.
    #[error("the kernel did not list the pod's links within {seconds} s")]
    NetlinkTimeout {
        /// How long the launcher waited.
        seconds: u64,
    },
    /// A DHCP server's socket.
    #[error("cannot serve DHCP on {bridge}: {doing} failed")]
    Socket {
        bridge: String,
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Why virt-handler's note of a link's address makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It is not a plain file.
    #[error("it is not a regular file")]
    NotAFile,
    /// It is too long.
    #[error("it is longer than {MAX_CACHE_BYTES} bytes")]
    TooLong,
    /// It has too many routes.
    #[error("it has more than {MAX_ROUTES} routes")]
    TooManyRoutes,
    /// It is not JSON, or not of that shape.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("invalid {field} {value:?}")]
    Value { field: &'static str, value: String },
}
