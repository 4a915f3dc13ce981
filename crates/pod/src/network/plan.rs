//! Which tap device each interface has, and which DHCP server it has. Reads nothing: the caller
//! passes the pod's links.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::network::error::NetworkError;
use crate::network::links::{Link, PodLinks};
use crate::network::mac::MacAddress;
use crate::network::masquerade;
pub use crate::network::masquerade::Masquerade4;
use crate::network::names;
use crate::network::request::{NetworkRequest, Scope};
use api::vmi::interfaces::Interface;
use api::vmi::networks::Network;

/// What libvirt has to know of an interface that is attached by a tap device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapInterface {
    /// The VMI's name of the interface: the alias in the domain is `ua-` and this.
    pub name: String,
    /// `<target dev= managed="no">`: virt-handler has made the device.
    pub device: String,
    /// `<mtu size=>`, in bytes: the pod link's MTU.
    pub mtu: u32,
    /// `<mac address=>`.
    pub mac: MacAddress,
}

/// An interface of phase 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedInterface {
    pub tap: TapInterface,
    /// The pod's link of the network. Files of virt-handler and markers are named after it.
    pub pod_link: String,
    /// The guest's DHCP server, if it has one.
    pub dhcp: Option<AddressSource>,
}

/// Where a DHCP server gets the guest's address from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressSource {
    /// virt-handler has saved the pod's address in a file before it gave it to the guest.
    Cached {
        /// The server's own address, which virt-handler has given to the bridge.
        server: Ipv4Addr,
    },
    /// The guest's address follows from the VMI's network.
    Masquerade {
        /// The guest's addresses, if the pod has an IPv4 address.
        ipv4: Option<Masquerade4>,
        /// The guest's address, if the pod has an IPv6 address.
        ipv6: Option<Ipv6Addr>,
        /// The pod link's MTU.
        mtu: u32,
    },
}

/// Plans the interfaces of `scope` that are attached by a tap, in the order of the spec.
///
/// # Errors
/// The VMI or the pod's links do not allow for it; nothing has been changed.
pub fn plan(
    request: &NetworkRequest<'_>,
    scope: Scope<'_>,
    links: &PodLinks,
) -> Result<Vec<PlannedInterface>, NetworkError> {
    let mut planned = Vec::new();
    for interface in request.tapped(scope)? {
        let mut networks = request.vmi.spec.networks.iter();
        if let Some(network) = networks.find(|network| network.name == interface.name) {
            planned.push(plan_one(request, interface, network, links)?);
        }
    }
    Ok(planned)
}

fn plan_one(
    request: &NetworkRequest<'_>,
    interface: &Interface,
    network: &Network,
    links: &PodLinks,
) -> Result<PlannedInterface, NetworkError> {
    let pod_interface_name = request.pod_interface_name(&interface.name);
    let names = names::pod_links(&request.vmi.spec.networks, network, pod_interface_name);
    let names = names.ok_or_else(|| NetworkError::NotInPod {
        network: network.name.clone(),
    })?;
    let link = names
        .iter()
        .find_map(|name| links.find(name))
        .ok_or_else(|| NetworkError::NoLink {
            interface: interface.name.clone(),
            names: names.join(" or "),
        })?;
    let tap = names::tap(&link.name, network);
    let tap = TapInterface {
        name: interface.name.clone(),
        // A network binding plugin may have made the link itself a tap.
        device: if links.find(&tap).is_some() {
            tap
        } else {
            link.name.clone()
        },
        mtu: link.mtu,
        mac: mac(interface, link)?,
    };
    Ok(PlannedInterface {
        tap,
        pod_link: link.name.clone(),
        dhcp: address_source(request, interface, network, link)?,
    })
}

/// The guest's MAC address (bridge and masquerade alike): `macAddress` of the VMI, else the pod
/// link's.
fn mac(interface: &Interface, link: &Link) -> Result<MacAddress, NetworkError> {
    let text = &interface.mac_address;
    if !text.is_empty() {
        return text.parse().map_err(|source| NetworkError::InvalidMac {
            interface: interface.name.clone(),
            text: text.clone(),
            source,
        });
    }
    MacAddress::try_from(link.hardware_address.as_slice()).map_err(|_| NetworkError::NoMac {
        interface: interface.name.clone(),
        link: link.name.clone(),
    })
}

fn address_source(
    request: &NetworkRequest<'_>,
    interface: &Interface,
    network: &Network,
    link: &Link,
) -> Result<Option<AddressSource>, NetworkError> {
    if interface.bridge.is_some() {
        let server = bridge_server(request, interface)?;
        return Ok(Some(AddressSource::Cached { server }));
    }
    if interface.masquerade.is_none() {
        return Ok(None);
    }
    let ipv4 = link
        .has_global_ipv4()
        .then(|| masquerade::ipv4(interface, network))
        .transpose()?;
    let ipv6 = link
        .has_global_ipv6()
        .then(|| masquerade::ipv6(interface, network))
        .transpose()?;
    Ok(Some(AddressSource::Masquerade {
        ipv4,
        ipv6,
        mtu: link.mtu,
    }))
}

/// The server's address on a bridge: 169.254.75.1 with the interface's index in the spec as further
/// digits.
fn bridge_server(
    request: &NetworkRequest<'_>,
    interface: &Interface,
) -> Result<Ipv4Addr, NetworkError> {
    let index = request
        .interfaces()
        .iter()
        .position(|other| other.name == interface.name)
        .unwrap_or_default();
    format!("169.254.75.1{index}")
        .parse()
        .map_err(|_| NetworkError::TooManyInterfaces {
            interface: interface.name.clone(),
        })
}
