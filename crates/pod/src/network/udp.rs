//! UDP sockets that hear and answer one bridge only.
//!
//! A DHCP client has no address yet, so servers listen on all addresses. By default the server
//! looks at the link by which each packet came in (`IP_PKTINFO`), and sends answers out of that
//! link. Where the kernel allows it (5.7 and newer, also without `CAP_NET_RAW`), the socket is
//! bound to the bridge too (`SO_BINDTODEVICE`). Then a unicast message of one guest NIC cannot end
//! in the socket of another NIC's server.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrIn,
    SockaddrIn6, SockaddrLike, SockaddrStorage, bind, recvmsg, sendmsg, setsockopt, socket,
    sockopt,
};
use tokio::io::Interest;

use crate::network::error::NetworkError;

/// A server's UDP socket on a bridge.
#[derive(Debug)]
pub(crate) struct BridgeSocket {
    socket: tokio::net::UdpSocket,
    /// The kernel's index of the bridge.
    bridge: u32,
}

/// A socket's step that failed, and why.
type Failed = (&'static str, io::Error);

/// Names the step that failed.
fn step<T, E: Into<io::Error>>(doing: &'static str, result: Result<T, E>) -> Result<T, Failed> {
    result.map_err(|error| (doing, error.into()))
}

impl BridgeSocket {
    /// A socket for DHCPv4 servers on the bridge of this name and index.
    ///
    /// # Errors
    /// It cannot be made or bound to the port.
    pub fn v4(bridge: &str, index: u32, port: u16) -> Result<Self, NetworkError> {
        let make = || {
            let fd = new_socket(AddressFamily::Inet)?;
            step(
                "setting IP_PKTINFO",
                setsockopt(&fd, sockopt::Ipv4PacketInfo, &true),
            )?;
            step(
                "setting SO_BROADCAST",
                setsockopt(&fd, sockopt::Broadcast, &true),
            )?;
            finish(
                fd,
                bridge,
                &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)),
            )
        };
        Self::new(make(), bridge, index)
    }

    /// A socket for DHCPv6 servers, which hears `group` too.
    ///
    /// # Errors
    /// It cannot be made, bound to the port, or join the group.
    pub fn v6(bridge: &str, index: u32, port: u16, group: Ipv6Addr) -> Result<Self, NetworkError> {
        let make = || {
            let fd = new_socket(AddressFamily::Inet6)?;
            step(
                "setting IPV6_V6ONLY",
                setsockopt(&fd, sockopt::Ipv6V6Only, &true),
            )?;
            step(
                "setting IPV6_RECVPKTINFO",
                setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true),
            )?;
            let socket = finish(
                fd,
                bridge,
                &SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0)),
            )?;
            step(
                "joining the group of DHCP servers",
                socket.join_multicast_v6(&group, index),
            )?;
            Ok(socket)
        };
        Self::new(make(), bridge, index)
    }

    fn new(
        socket: Result<UdpSocket, Failed>,
        bridge: &str,
        index: u32,
    ) -> Result<Self, NetworkError> {
        let socket = socket.and_then(|socket| {
            step(
                "registering the socket",
                tokio::net::UdpSocket::from_std(socket),
            )
        });
        match socket {
            Ok(socket) => Ok(Self {
                socket,
                bridge: index,
            }),
            Err((doing, source)) => Err(NetworkError::Socket {
                bridge: bridge.to_owned(),
                doing,
                source,
            }),
        }
    }

    /// Waits for a packet. None if it came in by another link, or did not fit into `buffer`.
    ///
    /// # Errors
    /// Receiving failed.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        self.socket
            .async_io(Interest::READABLE, || self.try_receive(buffer))
            .await
    }

    fn try_receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        let mut parts = [IoSliceMut::new(buffer)];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo);
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let mut link = None;
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    link = u32::try_from(info.ipi_ifindex).ok()
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => link = Some(info.ipi6_ifindex),
                _ => (),
            }
        }
        let whole = !message.flags.contains(MsgFlags::MSG_TRUNC);
        let from = message.address.as_ref().and_then(to_std);
        Ok(from
            .filter(|_| whole && link == Some(self.bridge))
            .map(|from| (message.bytes, from)))
    }

    /// Sends a packet out of the bridge. The kernel chooses the bridge's address as its source.
    ///
    /// # Errors
    /// Sending failed; a full send buffer is an error too.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        let parts = [IoSlice::new(bytes)];
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        match to {
            SocketAddr::V4(to) => {
                let ipi_ifindex = i32::try_from(self.bridge).map_err(io::Error::other)?;
                let none = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo {
                    ipi_ifindex,
                    ipi_spec_dst: none,
                    ipi_addr: none,
                };
                sendmsg(
                    fd,
                    &parts,
                    &[ControlMessage::Ipv4PacketInfo(&info)],
                    flags,
                    Some(&SockaddrIn::from(to)),
                )?;
            }
            SocketAddr::V6(to) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: [0; 16] },
                    ipi6_ifindex: self.bridge,
                };
                sendmsg(
                    fd,
                    &parts,
                    &[ControlMessage::Ipv6PacketInfo(&info)],
                    flags,
                    Some(&SockaddrIn6::from(to)),
                )?;
            }
        }
        Ok(())
    }
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd, Failed> {
    let fd = step(
        "opening a socket",
        socket(
            family,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        ),
    )?;
    step(
        "setting SO_REUSEADDR",
        setsockopt(&fd, sockopt::ReuseAddr, &true),
    )?;
    Ok(fd)
}

// D-net-1 (docs/differences.md).
fn finish(fd: OwnedFd, bridge: &str, address: &dyn SockaddrLike) -> Result<UdpSocket, Failed> {
    if let Err(error) = setsockopt(&fd, sockopt::BindToDevice, &bridge.into()) {
        tracing::debug!(bridge, reason = %error, "The DHCP socket cannot be bound to the bridge; its packets are filtered only");
    }
    step("binding the port", bind(fd.as_raw_fd(), address))?;
    Ok(UdpSocket::from(fd))
}

fn to_std(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address
        .as_sockaddr_in()
        .map(|address| SocketAddr::from(*address));
    v4.or_else(|| {
        address
            .as_sockaddr_in6()
            .map(|address| SocketAddr::from(*address))
    })
}
