//! Addresses behind NAT: the gateway on the guest's bridge is the second address of the VM's
//! network, the guest the third.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use crate::network::error::NetworkError;
use api::vmi::interfaces::Interface;
use api::vmi::networks::Network;

/// The IPv4 network of a guest if the VMI gives none.
const DEFAULT_IPV4: &str = "10.0.2.0/24";
/// The IPv6 network of a guest if the VMI gives none.
const DEFAULT_IPV6: &str = "fd10:0:2::/120";

/// The IPv4 addresses behind NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masquerade4 {
    /// The bridge's: gateway and DHCP server.
    pub gateway: Ipv4Addr,
    pub guest: Ipv4Addr,
    pub mask: Ipv4Addr,
}

/// Gateway, guest and netmask in the interface's IPv4 network.
pub(crate) fn ipv4(interface: &Interface, network: &Network) -> Result<Masquerade4, NetworkError> {
    let field = "vmNetworkCIDR";
    let pod = network.pod.as_ref();
    let cidr = pod.map_or("", |pod| &pod.vm_network_cidr);
    match ipv4_in(cidr).map_err(|source| invalid(interface, field, cidr, source))? {
        Some(addresses) => Ok(addresses),
        None => Err(small(interface, field, cidr)),
    }
}

/// Gateway, guest and netmask in the IPv4 network `cidr`; `10.0.2.0/24` if that is empty. `None` if
/// the network has fewer than four addresses.
///
/// # Errors
/// It is not a network.
fn ipv4_in(cidr: &str) -> Result<Option<Masquerade4>, ipnet::AddrParseError> {
    let net: Ipv4Net = if cidr.is_empty() { DEFAULT_IPV4 } else { cidr }.parse()?;
    let mut addresses = net.network().to_bits()..=net.broadcast().to_bits();
    Ok(
        match (
            addresses.next(),
            addresses.next(),
            addresses.next(),
            addresses.next(),
        ) {
            (Some(_), Some(gateway), Some(guest), Some(_)) => Some(Masquerade4 {
                gateway: Ipv4Addr::from_bits(gateway),
                guest: Ipv4Addr::from_bits(guest),
                mask: net.netmask(),
            }),
            _ => None,
        },
    )
}

/// The guest's address in the IPv6 network.
pub(crate) fn ipv6(interface: &Interface, network: &Network) -> Result<Ipv6Addr, NetworkError> {
    let field = "vmIPv6NetworkCIDR";
    let pod = network.pod.as_ref();
    let cidr = pod.map_or("", |pod| &pod.vm_i_pv6_network_cidr);
    let cidr = if cidr.is_empty() { DEFAULT_IPV6 } else { cidr };
    let net: Ipv6Net = cidr
        .parse()
        .map_err(|source| invalid(interface, field, cidr, source))?;
    let mut addresses = net.network().to_bits()..=net.broadcast().to_bits();
    match (
        addresses.next(),
        addresses.next(),
        addresses.next(),
        addresses.next(),
    ) {
        (Some(_), Some(_), Some(guest), Some(_)) => Ok(Ipv6Addr::from_bits(guest)),
        _ => Err(small(interface, field, cidr)),
    }
}

fn invalid(
    interface: &Interface,
    field: &'static str,
    cidr: &str,
    source: ipnet::AddrParseError,
) -> NetworkError {
    NetworkError::InvalidCidr {
        interface: interface.name.clone(),
        field,
        cidr: cidr.to_owned(),
        source,
    }
}

fn small(interface: &Interface, field: &'static str, cidr: &str) -> NetworkError {
    NetworkError::SmallNetwork {
        interface: interface.name.clone(),
        field,
        cidr: cidr.to_owned(),
    }
}
