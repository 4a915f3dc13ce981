//! Clients that send any packet from the guest's namespace, and see each answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use dhcproto::v4::{DhcpOption, Encodable, Flags, Message, MessageType, OptionCode, borrowed};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Namespace;

/// How long an answer may take before the test fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A DHCPv4 client on one NIC.
pub struct Client {
    socket: UdpSocket,
    mac: [u8; 6],
}

/// An answer of a server.
#[derive(Debug)]
pub struct Reply {
    pub from: SocketAddr,
    pub kind: u8,
    pub transaction: u32,
    pub address: Ipv4Addr,
    pub options: BTreeMap<u8, Vec<u8>>,
}

/// Makes something in a namespace. Sockets stay there.
pub fn in_namespace<T: Send>(namespace: &Namespace, make: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/proc/{}/ns/net", namespace.pid())).unwrap();
    // A thread of its own, because a thread that has moved stays there.
    let make = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        make()
    };
    std::thread::scope(|scope| scope.spawn(make).join().unwrap())
}

fn socket(namespace: &Namespace, nic: &str, address: &str) -> UdpSocket {
    let socket = in_namespace(namespace, || {
        // A guest without an address cannot say whether the server's is reachable.
        for name in ["all", nic] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0").unwrap();
        }
        UdpSocket::bind(address).unwrap()
    });
    setsockopt(&socket, sockopt::BindToDevice, &nic.into()).unwrap();
    socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    socket
}

impl Client {
    /// On a NIC of the guest, or of the pod itself.
    pub fn new(namespace: &Namespace, nic: &str, mac: &str) -> Self {
        let socket = socket(namespace, nic, "0.0.0.0:68");
        socket.set_broadcast(true).unwrap();
        let mac = mac.parse::<pod::network::MacAddress>().unwrap().0;
        Self { socket, mac }
    }

    /// Sends a message to all servers of the link, who are to answer by broadcast, or to one.
    pub fn send(&self, kind: MessageType, transaction: u32, to: Ipv4Addr) {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(transaction, none, none, none, none, &self.mac);
        message.opts_mut().insert(DhcpOption::MessageType(kind));
        if to == Ipv4Addr::BROADCAST {
            message.set_flags(Flags::default().set_broadcast());
        }
        self.send_bytes(&message.to_vec().unwrap(), to).unwrap();
    }

    /// Sends bytes.
    pub fn send_bytes(&self, bytes: &[u8], to: Ipv4Addr) -> io::Result<()> {
        self.socket.send_to(bytes, (to, 67)).map(drop)
    }

    /// The next answer.
    pub fn receive(&self) -> Reply {
        let mut buffer = [0; 65536];
        let (length, from) = self.socket.recv_from(&mut buffer).expect("an answer");
        let message = borrowed::Message::new(&buffer[..length]).unwrap();
        let options: BTreeMap<u8, Vec<u8>> = message
            .opts()
            .map(|option| (option.code().into(), option.data().to_vec()))
            .collect();
        let kind = options[&u8::from(OptionCode::MessageType)][0];
        Reply {
            from,
            kind,
            transaction: message.xid(),
            address: message.yiaddr(),
            options,
        }
    }

    /// Whether nothing has come in.
    pub fn is_silent(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let received = self.socket.recv_from(&mut [0; 1]);
        self.socket.set_nonblocking(false).unwrap();
        received.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// A DHCPv6 client on one NIC: sends `packet` to the servers of the link, and returns the answer.
pub fn ask_v6(namespace: &Namespace, nic: &str, packet: &[u8]) -> Vec<u8> {
    let socket = socket(namespace, nic, "[::]:546");
    // The socket is bound to the NIC, so the address needs no scope.
    socket
        .send_to(packet, (pod::network::dhcp6::SERVERS, 547))
        .unwrap();
    let mut buffer = [0; 65536];
    let (length, _) = socket.recv_from(&mut buffer).expect("an answer");
    buffer[..length].to_vec()
}
