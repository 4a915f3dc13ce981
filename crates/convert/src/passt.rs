//! `<portForward>` (port forwarding) of interfaces with the passt binding. `passt` in
//! `interfaces.rs` chooses backend and type (`vhostuser`).

use api::vmi::interfaces::Interface;
use domain::YesNo;
use domain::interfaces::{InterfacePortForward, InterfacePortForwardRange};

/// The annotation of a pod with Istio's proxy: the proxy's ports must not be forwarded.
pub(super) const ISTIO_INJECT: &str = "sidecar.istio.io/inject";

/// Ports of Istio's proxy
/// (<https://istio.io/latest/docs/ops/deployment/application-requirements/>).
const ISTIO_PORTS: [u64; 10] = [
    15000, 15001, 15004, 15006, 15008, 15009, 15020, 15021, 15053, 15090,
];

/// The ports asked for, by protocol; without any (of a known protocol) all TCP and UDP ports.
/// Istio's ports are excluded as TCP ports, so that there is a TCP list then in any case.
pub(super) fn port_forward(iface: &Interface, istio: bool) -> Vec<InterfacePortForward> {
    let port = |start| InterfacePortForwardRange {
        start,
        ..InterfacePortForwardRange::default()
    };
    let mut tcp = Vec::new();
    if istio {
        tcp.extend(ISTIO_PORTS.map(|start| InterfacePortForwardRange {
            exclude: YesNo::Yes,
            ..port(start)
        }));
    }
    let mut udp = Vec::new();
    for wanted in &iface.ports {
        let Ok(number) = u64::try_from(wanted.port) else {
            continue;
        };
        if wanted.protocol.is_empty() || wanted.protocol.eq_ignore_ascii_case("tcp") {
            tcp.push(port(number));
        } else if wanted.protocol.eq_ignore_ascii_case("udp") {
            udp.push(port(number));
        }
    }
    let forward = |proto, ranges| InterfacePortForward {
        proto: String::from(proto),
        ranges,
        ..InterfacePortForward::default()
    };
    let all = tcp.is_empty() && udp.is_empty();
    [("tcp", tcp), ("udp", udp)]
        .into_iter()
        .filter(|(_, ranges)| all || !ranges.is_empty())
        .map(|(proto, ranges)| forward(proto, ranges))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tcp 80 443; udp 53`, exclusions as `-15000`.
    fn forwards(ports: &str, istio: bool) -> String {
        let iface: Interface = serde_json::from_str(&format!(r#"{{"ports":[{ports}]}}"#)).unwrap();
        let range = |range: &InterfacePortForwardRange| {
            format!(
                " {}{}",
                if range.exclude == YesNo::Yes { "-" } else { "" },
                range.start
            )
        };
        let forward = |f: &InterfacePortForward| {
            format!(
                "{}{}",
                f.proto,
                f.ranges.iter().map(range).collect::<String>()
            )
        };
        port_forward(&iface, istio)
            .iter()
            .map(forward)
            .collect::<Vec<_>>()
            .join("; ")
    }

    #[test]
    fn without_ports_everything_is_forwarded() {
        assert_eq!(forwards("", false), "tcp; udp");
        assert_eq!(
            forwards(r#"{"protocol":"SCTP","port":9},{"port":-1}"#, false),
            "tcp; udp"
        );
    }

    #[test]
    fn ports_are_tcp_unless_they_say_otherwise() {
        assert_eq!(
            forwards(
                r#"{"port":80},{"protocol":"Udp","port":53},{"protocol":"TCP","port":443}"#,
                false
            ),
            "tcp 80 443; udp 53"
        );
    }

    #[test]
    fn istio_adds_a_tcp_list_to_udp_ports() {
        let forwards = forwards(r#"{"protocol":"UDP","port":53}"#, true);
        assert!(
            forwards.starts_with("tcp -15000 -15001") && forwards.ends_with("-15090; udp 53"),
            "{forwards}"
        );
    }
}
