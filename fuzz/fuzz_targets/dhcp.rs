//! Gives both DHCP servers a packet from a guest.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};

use api::vmi::interfaces::DhcpOptions;
use dhcproto::v4::{Opcode, borrowed};
use libfuzzer_sys::fuzz_target;
use pod::network::{MacAddress, dhcp4, dhcp6};

fuzz_target!(|data: &[u8]| {
    let (v4, v6) = servers();
    let from = SocketAddr::from(([0, 0, 0, 0], 68));
    if let Ok(answer) = v4.answer(data, from) {
        let reply = borrowed::Message::new(&answer.bytes).expect("what we write can be read");
        let request = borrowed::Message::new(data).expect("what is answered can be read");
        assert_eq!(reply.opcode(), Opcode::BootReply);
        assert_eq!(reply.xid(), request.xid());
        assert_eq!(
            reply.opts().count(),
            10,
            "the guest does not choose what it gets"
        );
        assert!(
            v4.answer(&answer.bytes, from).is_err(),
            "an answer is not a request"
        );
    }
    if let Ok(answer) = v6.answer(data, from) {
        assert_eq!(answer.bytes.get(1..4), data.get(1..4));
        assert!(
            answer.bytes.len() < 300,
            "the guest does not choose what it gets"
        );
    }
});

fn servers() -> (dhcp4::Server, dhcp6::Server) {
    let server = Ipv4Addr::new(10, 0, 2, 1);
    let v4 = dhcp4::Config {
        interface: "default".to_owned(),
        client_mac: None,
        client: Ipv4Addr::new(10, 0, 2, 2),
        mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        server,
        router: Some(server),
        nameservers: vec![server],
        routes: Vec::new(),
        search_domains: vec!["cluster.local".to_owned()],
        mtu: 1500,
        host_name: "vm".to_owned(),
        custom: DhcpOptions::default(),
    };
    let client = "fd10:0:2::2".parse().expect("an address");
    let nameservers = vec!["fd00::a".parse().expect("an address")];
    let v6 = dhcp6::Server::new(
        dhcp6::Config {
            client,
            nameservers,
        },
        MacAddress([2; 6]),
    );
    (dhcp4::Server::new(&v4).expect("a small configuration"), v6)
}
