use super::*;
use api::vmi::interfaces::DhcpPrivateOptions;

const GUEST: MacAddress = MacAddress([0x52, 0x54, 0, 1, 2, 3]);
const CLIENT_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 68);

fn config() -> Config {
    Config {
        interface: "default".to_owned(),
        client_mac: None,
        client: Ipv4Addr::new(10, 0, 2, 2),
        mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        server: Ipv4Addr::new(10, 0, 2, 1),
        router: Some(Ipv4Addr::new(10, 0, 2, 1)),
        nameservers: vec![Ipv4Addr::new(10, 96, 0, 10)],
        routes: Vec::new(),
        search_domains: vec!["cluster.local".to_owned()],
        mtu: 1500,
        host_name: "vm".to_owned(),
        custom: DhcpOptions::default(),
    }
}

fn private(option: i64, value: String) -> DhcpPrivateOptions {
    DhcpPrivateOptions { option, value }
}

fn packet(kind: MessageType, mac: MacAddress) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut request = Message::new_with_id(7, none, none, none, none, &mac.0);
    request.opts_mut().insert(DhcpOption::MessageType(kind));
    request.to_vec().unwrap()
}

/// The options of an answer, those of one code joined.
fn answer(config: &Config) -> BTreeMap<u8, Vec<u8>> {
    let answer = Server::new(config)
        .unwrap()
        .answer(&packet(MessageType::Discover, GUEST), CLIENT_PORT)
        .unwrap();
    let message = borrowed::Message::new(&answer.bytes).unwrap();
    message
        .opts()
        .map(|option| (option.code().into(), option.data().to_vec()))
        .collect()
}

#[test]
fn other_clients_get_no_answer() {
    let server = Server::new(&Config {
        client_mac: Some(GUEST),
        ..config()
    })
    .unwrap();
    let other = MacAddress([0x52, 0x54, 0, 9, 9, 9]);
    assert_eq!(
        server.answer(&packet(MessageType::Discover, other), CLIENT_PORT),
        Err(Ignored::OtherClient)
    );
    assert_eq!(
        server
            .answer(&packet(MessageType::Discover, GUEST), CLIENT_PORT)
            .unwrap()
            .kind,
        "DHCPOFFER"
    );
    assert_eq!(
        server
            .answer(&packet(MessageType::Request, GUEST), CLIENT_PORT)
            .unwrap()
            .kind,
        "DHCPACK"
    );
}

#[test]
// D-net-8 (docs/differences.md).
fn what_is_not_asked_gets_no_answer() {
    let server = Server::new(&config()).unwrap();
    assert_eq!(
        server.answer(&packet(MessageType::Release, GUEST), CLIENT_PORT),
        Err(Ignored::Kind(7))
    );
    let reply = server
        .answer(&packet(MessageType::Discover, GUEST), CLIENT_PORT)
        .unwrap()
        .bytes;
    assert_eq!(
        server.answer(&reply, CLIENT_PORT),
        Err(Ignored::Malformed),
        "two servers must not answer each other"
    );
    let mut no_cookie = packet(MessageType::Discover, GUEST);
    no_cookie[236] = 0;
    assert_eq!(
        server.answer(&no_cookie, CLIENT_PORT),
        Err(Ignored::Malformed)
    );
    for length in 0..packet(MessageType::Discover, GUEST).len() - 4 {
        assert!(
            server
                .answer(&packet(MessageType::Discover, GUEST)[..length], CLIENT_PORT)
                .is_err(),
            "{length} bytes"
        );
    }
}

#[test]
fn a_guest_with_an_address_is_answered_there() {
    let server = Server::new(&config()).unwrap();
    let from: SocketAddr = "10.0.2.2:68".parse().unwrap();
    assert_eq!(
        server
            .answer(&packet(MessageType::Request, GUEST), from)
            .unwrap()
            .to,
        from
    );
    let broadcast = server
        .answer(&packet(MessageType::Request, GUEST), CLIENT_PORT)
        .unwrap()
        .to;
    assert_eq!(broadcast.to_string(), "255.255.255.255:68");
}

#[test]
fn the_default_route_comes_last() {
    let route = |destination, last| Route {
        destination,
        gateway: Ipv4Addr::new(10, 0, 0, last),
    };
    let routes = vec![
        route(None, 1),
        route(Some((Ipv4Addr::new(192, 168, 128, 0), 17)), 2),
        route(Some((Ipv4Addr::new(10, 0, 0, 0), 8)), 3),
        route(Some((Ipv4Addr::new(1, 2, 3, 4), 32)), 4),
    ];
    let expected = [
        17, 192, 168, 128, 10, 0, 0, 2, 8, 10, 10, 0, 0, 3, 32, 1, 2, 3, 4, 10, 0, 0, 4, 0, 10, 0,
        0, 1,
    ]
    .as_slice();
    assert_eq!(answer(&Config { routes, ..config() })[&121], expected);
}

#[test]
// D-net-3 (docs/differences.md).
fn long_options_are_split_and_lose_nothing() {
    let domains: Vec<String> = (0..20)
        .map(|n| format!("domain-{n:02}.some-namespace.example.com"))
        .collect();
    let value = "v".repeat(1000);
    let custom = DhcpOptions {
        private_options: vec![private(224, value.clone())],
        ..DhcpOptions::default()
    };
    let options = answer(&Config {
        search_domains: domains.clone(),
        custom,
        ..config()
    });
    assert_eq!(options[&224], value.as_bytes());
    assert_eq!(
        options[&119],
        domains
            .iter()
            .flat_map(|domain| domain_octets(domain))
            .collect::<Vec<_>>()
    );
    assert!(options[&119].len() > 255);
}

#[test]
fn options_that_no_datagram_holds_are_refused() {
    let private_options = (224..255)
        .map(|code| private(code, "v".repeat(3000)))
        .collect();
    let config = Config {
        custom: DhcpOptions {
            private_options,
            ..DhcpOptions::default()
        },
        ..config()
    };
    assert!(matches!(
        Server::new(&config),
        Err(NetworkError::OptionsTooLong {
            bytes: 90_000..,
            limit: 65_507,
            ..
        })
    ));
}

#[test]
// D-net-4 (docs/differences.md).
fn what_is_not_there_is_not_sent() {
    let empty = Config {
        mask: None,
        router: None,
        nameservers: Vec::new(),
        host_name: String::new(),
        ..config()
    };
    assert_eq!(
        answer(&empty).into_keys().collect::<Vec<_>>(),
        [15, 26, 51, 53, 54, 119]
    );
}

/// An empty name at the end of the list, as of a trailing dot, makes some clients drop the whole
/// list.
#[test]
// D-net-6 (docs/differences.md).
fn a_trailing_dot_is_no_further_domain() {
    let options = answer(&Config {
        search_domains: vec!["a.example.".to_owned(), ".".to_owned()],
        ..config()
    });
    assert_eq!(options[&119], b"\x01a\x07example\x00");
}

#[test]
// D-net-7 (docs/differences.md).
fn ntp_servers_are_ipv4_addresses() {
    let with = |server: &str| {
        let custom = DhcpOptions {
            ntp_servers: vec!["192.0.2.1".to_owned(), server.to_owned()],
            ..DhcpOptions::default()
        };
        Server::new(&Config { custom, ..config() })
    };
    assert!(with("::ffff:10.0.0.1").is_ok());
    for name in ["ntp.example.com", "2001:db8::1", ""] {
        assert!(
            matches!(with(name), Err(NetworkError::InvalidNtpServer { server, .. }) if server == name)
        );
    }
}
