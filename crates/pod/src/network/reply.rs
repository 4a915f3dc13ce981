//! The outcomes of a packet: an answer, or why there is none.

use std::net::SocketAddr;

/// A packet to send through the guest's bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpAnswer {
    /// The message's type, for the log.
    pub kind: &'static str,
    pub bytes: Vec<u8>,
    pub to: SocketAddr,
}

/// Why a packet gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Not a whole message of a client.
    #[error("it is not a DHCP message of a client")]
    Malformed,
    /// The packet is from another client than the guest.
    #[error("it is not from the guest's MAC address")]
    OtherClient,
    /// A message that needs no answer.
    #[error("message type {0} is not answered")]
    Kind(u8),
    /// DHCPv6: the message does not identify the client.
    #[error("it has no valid client identifier")]
    NoClientId,
}
