//! DHCPv4 for one guest: it always gets the same IP address (see `config.rs`) and all options,
//! whatever it asks for.
//!
//! RFC 2131, options of RFC 2132; 119 is RFC 3397, 121 is RFC 3442. Options of more than 255 bytes
//! are split (RFC 3396).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dhcproto::v4::{
    DhcpOption, Encodable, Encoder, Message, MessageType, Opcode, OptionCode, borrowed,
    encode_long_opt_bytes,
};

use crate::network::error::NetworkError;
use crate::network::mac::MacAddress;
use crate::network::reply::{DhcpAnswer, Ignored};
use crate::network::resolv_conf::longest;
use crate::network::search_domains::{domain_octets, valid_search_domains};
use crate::network::vif_cache::Route;
use api::vmi::interfaces::DhcpOptions;

/// UDP port of DHCPv4 servers.
pub const SERVER_PORT: u16 = 67;
/// How long the guest may use its address (lease time), in seconds: 999 days. The guest keeps the
/// address as long as the pod lives.
const LEASE_SECONDS: u32 = 999 * 24 * 3600;
/// Shortest message, which old BOOTP clients expect: 300 bytes with the headers of UDP and IP.
const MIN_MESSAGE: usize = 272;
/// Longest payload of a UDP datagram over IPv4.
const MAX_MESSAGE: usize = 65_507;
/// Where BOOTP's fields and the magic cookie end and options begin.
const OPTIONS_START: usize = 240;
/// Longest hardware address that a message holds.
const MAX_HARDWARE_ADDRESS: u8 = 16;
/// Options that `privateOptions` may set (RFC 3942); others are left out.
const PRIVATE_OPTIONS: std::ops::RangeInclusive<u8> = 224..=254;

/// The guest's lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The VMI's name of the interface, for errors.
    pub interface: String,
    /// The only client that is answered; `None` for any client.
    pub client_mac: Option<MacAddress>,
    pub client: Ipv4Addr,
    pub mask: Option<Ipv4Addr>,
    /// The server's address, which names it in messages.
    pub server: Ipv4Addr,
    pub router: Option<Ipv4Addr>,
    pub nameservers: Vec<Ipv4Addr>,
    pub routes: Vec<Route>,
    /// Search domains. The longest one is also sent as the domain name.
    pub search_domains: Vec<String>,
    pub mtu: u16,
    /// The guest's host name.
    pub host_name: String,
    /// The VMI's `dhcpOptions`.
    pub custom: DhcpOptions,
}

/// A DHCPv4 server, without its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    client_mac: Option<MacAddress>,
    client: Ipv4Addr,
    /// All options but the message type, with the end mark.
    options: Vec<u8>,
}

impl Server {
    /// A server that gives `config`.
    ///
    /// # Errors
    /// An option cannot be written.
    pub fn new(config: &Config) -> Result<Self, NetworkError> {
        let too_long = |bytes| NetworkError::OptionsTooLong {
            interface: config.interface.clone(),
            bytes,
            limit: MAX_MESSAGE,
        };
        let options = encode_options(config.server, &options(config)?);
        let bytes = OPTIONS_START + options.len() + 3;
        if bytes > MAX_MESSAGE {
            return Err(too_long(bytes));
        }
        Ok(Self {
            client_mac: config.client_mac,
            client: config.client,
            options,
        })
    }

    /// The answer to a packet.
    ///
    /// # Errors
    /// Why there is none.
    pub fn answer(&self, packet: &[u8], from: SocketAddr) -> Result<DhcpAnswer, Ignored> {
        let request = borrowed::Message::new(packet).map_err(|_| Ignored::Malformed)?;
        if request.opcode() != Opcode::BootRequest || request.hlen() > MAX_HARDWARE_ADDRESS {
            return Err(Ignored::Malformed);
        }
        let kind = message_type(&request).ok_or(Ignored::Malformed)?;
        if self.client_mac.is_some_and(|mac| mac.0 != request.chaddr()) {
            return Err(Ignored::OtherClient);
        }
        let (kind, name) = match MessageType::from(kind) {
            MessageType::Discover => (MessageType::Offer, "DHCPOFFER"),
            MessageType::Request => (MessageType::Ack, "DHCPACK"),
            _ => return Err(Ignored::Kind(kind)),
        };
        let bytes = self.reply(&request, kind).map_err(|_| Ignored::Malformed)?;
        let unknown = from.ip() == IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let ip = if unknown || request.flags().broadcast() {
            IpAddr::V4(Ipv4Addr::BROADCAST)
        } else {
            from.ip()
        };
        Ok(DhcpAnswer {
            kind: name,
            bytes,
            to: SocketAddr::new(ip, from.port()),
        })
    }

    fn reply(
        &self,
        request: &borrowed::Message<'_>,
        kind: MessageType,
    ) -> Result<Vec<u8>, dhcproto::error::EncodeError> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut reply = Message::new_with_id(
            request.xid(),
            none,
            self.client,
            none,
            request.giaddr(),
            request.chaddr(),
        );
        reply
            .set_opcode(Opcode::BootReply)
            .set_flags(request.flags());
        let mut bytes = Vec::with_capacity(OPTIONS_START + self.options.len() + 3);
        let mut encoder = Encoder::new(&mut bytes);
        reply.encode(&mut encoder)?;
        DhcpOption::MessageType(kind).encode(&mut encoder)?;
        encoder.write_slice(&self.options)?;
        bytes.resize(bytes.len().max(MIN_MESSAGE), 0);
        Ok(bytes)
    }
}

fn message_type(request: &borrowed::Message<'_>) -> Option<u8> {
    match request
        .opts()
        .filter(|option| option.code() == OptionCode::MessageType)
        .last()?
        .data()
    {
        [kind] => Some(*kind),
        _ => None,
    }
}

/// The options' values in the order of their codes. Empty ones are not sent: RFC 2132 gives each of
/// these a minimal length.
fn options(config: &Config) -> Result<BTreeMap<OptionCode, Vec<u8>>, NetworkError> {
    let search_domains = valid_search_domains(&config.search_domains);
    let address = |ip: Option<Ipv4Addr>| ip.map(|ip| ip.octets().to_vec()).unwrap_or_default();
    let text = |text: &str| text.as_bytes().to_vec();
    let mut options = BTreeMap::from([
        (OptionCode::SubnetMask, address(config.mask)),
        (OptionCode::Router, address(config.router)),
        (OptionCode::DomainNameServer, octets(&config.nameservers)),
        (OptionCode::Hostname, text(&config.host_name)),
        (
            OptionCode::DomainName,
            longest(search_domains.iter())
                .map(|domain| text(domain))
                .unwrap_or_default(),
        ),
        (OptionCode::InterfaceMtu, config.mtu.to_be_bytes().to_vec()),
        (OptionCode::NtpServers, octets(&ntp_servers(config)?)),
        (
            OptionCode::TFTPServerName,
            text(&config.custom.tftp_server_name),
        ),
        (
            OptionCode::BootfileName,
            text(&config.custom.boot_file_name),
        ),
        (
            OptionCode::DomainSearch,
            search_domains
                .iter()
                .flat_map(|domain| domain_octets(domain))
                .collect(),
        ),
        (
            OptionCode::ClasslessStaticRoute,
            route_octets(&config.routes),
        ),
    ]);
    for private in &config.custom.private_options {
        if let Some(code) = u8::try_from(private.option)
            .ok()
            .filter(|code| PRIVATE_OPTIONS.contains(code))
        {
            options.insert(OptionCode::from(code), text(&private.value));
        }
    }
    options.retain(|_, value| !value.is_empty());
    Ok(options)
}

/// Server and lease first, where clients look for them, then the others.
// D-net-2 (docs/differences.md).
fn encode_options(server: Ipv4Addr, options: &BTreeMap<OptionCode, Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes);
    let first = [
        (OptionCode::ServerIdentifier, server.octets()), //
        (OptionCode::AddressLeaseTime, LEASE_SECONDS.to_be_bytes()),
    ];
    let first = first.iter().map(|(code, value)| (*code, value.as_slice()));
    for (code, value) in first.chain(
        options
            .iter()
            .map(|(code, value)| (*code, value.as_slice())),
    ) {
        // Writing to memory fails only when the address space is exhausted.
        drop(encode_long_opt_bytes(code, value, &mut encoder));
    }
    bytes.push(OptionCode::End.into());
    bytes
}

fn octets(addresses: &[Ipv4Addr]) -> Vec<u8> {
    addresses.iter().flat_map(|ip| ip.octets()).collect()
}

fn ntp_servers(config: &Config) -> Result<Vec<Ipv4Addr>, NetworkError> {
    let invalid = |server: &String| NetworkError::InvalidNtpServer {
        interface: config.interface.clone(),
        server: server.clone(),
    };
    let parse = |server: &String| match server.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V4(ip)) => Ok(ip),
        _ => Err(invalid(server)),
    };
    config.custom.ntp_servers.iter().map(parse).collect()
}

/// Option 121 (RFC 3442), static routes: length of the prefix, its octets as far as they count,
/// gateway. The default route (default gateway) comes last, as it may need one of the others to
/// reach it.
fn route_octets(routes: &[Route]) -> Vec<u8> {
    let (mut bytes, mut default) = (Vec::new(), Vec::new());
    for route in routes {
        match route.destination {
            None => default.push(0),
            Some((destination, width)) => {
                bytes.push(width);
                bytes.extend(
                    destination
                        .octets()
                        .iter()
                        .take(usize::from(width).div_ceil(8)),
                );
            }
        }
        if route.destination.is_none() {
            &mut default
        } else {
            &mut bytes
        }
        .extend(route.gateway.octets());
    }
    bytes.extend(default);
    bytes
}

#[cfg(test)]
#[path = "dhcp4_tests.rs"]
mod tests;
