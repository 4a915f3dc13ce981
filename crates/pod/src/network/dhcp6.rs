//! DHCPv6 for one guest: it always gets the same address, and the IPv6 name servers.
//!
//! RFC 8415. There are no router advertisements, so a guest has to ask by itself.

use std::net::{Ipv6Addr, SocketAddr};

use dhcproto::Decoder;
use dhcproto::v6::{
    DhcpOption, DhcpOptions, Encodable, Encoder, IAAddr, IANA, Message, MessageType, OptionCode,
};

use crate::network::mac::MacAddress;
use crate::network::reply::{DhcpAnswer, Ignored};

/// UDP port of DHCPv6 servers.
pub const SERVER_PORT: u16 = 547;
/// All DHCP relay agents and servers on a link: clients send to it.
pub const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// How long the guest may use its address (lease time), in seconds: 999 days, as with DHCPv4.
const LEASE_SECONDS: u32 = 999 * 24 * 3600;
/// Lengths of client identifiers: the type's two bytes, and up to 128 more.
const CLIENT_ID_BYTES: std::ops::RangeInclusive<usize> = 2..=130;
/// Bytes before the link-layer address in a DUID-LL of Ethernet: type 3, hardware type 1.
const DUID_LL_ETHERNET: [u8; 4] = [0, 3, 0, 1];

/// The guest's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub client: Ipv6Addr,
    pub nameservers: Vec<Ipv6Addr>,
}

/// A DHCPv6 server, without its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    config: Config,
    id: Vec<u8>,
}

/// The parts of a message on which the answer depends.
#[derive(Debug)]
struct Request<'a> {
    kind: u8,
    transaction: [u8; 3],
    client_id: Option<&'a [u8]>,
    /// Identifier of the first identity association for addresses.
    association: Option<u32>,
    rapid_commit: bool,
}

impl Server {
    /// A server that gives `config`. `mac` is the bridge's, by which the server names itself.
    pub fn new(config: Config, mac: MacAddress) -> Self {
        Self {
            config,
            id: [DUID_LL_ETHERNET.as_slice(), &mac.0].concat(),
        }
    }

    /// The answer to a packet.
    ///
    /// # Errors
    /// Why there is none.
    pub fn answer(&self, packet: &[u8], from: SocketAddr) -> Result<DhcpAnswer, Ignored> {
        let request = Request::parse(packet).ok_or(Ignored::Malformed)?;
        let (kind, name) = match MessageType::from(request.kind) {
            MessageType::Solicit if !request.rapid_commit => (MessageType::Advertise, "Advertise"),
            MessageType::Solicit
            | MessageType::Request
            | MessageType::Confirm
            | MessageType::Renew
            | MessageType::Rebind
            | MessageType::Release
            | MessageType::InformationRequest => (MessageType::Reply, "Reply"),
            _ => return Err(Ignored::Kind(request.kind)),
        };
        let client_id = request
            .client_id
            .filter(|id| CLIENT_ID_BYTES.contains(&id.len()))
            .ok_or(Ignored::NoClientId)?;
        let bytes = self
            .reply(&request, kind, client_id)
            .map_err(|_| Ignored::Malformed)?;
        Ok(DhcpAnswer {
            kind: name,
            bytes,
            to: from,
        })
    }

    fn reply(
        &self,
        request: &Request<'_>,
        kind: MessageType,
        client_id: &[u8],
    ) -> Result<Vec<u8>, dhcproto::error::EncodeError> {
        let lease = IAAddr {
            addr: self.config.client,
            preferred_life: LEASE_SECONDS,
            valid_life: LEASE_SECONDS,
            opts: DhcpOptions::default(), //
        };
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes);
        Message::new_with_id(kind, request.transaction).encode(&mut encoder)?;
        // One by one: `DhcpOptions` would sort them by code.
        DhcpOption::ClientId(client_id.to_vec()).encode(&mut encoder)?;
        if MessageType::from(request.kind) == MessageType::Solicit && request.rapid_commit {
            DhcpOption::RapidCommit.encode(&mut encoder)?;
        }
        DhcpOption::IANA(IANA {
            id: request.association.unwrap_or_default(),
            t1: 0,
            t2: 0,
            opts: DhcpOptions::from_iter([DhcpOption::IAAddr(lease)]), //
        })
        .encode(&mut encoder)?;
        DhcpOption::ServerId(self.id.clone()).encode(&mut encoder)?;
        if !self.config.nameservers.is_empty() {
            DhcpOption::DomainNameServers(self.config.nameservers.clone()).encode(&mut encoder)?;
        }
        Ok(bytes)
    }
}

impl<'a> Request<'a> {
    /// Walks through the options by their lengths. dhcproto's own reader stops at the first option
    /// that it cannot read, and subtracts from lengths that the guest has chosen.
    fn parse(packet: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = packet.split_first()?;
        let (&transaction, mut rest) = rest.split_first_chunk::<3>()?;
        let mut request = Self {
            kind,
            transaction,
            client_id: None,
            association: None,
            rapid_commit: false,
        };
        while !rest.is_empty() {
            let mut decoder = Decoder::new(rest);
            let code = OptionCode::from(decoder.read_u16().ok()?);
            let value = usize::from(decoder.read_u16().ok()?);
            let value = decoder.read_slice(value).ok()?;
            match code {
                OptionCode::ClientId => request.client_id = request.client_id.or(Some(value)),
                OptionCode::IANA if request.association.is_none() => {
                    request.association = Some(association(value)?)
                }
                OptionCode::RapidCommit => request.rapid_commit = true,
                _ => (),
            }
            rest = rest.get(4 + value.len()..)?;
        }
        Some(request)
    }
}

/// The identifier of an identity association, which T1 and T2 have to follow.
fn association(value: &[u8]) -> Option<u32> {
    let (identifier, rest) = value.split_first_chunk::<4>()?;
    (rest.len() >= 8).then(|| u32::from_be_bytes(*identifier))
}

#[cfg(test)]
#[path = "dhcp6_tests.rs"]
mod tests;
