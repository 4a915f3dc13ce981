//! The files that a DHCP server reads (virt-handler's JSON, `resolv.conf`):
//! `CACHE<NUL>RESOLV_CONF`.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};

use api::vmi::interfaces::DhcpOptions;
use dhcproto::v4::{DhcpOption, Encodable, Message, MessageType};
use libfuzzer_sys::fuzz_target;
use pod::network::{CachedAddress, ResolvConf, dhcp4};

fuzz_target!(|data: &[u8]| {
    let Some(at) = data.iter().position(|&byte| byte == 0) else {
        return;
    };
    let resolv_conf = ResolvConf::parse(&String::from_utf8_lossy(&data[at + 1..]));
    let Ok(cached) = CachedAddress::parse(&data[..at]) else {
        return;
    };
    let Some((client, mask)) = cached.ipv4 else {
        return;
    };
    let config = dhcp4::Config {
        interface: "default".to_owned(),
        client_mac: None,
        client,
        mask,
        server: Ipv4Addr::new(169, 254, 75, 10),
        router: cached.gateway,
        nameservers: resolv_conf.ipv4.clone(),
        routes: cached.routes,
        search_domains: resolv_conf.search_domains_of("sub"),
        mtu: 1500,
        host_name: "vm".to_owned(),
        custom: DhcpOptions::default(),
    };
    let Ok(server) = dhcp4::Server::new(&config) else {
        return;
    };
    let none = Ipv4Addr::UNSPECIFIED;
    let mut discover = Message::new_with_id(1, none, none, none, none, &[2; 6]);
    discover
        .opts_mut()
        .insert(DhcpOption::MessageType(MessageType::Discover));
    let discover = discover.to_vec().expect("a small message");
    let answer = server.answer(&discover, SocketAddr::from(([0, 0, 0, 0], 68)));
    check_options(&answer.expect("an answer").bytes[240..]);
});

/// Checks that each option has its length, and that only zeros follow the end mark.
fn check_options(mut options: &[u8]) {
    while let [code, length, rest @ ..] = options
        && *code != 255
    {
        assert!(*length > 0, "option {code} is empty");
        options = rest
            .get(usize::from(*length)..)
            .expect("an option is whole");
    }
    assert_eq!(options.first(), Some(&255), "there is an end mark");
    assert!(options[1..].iter().all(|byte| *byte == 0));
}
