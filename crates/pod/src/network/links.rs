//! The pod's links and their addresses, read by netlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_proto::ConnectionHandle;
use netlink_proto::sys::{SocketAddr, protocols::NETLINK_ROUTE};
use tokio_stream::StreamExt;

use crate::network::error::NetworkError;

/// A connection to the kernel.
type Handle = ConnectionHandle<RouteNetlinkMessage>;

/// Limit of the wait for the kernel's answers. They come at once, unless the kernel is in distress.
const NETLINK_TIMEOUT: Duration = Duration::from_secs(10);

/// A link (network device) of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's index of it.
    pub index: u32,
    pub name: String,
    /// Bytes that a packet may have.
    pub mtu: u32,
    /// Its hardware address; six octets for Ethernet.
    pub hardware_address: Vec<u8>,
    pub addresses: Vec<IpAddr>,
}

/// All links of the pod's network namespace, as they were when they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodLinks(Vec<Link>);

impl PodLinks {
    pub fn new(links: Vec<Link>) -> Self {
        Self(links)
    }

    /// Reads the links of this process's network namespace. Call it in a tokio runtime with I/O.
    ///
    /// # Errors
    /// Netlink fails, or does not answer in time.
    pub async fn read() -> Result<Self, NetworkError> {
        let (connection, handle, _) =
            netlink_proto::new_connection(NETLINK_ROUTE).map_err(NetworkError::NetlinkSocket)?;
        let connection = tokio::spawn(connection);
        let links = tokio::time::timeout(NETLINK_TIMEOUT, read_links(&handle)).await;
        connection.abort();
        links
            .unwrap_or(Err(NetworkError::NetlinkTimeout {
                seconds: NETLINK_TIMEOUT.as_secs(),
            }))
            .map(Self)
    }

    /// The link of this name.
    pub fn find(&self, name: &str) -> Option<&Link> {
        self.0.iter().find(|link| link.name == name)
    }
}

async fn read_links(handle: &Handle) -> Result<Vec<Link>, NetworkError> {
    let mut request = LinkMessage::default();
    request
        .attributes
        .push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let mut links = Vec::new();
    for message in dump(handle, RouteNetlinkMessage::GetLink(request), "links").await? {
        if let RouteNetlinkMessage::NewLink(message) = message {
            links.push(link(message));
        }
    }
    for message in dump(
        handle,
        RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        "addresses",
    )
    .await?
    {
        if let RouteNetlinkMessage::NewAddress(message) = message
            && let Some(link) = links
                .iter_mut()
                .find(|link| link.index == message.header.index)
        {
            link.addresses.extend(address(message));
        }
    }
    Ok(links)
}

/// All messages that the kernel answers a request with.
async fn dump(
    handle: &Handle,
    request: RouteNetlinkMessage,
    what: &'static str,
) -> Result<Vec<RouteNetlinkMessage>, NetworkError> {
    let failed = |source| NetworkError::Netlink { what, source };
    let mut request = NetlinkMessage::from(request);
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let answers = handle
        .request(request, SocketAddr::new(0, 0))
        .map_err(|error| failed(io::Error::other(error)))?;
    let (mut answers, mut messages) = (pin!(answers), Vec::new());
    while let Some(answer) = answers.next().await {
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => messages.push(message),
            NetlinkPayload::Error(error) => return Err(failed(error.to_io())),
            _ => (),
        }
    }
    Ok(messages)
}

fn link(message: LinkMessage) -> Link {
    let mut link = Link {
        index: message.header.index,
        ..Link::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::Address(address) => link.hardware_address = address,
            _ => (),
        }
    }
    link
}

/// The link's own address. With IPv4 this is IFA_LOCAL, because IFA_ADDRESS is the peer's on a
/// point-to-point link. IPv6 mostly has only IFA_ADDRESS.
fn address(message: AddressMessage) -> Option<IpAddr> {
    let (mut local, mut address) = (None, None);
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(ip),
            AddressAttribute::Address(ip) => address = Some(ip),
            _ => (),
        }
    }
    local.or(address)
}

impl Link {
    /// Whether the link has an IPv4 address that is of use beyond the link, as a private address
    /// is.
    pub fn has_global_ipv4(&self) -> bool {
        self.addresses
            .iter()
            .any(|ip| matches!(ip, IpAddr::V4(ip) if is_global_v4(*ip)))
    }

    /// Whether the link has an IPv6 address that is of use beyond the link, as a unique local
    /// address is.
    pub fn has_global_ipv6(&self) -> bool {
        self.addresses
            .iter()
            .any(|ip| matches!(ip, IpAddr::V6(ip) if is_global_v6(*ip)))
    }
}

fn is_global_v4(ip: Ipv4Addr) -> bool {
    !(ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_multicast()
        || ip.is_link_local()
        || ip.is_broadcast())
}

fn is_global_v6(ip: Ipv6Addr) -> bool {
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(addresses: &[&str]) -> Link {
        Link {
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..Link::default()
        }
    }

    #[test]
    fn link_local_addresses_are_not_global() {
        let local = link(&[
            "169.254.3.4",
            "fe80::1",
            "127.0.0.1",
            "::1",
            "255.255.255.255",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "ff02::1",
        ]);
        assert!(!local.has_global_ipv4() && !local.has_global_ipv6());
    }

    #[test]
    fn each_family_counts_for_itself() {
        let (v4, v6) = (link(&["10.244.0.5", "fe80::1"]), link(&["fd00::5"]));
        assert!(v4.has_global_ipv4() && !v4.has_global_ipv6());
        assert!(!v6.has_global_ipv4() && v6.has_global_ipv6());
    }

    /// Every network namespace has a loopback device, and reading needs no privileges.
    #[tokio::test]
    async fn the_loopback_device_is_found() {
        let links = PodLinks::read().await.unwrap();
        let loopback = links.find("lo").unwrap();
        assert_eq!(
            (loopback.index, loopback.hardware_address.as_slice()),
            (1, [0; 6].as_slice())
        );
        assert!(loopback.mtu >= 1280);
        assert_eq!(links.find("no-such-link"), None);
    }
}
