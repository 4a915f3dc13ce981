//! Names of links in the pod, as virt-handler and virt-controller give them.
//!
//! `eth0` (or another name of the primary network), `pod16477688c0e` (secondary, by hash), `net1`
//! (secondary, by position: pods of older KubeVirt releases).

use api::link_names::HASHED_PREFIX;
pub use api::link_names::{PRIMARY_LINK, hashed_link};

use api::vmi::networks::Network;

/// Names that the pod's link of `network` may have, the likeliest first. None if the network has no
/// link in the pod.
///
/// `networks` are all of the VMI, `pod_interface_name` is the interface's in the VMI's status
/// (`podInterfaceName`), or empty.
pub fn pod_links(
    networks: &[Network],
    network: &Network,
    pod_interface_name: &str,
) -> Option<Vec<String>> {
    if network.is_secondary() {
        let position = networks
            .iter()
            .filter(|other| other.is_secondary())
            .position(|other| other.name == network.name)?;
        return Some(vec![
            hashed_link(&network.name),
            format!("net{}", position + 1),
        ]);
    }
    let primary = networks.iter().find(|other| other.is_primary())?;
    if primary.name != network.name {
        return None;
    }
    if pod_interface_name.is_empty() || pod_interface_name == PRIMARY_LINK {
        return Some(vec![PRIMARY_LINK.to_owned()]);
    }
    Some(vec![pod_interface_name.to_owned(), PRIMARY_LINK.to_owned()])
}

/// The tap device between the guest's NIC and the bridge.
pub fn tap(pod_link: &str, network: &Network) -> String {
    api::link_names::tap(pod_link, network.is_secondary())
}

/// The bridge that the guest's tap is a port of, and on which DHCP is served.
pub fn bridge(pod_link: &str) -> String {
    format!(
        "k6t-{}",
        pod_link.strip_prefix(HASHED_PREFIX).unwrap_or(pod_link)
    )
}

/// The name of the pod's own NIC with a bridge binding. The link named `pod_link` is then a dummy
/// that holds the pod's address.
pub fn bridged_nic(pod_link: &str) -> String {
    format!(
        "{}-nic",
        pod_link.strip_prefix(HASHED_PREFIX).unwrap_or(pod_link)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::vmi::networks::{MultusNetwork, PodNetwork};

    fn multus(name: &str, default: bool) -> Network {
        Network {
            name: name.to_owned(),
            multus: Some(MultusNetwork { default }),
            ..Network::default()
        }
    }

    fn pod(name: &str) -> Network {
        Network {
            name: name.to_owned(),
            pod: Some(PodNetwork::default()),
            ..Network::default()
        }
    }

    #[test]
    fn names_fit_into_the_kernels_limit() {
        let link = hashed_link("blue");
        assert_eq!(
            link, "pod16477688c0e",
            "sha256 of \"blue\" begins 16477688c0e"
        );
        for name in [
            link.clone(),
            tap(&link, &multus("blue", false)),
            bridge(&link),
            bridged_nic(&link),
        ] {
            assert!(name.len() <= 15, "{name}");
        }
    }

    #[test]
    fn secondary_networks_count_from_one_without_the_primary() {
        let networks = [pod("default"), multus("red", false), multus("blue", false)];
        assert_eq!(
            pod_links(&networks, &networks[2], ""),
            Some(vec!["pod16477688c0e".to_owned(), "net2".to_owned()])
        );
    }

    #[test]
    fn the_status_names_the_primary_link() {
        let networks = [multus("red", false), multus("main", true)];
        assert_eq!(
            pod_links(&networks, &networks[1], ""),
            Some(vec!["eth0".to_owned()])
        );
        assert_eq!(
            pod_links(&networks, &networks[1], "ovn-udn1"),
            Some(vec!["ovn-udn1".to_owned(), "eth0".to_owned()])
        );
    }

    #[test]
    fn a_network_without_a_link_has_no_name() {
        let networks = [
            pod("default"),
            pod("second"),
            Network {
                name: "claim".to_owned(),
                ..Network::default()
            },
        ];
        assert_eq!(pod_links(&networks, &networks[1], ""), None);
        assert_eq!(pod_links(&networks, &networks[2], ""), None);
    }

    #[test]
    fn devices_are_named_after_the_pods_link() {
        assert_eq!(tap("net3", &multus("red", false)), "tap3");
        assert_eq!(tap("ovn-udn1", &pod("default")), "tap0");
        assert_eq!(
            (bridge("eth0"), bridged_nic("eth0")),
            ("k6t-eth0".to_owned(), "eth0-nic".to_owned())
        );
        assert_eq!(
            (bridge("pod16477688c0e"), bridged_nic("net1")),
            ("k6t-16477688c0e".to_owned(), "net1-nic".to_owned())
        );
    }
}
