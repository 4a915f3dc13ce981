//! Ports of this machine that are forwarded to the guest.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{TextError, text_error};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// As libvirt and QEMU write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A forwarded port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// This machine's address.
    pub address: IpAddr,
    /// This machine's port.
    pub host: u16,
    /// The guest's port.
    pub guest: u16,
    pub protocol: Protocol,
}

/// What `--publish` takes.
const EXPECTED: &str =
    "expected [ADDRESS:]HOST:GUEST[/tcp|/udp], e.g. 8080:80, with ports from 1 to 65535";
/// The port of the guest's SSH server.
const SSH_PORT: u16 = 22;

impl FromStr for Forward {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or(EXPECTED)
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, protocol, guest) = (self.listen_address(), self.protocol.name(), self.guest);
        write!(f, "{address} is the guest's {protocol} port {guest}")
    }
}

/// Checks that the ports are free, and adds one for SSH unless there is one.
pub(super) fn with_ssh(mut forwards: Vec<Forward>) -> Result<Vec<Forward>, TextError> {
    forwards.iter_mut().try_for_each(Forward::find_free)?;
    if !forwards.iter().any(Forward::is_ssh) {
        let mut own = Forward {
            address: Ipv4Addr::LOCALHOST.into(),
            host: 0,
            guest: SSH_PORT,
            protocol: Protocol::Tcp,
        };
        if own.find_free().is_ok() {
            forwards.push(own);
        }
    }
    Ok(forwards)
}

impl Forward {
    fn parse(text: &str) -> Option<Self> {
        let (ports, protocol) = match text.split_once('/') {
            None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some(_) => return None,
        };
        let (front, guest) = ports.rsplit_once(':')?;
        let (address, host) = match front.rsplit_once(':') {
            // IPv6 addresses are in brackets, as usual with a port.
            Some((address, host)) => {
                let address = address.trim_start_matches('[').trim_end_matches(']');
                (address.parse().ok()?, host)
            }
            None => (Ipv4Addr::LOCALHOST.into(), front),
        };
        let port = |text: &str| text.parse().ok().map(NonZeroU16::get);
        Some(Self {
            address,
            host: port(host)?,
            guest: port(guest)?,
            protocol,
        })
    }

    /// Whether it is of the guest's SSH server.
    pub(super) fn is_ssh(&self) -> bool {
        self.guest == SSH_PORT && self.protocol == Protocol::Tcp
    }

    /// Where this machine listens.
    pub fn listen_address(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.host)
    }

    /// Checks that the port is free, or takes any free one for port 0.
    pub(super) fn find_free(&mut self) -> Result<(), TextError> {
        let address = self.listen_address();
        let bound = match self.protocol {
            Protocol::Tcp => TcpListener::bind(address).and_then(|it| it.local_addr()),
            Protocol::Udp => UdpSocket::bind(address).and_then(|it| it.local_addr()),
        };
        // Another program uses it, or it is privileged.
        let bound = bound.map_err(|source| {
            text_error!("cannot listen on {address}; choose another port with --publish")
                .caused_by(source)
        })?;
        self.host = bound.port();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A free port. It was not bound before: another test's child, which has a copy of all
    /// sockets until it runs its program, would keep it from being bound again.
    fn free(number: u16) -> SocketAddr {
        SocketAddr::new([127, 83, 1, 1].into(), 2200 + number)
    }

    #[test]
    fn ports_are_of_this_machines_loopback_unless_they_say_otherwise() {
        let shown = |text: &str| text.parse::<Forward>().unwrap().to_string();
        assert_eq!(
            shown("8080:80"),
            "127.0.0.1:8080 is the guest's tcp port 80"
        );
        assert_eq!(
            shown("0.0.0.0:53:53/udp"),
            "0.0.0.0:53 is the guest's udp port 53"
        );
        assert_eq!(
            shown("[::1]:80:81/tcp"),
            "[::1]:80 is the guest's tcp port 81"
        );
        for wrong in [
            "80",
            "a:b",
            "80:",
            "0:80",
            "80:80/sctp",
            "x:80:80",
            "70000:1",
        ] {
            assert!(wrong.parse::<Forward>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_that_is_in_use_is_refused_by_name() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let forward: Forward = format!("{port}:80").parse().unwrap();
        let error = with_ssh(vec![forward]).unwrap_err().to_string();
        let expected = format!("cannot listen on 127.0.0.1:{port}; choose another port");
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn ssh_is_forwarded_once() {
        let own: Forward = format!("{}:22", free(3)).parse().unwrap();
        assert_eq!(with_ssh(vec![own.clone()]).unwrap(), [own]);
        let added = with_ssh(Vec::new()).unwrap();
        assert!(matches!(&added[..], [one] if one.guest == 22 && one.host > 0));
    }
}
