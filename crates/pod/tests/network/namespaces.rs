//! Phase 2 and its DHCP servers on real links, with real clients.
//!
//! It needs root, network namespaces, iproute2, and for two of the tests busybox and dhclient.
//! `bed` says how it is made.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test ends this way, and may wait for the programs that it runs"
)]

mod bed;
#[path = "../../../../tests/executable/mod.rs"]
mod executable;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use api::vmi::Vmi;
use bed::client::{Client, ask_v6};
use bed::{Bed, command};
use convert::Context;
use dhcproto::v4::MessageType::{Discover, Request};
use executable::write_script;
use pod::network::{NetworkPaths, NetworkRequest, NetworkSetup, Scope, names};
use serde_json::json;
use tokio::sync::Mutex;

const MAC: &str = "02:00:00:00:00:11";
const SECOND_MAC: &str = "02:00:00:00:00:22";
const ALL: Ipv4Addr = Ipv4Addr::BROADCAST;
const OFFER: u8 = 2;
const ACK: u8 = 5;

/// The VMI of a case.
fn vmi(case: &str) -> Vmi {
    let mut interfaces = vec![
        json!({"name": "default", "masquerade": {}, "macAddress": MAC, "dhcpOptions": {
        "tftpServerName": "tftp.example.com", "bootFileName": "boot.ipxe", "ntpServers": ["192.0.2.123"],
        "privateOptions": [{"option": 240, "value": "private.example"}]}}),
    ];
    let mut networks = vec![json!({"name": "default", "pod": {}})];
    if case == "masquerade and bridge" {
        interfaces.push(json!({"name": "blue", "bridge": {}, "macAddress": SECOND_MAC}));
        networks.push(json!({"name": "blue", "multus": {"networkName": "blue"}}));
    }
    let spec = json!({"subdomain": "sub", "networks": networks, "domain": {"devices": {"interfaces": interfaces}}});
    serde_json::from_value(json!({ "spec": spec })).unwrap()
}

/// Links of the pod's network as phase 1 makes them for masquerade.
fn masquerade(bed: &Bed) {
    bed.link("eth0", "out0", 1450, &["10.244.0.5/24", "fd00:244::5/64"]);
    bed.bridge(
        "k6t-eth0",
        &["10.0.2.1/24", "fd10:0:2::1/120", "fe80::1/64"],
        "tap0",
        "guest0",
        MAC,
    );
}

/// Links of a secondary network as phase 1 makes them for bridge, and what it saves.
fn bridge(bed: &Bed) {
    let link = names::hashed_link("blue");
    let (nic, bridge) = (names::bridged_nic(&link), names::bridge(&link));
    bed.link(&link, "out1", 1500, &[]);
    bed.link(&nic, "out2", 9000, &[]);
    bed.bridge(
        &bridge,
        &["169.254.75.11/32"],
        &link.replace("pod", "tap"),
        "guest1",
        SECOND_MAC,
    );
    let cache = r#"{"IP":{"IP":"192.168.7.2","Mask":"////AA=="},"IPv6":{},"MAC":"AgAAAAAi","Gateway":"192.168.7.1",
        "Routes":[{"Dst":null,"Gw":"192.168.7.1"},{"Dst":{"IP":"10.0.0.0","Mask":"/wAAAA=="},"Gw":"192.168.7.1"}]}"#;
    std::fs::write(bed.folder().join(format!("vif-cache-{link}.json")), cache).unwrap();
}

#[tokio::test]
#[ignore = "the server's process of the other tests"]
// On one thread, as the launcher.
async fn server_process() {
    let setup = Mutex::new(None);
    bed::serve_lines(async |case: &str, folder: &Path| {
        let paths = NetworkPaths {
            private: folder.to_owned(),
            resolv_conf: folder.join("resolv.conf"),
        };
        let mut setup = setup.lock().await;
        let setup = setup.get_or_insert_with(|| NetworkSetup::new(paths));
        let attachments = ["default", "blue"].map(|name| (name.to_owned(), "tap".to_owned()));
        let context = Context {
            domain_attachment_by_interface_name: attachments.into(),
            ..Context::default()
        };
        let request = NetworkRequest {
            vmi: &vmi(case),
            context: &context,
        };
        match setup.prepare(&request, Scope::All).await {
            Ok(taps) => taps
                .iter()
                .map(|tap| format!("{}={}/{}/{} ", tap.name, tap.device, tap.mtu, tap.mac))
                .collect(),
            Err(error) => format!("error: {error}"),
        }
    })
    .await;
}

#[test]
fn a_masqueraded_guest_gets_all_that_the_vmi_says() {
    bed::run("a_masqueraded_guest_gets_all_that_the_vmi_says", || {
        let bed = Bed::new();
        masquerade(&bed);
        let mut server = bed.serve("masquerade");
        assert_eq!(server.prepare(), format!("default=tap0/1450/{MAC}"));
        let client = Client::new(&bed.guest, "guest0", MAC);
        for (kind, reply, transaction) in [(Discover, OFFER, 1), (Request, ACK, 2)] {
            client.send(kind, transaction, ALL);
            let answer = client.receive();
            assert_eq!(
                (answer.kind, answer.transaction, answer.address),
                (reply, transaction, Ipv4Addr::new(10, 0, 2, 2))
            );
            assert_eq!(answer.from.to_string(), "10.0.2.1:67");
            let option = |code: u8| answer.options[&code].as_slice();
            assert_eq!(
                (option(1), option(3), option(54)),
                (
                    &[255, 255, 255, 0][..],
                    &[10, 0, 2, 1][..],
                    &[10, 0, 2, 1][..]
                )
            );
            assert_eq!(
                (option(6), option(26), option(42)),
                (
                    &[10, 96, 0, 10][..],
                    &1450u16.to_be_bytes()[..],
                    &[192, 0, 2, 123][..]
                )
            );
            assert_eq!(
                (option(15), option(66)),
                (&b"sub.ns.svc.cluster.local"[..], &b"tftp.example.com"[..])
            );
            assert_eq!(
                (option(67), option(240)),
                (&b"boot.ipxe"[..], &b"private.example"[..])
            );
            assert!(
                option(119)
                    .starts_with(b"\x03sub\x02ns\x03svc\x07cluster\x05local\x00\x02ns\x03svc")
            );
            assert_eq!(option(12), rustix::system::uname().nodename().to_bytes());
            assert_eq!(option(51), (999 * 24 * 3600u32).to_be_bytes());
        }
        assert!(bed.folder().join("dhcp_started-eth0").exists());
    });
}

#[test]
fn a_second_preparation_starts_no_second_server() {
    bed::run("a_second_preparation_starts_no_second_server", || {
        let bed = Bed::new();
        masquerade(&bed);
        let mut server = bed.serve("masquerade");
        server.prepare();
        let client = Client::new(&bed.guest, "guest0", MAC);
        client.send(Discover, 1, ALL);
        client.send(Request, 2, ALL);
        assert_eq!(
            (client.receive().kind, client.receive().kind),
            (OFFER, ACK),
            "one answer to each"
        );
        assert!(client.is_silent());
    });
}

#[test]
fn a_link_that_is_served_by_another_process_is_left_alone() {
    bed::run(
        "a_link_that_is_served_by_another_process_is_left_alone",
        || {
            let bed = Bed::new();
            masquerade(&bed);
            std::fs::write(bed.folder().join("dhcp_started-eth0"), "").unwrap();
            let _server = bed.serve("masquerade");
            // Both ports are still to be had without SO_REUSEADDR.
            for address in ["0.0.0.0:67", "[::]:547"] {
                drop(std::net::UdpSocket::bind(address).expect(address));
            }
        },
    );
}

#[test]
fn nobody_but_the_guest_is_answered() {
    bed::run("nobody_but_the_guest_is_answered", || {
        let bed = Bed::new();
        masquerade(&bed);
        let _server = bed.serve("masquerade");
        bed.outside.command("ip address add 10.244.0.9/24 dev out0");
        let outside = Client::new(&bed.outside, "out0", "02:00:00:00:00:99");
        let guest = Client::new(&bed.guest, "guest0", MAC);
        outside.send(Discover, 1, ALL);
        outside.send(Request, 2, Ipv4Addr::new(10, 244, 0, 5));
        guest.send(Discover, 3, ALL);
        assert_eq!(guest.receive().transaction, 3);
        assert!(outside.is_silent() && guest.is_silent());
    });
}

#[test]
fn a_bridged_guest_gets_the_pods_address() {
    bed::run("a_bridged_guest_gets_the_pods_address", || {
        let bed = Bed::new();
        masquerade(&bed);
        bridge(&bed);
        let mut server = bed.serve("masquerade and bridge");
        let tap = names::hashed_link("blue").replace("pod", "tap");
        assert_eq!(
            server.prepare(),
            format!("default=tap0/1450/{MAC} blue={tap}/1500/{SECOND_MAC}")
        );
        // On a bridged network others may ask too.
        let other = Client::new(&bed.guest, "guest1", "02:00:00:00:00:77");
        other.send(Discover, 1, ALL);
        drop(other);
        let guest = Client::new(&bed.guest, "guest1", SECOND_MAC);
        guest.send(Discover, 2, ALL);
        let answer = guest.receive();
        assert_eq!(
            (answer.transaction, answer.address),
            (2, Ipv4Addr::new(192, 168, 7, 2))
        );
        assert_eq!(answer.options[&54], [169, 254, 75, 11]);
        assert_eq!(answer.options[&26], 9000u16.to_be_bytes());
        assert_eq!(
            answer.options[&121],
            [8, 10, 192, 168, 7, 1, 0, 192, 168, 7, 1]
        );
    });
}

/// All servers listen on port 67. A renewal by unicast has to reach that of the NIC it came from.
#[test]
// D-net-1 (docs/differences.md).
fn a_unicast_reaches_the_server_of_its_nic() {
    bed::run("a_unicast_reaches_the_server_of_its_nic", || {
        let bed = Bed::new();
        masquerade(&bed);
        bridge(&bed);
        let _server = bed.serve("masquerade and bridge");
        let nics = [
            ("guest0", MAC, "10.0.2.2", "10.0.2.1"),
            ("guest1", SECOND_MAC, "169.254.75.99", "169.254.75.11"),
        ];
        for (transaction, (nic, mac, address, server)) in (1..).zip(nics) {
            bed.guest
                .command(&format!("ip address add {address}/24 dev {nic}"));
            // The way back to an address that only this test has given.
            let bridge = if nic == "guest0" {
                "k6t-eth0".to_owned()
            } else {
                names::bridge(&names::hashed_link("blue"))
            };
            command(&format!("ip route replace {address} dev {bridge}"));
            let client = Client::new(&bed.guest, nic, mac);
            client.send(Request, transaction, server.parse().unwrap());
            let answer = client.receive();
            assert_eq!(
                (answer.transaction, answer.kind, answer.from.to_string()),
                (transaction, ACK, format!("{server}:67"))
            );
        }
    });
}

#[test]
fn a_flood_of_garbage_changes_nothing() {
    bed::run("a_flood_of_garbage_changes_nothing", || {
        let bed = Bed::new();
        masquerade(&bed);
        let _server = bed.serve("masquerade");
        let client = Client::new(&bed.guest, "guest0", MAC);
        let mut bytes: Vec<u8> = (0..60_000u32)
            .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1])
            .collect();
        for length in (0..3000).map(|n| n * 7 % 1472) {
            // A full send buffer is no failure of a flood.
            drop(client.send_bytes(&bytes[..length], ALL));
            bytes.rotate_left(length + 1);
        }
        drop(client.send_bytes(&bytes, ALL));
        // A guest asks again when it gets no answer.
        for transaction in 1.. {
            client.send(Discover, transaction, ALL);
            std::thread::sleep(std::time::Duration::from_millis(100));
            if !client.is_silent() {
                break;
            }
            assert!(transaction < 300, "no answer for half a minute");
        }
    });
}

#[test]
// D-net-10 (docs/differences.md).
fn a_network_that_is_plugged_again_is_served_again() {
    bed::run("a_network_that_is_plugged_again_is_served_again", || {
        let bed = Bed::new();
        masquerade(&bed);
        let mut server = bed.serve("masquerade");
        command("ip link delete tap0");
        command("ip link delete k6t-eth0");
        assert!(
            server.prepare().contains("the pod has no link k6t-eth0"),
            "it is not there now"
        );
        bed.bridge(
            "k6t-eth0",
            &["10.0.2.1/24", "fe80::1/64"],
            "tap0",
            "guest0",
            MAC,
        );
        assert_eq!(server.prepare(), format!("default=tap0/1450/{MAC}"));
        let client = Client::new(&bed.guest, "guest0", MAC);
        client.send(Discover, 7, ALL);
        assert_eq!(client.receive().transaction, 7);
    });
}

#[test]
fn a_guest_gets_its_ipv6_address() {
    bed::run("a_guest_gets_its_ipv6_address", || {
        let bed = Bed::new();
        masquerade(&bed);
        let _server = bed.serve("masquerade");
        // Solicit: client identifier, one association.
        let solicit = [
            &[1, 9, 9, 9][..],
            &[0, 1, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0x11],
            &[0, 3, 0, 12, 0, 0, 0, 5],
            &[0; 8],
        ]
        .concat();
        let answer = ask_v6(&bed.guest, "guest0", &solicit);
        assert_eq!(answer[..4], [2, 9, 9, 9], "Advertise");
        let holds = |part: &[u8]| answer.windows(part.len()).any(|window| window == part);
        assert!(holds(
            &"fd10:0:2::2"
                .parse::<std::net::Ipv6Addr>()
                .unwrap()
                .octets()
        ));
        assert!(holds(
            &"fd00:96::a".parse::<std::net::Ipv6Addr>().unwrap().octets()
        ));
        assert!(
            holds(&[0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 0]),
            "the server is named by the bridge's MAC address"
        );
    });
}

/// Writes a program that clients call with what they have got in the environment.
fn hook(bed: &Bed) -> (String, String) {
    let (script, output) = (bed.folder().join("hook"), bed.folder().join("environment"));
    let text = format!(
        "#!/bin/sh\n{{ echo \"call=$1\"; env; }} >>{}\n",
        output.display()
    );
    write_script(&script, &text);
    (script.display().to_string(), output.display().to_string())
}

/// Asserts that the environment of a hook had these lines.
fn assert_lines(path: &str, lines: &[&str]) {
    let text = std::fs::read_to_string(path).unwrap();
    for line in lines {
        assert!(
            text.lines().any(|other| other.trim_end() == *line),
            "{line} is missing in:\n{text}"
        );
    }
}

#[test]
fn busyboxs_client_understands_the_lease() {
    bed::run("busyboxs_client_understands_the_lease", || {
        let Some(busybox) = bed::find("busybox") else {
            return bed::skip("there is no program busybox");
        };
        let bed = Bed::new();
        masquerade(&bed);
        let _server = bed.serve("masquerade");
        let (script, output) = hook(&bed);
        let options = "-O search -O mtu -O ntpsrv -O hostname -O tftp -O bootfile -O 0xf0";
        let udhcpc = format!(
            "{} udhcpc -i guest0 -f -q -n -t 10 {options} -s {script}",
            busybox.display()
        );
        bed.guest.command(&udhcpc);
        assert_lines(
            &output,
            &[
                "call=bound",
                "ip=10.0.2.2",
                "subnet=255.255.255.0",
                "router=10.0.2.1",
                "dns=10.96.0.10",
                "domain=sub.ns.svc.cluster.local",
                "search=sub.ns.svc.cluster.local ns.svc.cluster.local svc.cluster.local cluster.local",
                "mtu=1450",
                "ntpsrv=192.0.2.123",
                "tftp=tftp.example.com",
                "bootfile=boot.ipxe",
                "lease=86313600",
                "serverid=10.0.2.1",
            ],
        );
    });
}

#[test]
fn dhclient_understands_both_leases() {
    bed::run("dhclient_understands_both_leases", || {
        let Some(dhclient) = bed::find("dhclient") else {
            return bed::skip("there is no program dhclient");
        };
        let bed = Bed::new();
        masquerade(&bed);
        bridge(&bed);
        let _server = bed.serve("masquerade and bridge");
        for (family, nic, lines) in [
            (
                "-4",
                "guest0",
                &[
                    "reason=BOUND",
                    "new_ip_address=10.0.2.2",
                    "new_interface_mtu=1450",
                    "new_ntp_servers=192.0.2.123",
                ][..],
            ),
            (
                "-4",
                "guest1",
                &[
                    "new_ip_address=192.168.7.2",
                    "new_rfc3442_classless_static_routes=8 10 192 168 7 1 0 192 168 7 1",
                ],
            ),
            (
                "-6",
                "guest0",
                &[
                    "reason=BOUND6",
                    "new_ip6_address=fd10:0:2::2",
                    "new_dhcp6_name_servers=fd00:96::a",
                ],
            ),
        ] {
            let (script, output) = hook(&bed);
            std::fs::write(&output, "").unwrap();
            let files = format!(
                "-pf {0}/pid -lf {0}/leases{family} -cf {0}/conf",
                bed.folder().display()
            );
            let conf = "option rfc3442-classless-static-routes code 121 = array of unsigned integer 8;\n\
                also request rfc3442-classless-static-routes, interface-mtu, ntp-servers, domain-search;\n";
            std::fs::write(bed.folder().join("conf"), conf).unwrap();
            // nsenter becomes dhclient, so that ending it ends the client.
            let mut client = Command::new("nsenter");
            client.args(["--net", "--target", &bed.guest.pid().to_string()]);
            client.arg(&dhclient).args([family, "-1", "-d"]);
            client.args(files.split(' ')).args(["-sf", &script, nic]);
            bed::run_until(client, || {
                std::fs::read_to_string(&output).is_ok_and(|text| text.contains("new_ip"))
            });
            assert_lines(&output, lines);
        }
    });
}
