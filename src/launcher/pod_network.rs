//! Network phase 2 of a VMI: puts its interfaces' tap devices into the domain, and runs DHCP
//! servers for its guest.

use api::vmi::Vmi;
use api::vmi::interfaces::{DhcpOptions as VmiDhcpOptions, Interface as VmiInterface};
use api::vmi::networks::Network as VmiNetwork;
use convert::Context;
use convert::plan::{InterfacePlan, InterfaceWhy};
use domain::DomainSpec;
use domain::alias::Alias;
use domain::interfaces::{Interface as DomainInterface, InterfaceTarget, Mac, Mtu};
use pod::network::{
    Binding, DhcpOptions, Interface, Network, NetworkError, NetworkPaths, NetworkRequest,
    NetworkSetup, NetworkSource, PodLinks, Scope, TapInterface,
};

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use api::pod_paths::{PRIVATE_DIR, RESOLV_CONF};

/// virt-handler's name for attachment by a tap device.
const TAP_ATTACHMENT: &str = "tap";

/// Phase 2 of the pod's network. Owns the guest's DHCP servers, which end with it.
pub(super) struct PodNetwork {
    setup: Mutex<NetworkSetup>,
    /// Whether the guest's servers run.
    is_set_up: AtomicBool,
}

impl PodNetwork {
    /// The network of the pod below `root`. An earlier launcher's servers have ended with it, so
    /// their markers are removed.
    pub fn new(root: &pod::Root) -> Self {
        let setup = NetworkSetup::new(NetworkPaths {
            private: root.path(PRIVATE_DIR),
            resolv_conf: RESOLV_CONF.into(),
        });
        setup.forget_servers();
        Self {
            setup: Mutex::new(setup),
            is_set_up: AtomicBool::new(false),
        }
    }

    /// Completes the converted domain with the tap devices of all interfaces that are not absent,
    /// and starts the guest's DHCP servers unless they run.
    pub async fn set_up(
        &self,
        vmi: &Vmi,
        context: &Context,
        domain: &mut DomainSpec,
    ) -> Result<(), NetworkError> {
        let taps = self.taps(vmi, context, Scope::All).await?;
        self.is_set_up.store(true, Ordering::Relaxed);
        complete_interfaces(domain, taps);
        Ok(())
    }

    /// Starts the DHCP servers for a running guest, as its earlier launcher did: the guest asks
    /// them again when half of its lease is over.
    pub async fn adopt(&self, vmi: &Vmi, context: &Context) {
        if self.is_set_up.load(Ordering::Relaxed) {
            return;
        }
        let mut is_set_up = true;
        let interfaces = vmi.spec.domain.devices.interfaces.iter();
        for interface in interfaces.filter(|one| one.state != "absent") {
            // One that is about to be plugged in has no link yet.
            let taps = self.taps(vmi, context, Scope::Network(&interface.name));
            if let Err(error) = taps.await {
                is_set_up = false;
                tracing::warn!(reason = %os::logging::chain(&error), "An interface of the guest has no DHCP server; the next sync tries again");
            }
        }
        self.is_set_up.store(is_set_up, Ordering::Relaxed);
    }

    /// Returns the tap devices of `scope`, and starts the guest's DHCP servers unless they run.
    pub async fn taps(
        &self,
        vmi: &Vmi,
        context: &Context,
        scope: Scope<'_>,
    ) -> Result<Vec<TapInterface>, NetworkError> {
        let request = network_request(vmi, context);
        self.setup.lock().await.prepare(&request, scope).await
    }

    /// Ends the DHCP servers of interfaces for which `stays` is false.
    pub async fn retain_servers(&self, stays: impl Fn(&str) -> bool) {
        self.setup.lock().await.retain_servers(stays);
    }
}

/// Completes the plan's interfaces to plug in, as libvirt would get them. Starts nothing; defers an
/// interface that virt-handler has not prepared.
pub(super) async fn with_taps(
    vmi: &Vmi,
    context: &Context,
    mut plan: InterfacePlan,
) -> InterfacePlan {
    if plan.attach.is_empty() {
        return plan;
    }
    let (request, links) = (network_request(vmi, context), PodLinks::read().await);
    for mut change in std::mem::take(&mut plan.attach) {
        let name = change.why.name();
        let planned = match &links {
            Ok(links) => pod::network::plan::plan(&request, Scope::Network(name), links)
                .map_err(|error| os::logging::chain(&error)),
            Err(error) => Err(os::logging::chain(error)),
        };
        match planned {
            Ok(planned) => {
                for planned in planned {
                    complete_interface(&mut change.interface, planned.tap);
                }
                plan.attach.push(change);
            }
            Err(reason) => plan.deferred.push(InterfaceWhy::NotReady {
                name: name.into(),
                reason,
            }),
        }
    }
    plan
}

/// Completes the interfaces of these tap devices.
fn complete_interfaces(domain: &mut DomainSpec, taps: Vec<TapInterface>) {
    for tap in taps {
        let is_named = |alias: &Alias| alias.name == tap.name;
        let mut interfaces = domain.devices.interfaces.iter_mut();
        let interface = interfaces.find(|interface| interface.alias.as_ref().is_some_and(is_named));
        if let Some(interface) = interface {
            complete_interface(interface, tap);
        }
    }
}

/// Sets MTU, MAC address and target ([`api::link_names::tap`] names the tap device).
pub(super) fn complete_interface(interface: &mut DomainInterface, tap: TapInterface) {
    interface.target = Some(InterfaceTarget {
        device: tap.device,
        managed: "no".into(),
    });
    interface.mtu = Some(Mtu {
        size: tap.mtu.to_string(),
    });
    interface.mac = Some(Mac {
        mac: tap.mac.to_string(),
    });
}

fn network_request(vmi: &Vmi, context: &Context) -> NetworkRequest {
    let interfaces = vmi.spec.domain.devices.interfaces.iter();
    NetworkRequest {
        interfaces: interfaces.map(|one| interface(one, vmi, context)).collect(),
        networks: vmi.spec.networks.iter().map(network).collect(),
        subdomain: vmi.spec.subdomain.to_string(),
    }
}

fn interface(interface: &VmiInterface, vmi: &Vmi, context: &Context) -> Interface {
    let attachment = context
        .domain_attachment_by_interface_name
        .get(&interface.name);
    let mut statuses = vmi.status.interfaces.iter();
    let status = statuses.find(|status| status.name == interface.name);
    Interface {
        name: interface.name.to_string(),
        binding: if interface.bridge.is_some() {
            Binding::Bridge
        } else if interface.masquerade.is_some() {
            Binding::Masquerade
        } else {
            Binding::Other
        },
        tap: attachment.is_some_and(|attachment| attachment == TAP_ATTACHMENT),
        absent: interface.state == "absent",
        mac_address: interface.mac_address.to_string(),
        pod_interface_name: status
            .map(|one| one.pod_interface_name.to_string())
            .unwrap_or_default(),
        dhcp_options: interface
            .dhcp_options
            .as_ref()
            .map(dhcp_options)
            .unwrap_or_default(),
    }
}

fn dhcp_options(options: &VmiDhcpOptions) -> DhcpOptions {
    let private = options.private_options.iter();
    DhcpOptions {
        tftp_server_name: options.tftp_server_name.to_string(),
        boot_file_name: options.boot_file_name.to_string(),
        ntp_servers: options
            .ntp_servers
            .iter()
            .map(ToString::to_string)
            .collect(),
        private_options: private
            .map(|one| (one.option, one.value.to_string()))
            .collect(),
    }
}

fn network(network: &VmiNetwork) -> Network {
    let source = match (&network.pod, &network.multus) {
        (Some(pod), _) => NetworkSource::Pod {
            vm_network_cidr: pod.vm_network_cidr.to_string(),
            vm_ipv6_network_cidr: pod.vm_i_pv6_network_cidr.to_string(),
        },
        (None, Some(multus)) => NetworkSource::Multus {
            default: multus.default,
        },
        (None, None) => NetworkSource::Other,
    };
    Network {
        name: network.name.to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vmi() -> Vmi {
        let interfaces = json!([
            {"name": "default", "masquerade": {}, "macAddress": "02:00:00:00:00:01", "dhcpOptions": {
                "bootFileName": "boot", "tftpServerName": "tftp", "ntpServers": ["192.0.2.1"],
                "privateOptions": [{"option": 240, "value": "x"}]}},
            {"name": "blue", "bridge": {}, "state": "absent"},
            {"name": "passt", "passtBinding": {}},
            {"name": "plugin", "binding": {"name": "p"}}]);
        let networks = json!([
            {"name": "default", "pod": {"vmNetworkCIDR": "10.0.9.0/24", "vmIPv6NetworkCIDR": "fd00::/64"}},
            {"name": "blue", "multus": {"networkName": "n"}},
            {"name": "passt", "multus": {"networkName": "n", "default": true}},
            {"name": "plugin", "resourceClaim": {"claimName": "c", "requestName": "r"}}]);
        serde_json::from_value(json!({
            "spec": {"subdomain": "sub", "networks": networks, "domain": {"devices": {"interfaces": interfaces}}},
            "status": {"interfaces": [{"name": "default", "podInterfaceName": "ovn-udn1"}]}}))
        .unwrap()
    }

    fn context() -> Context {
        let attachments = [
            ("default", "tap"),
            ("blue", "tap"),
            ("plugin", "managedTap"),
        ];
        Context {
            domain_attachment_by_interface_name: attachments
                .map(|(name, attachment)| (name.into(), attachment.into()))
                .into(),
            ..Context::default()
        }
    }

    #[test]
    fn the_vmi_is_asked_for_all_that_phase_2_needs() {
        let request = network_request(&vmi(), &context());
        let options = DhcpOptions {
            tftp_server_name: "tftp".to_owned(),
            boot_file_name: "boot".to_owned(),
            ntp_servers: vec!["192.0.2.1".to_owned()],
            private_options: vec![(240, "x".to_owned())],
        };
        let interface = |name: &str, binding, tap, absent| Interface {
            name: name.to_owned(),
            binding,
            tap,
            absent,
            mac_address: String::new(),
            pod_interface_name: String::new(),
            dhcp_options: DhcpOptions::default(),
        };
        let default = Interface {
            mac_address: "02:00:00:00:00:01".to_owned(),
            pod_interface_name: "ovn-udn1".to_owned(),
            dhcp_options: options,
            ..interface("default", Binding::Masquerade, true, false)
        };
        let others = [
            interface("blue", Binding::Bridge, true, true),
            interface("passt", Binding::Other, false, false),
            interface("plugin", Binding::Other, false, false),
        ];
        assert_eq!(request.interfaces, [vec![default], others.into()].concat());
        let sources: Vec<_> = request.networks.into_iter().map(|one| one.source).collect();
        let pod = NetworkSource::Pod {
            vm_network_cidr: "10.0.9.0/24".to_owned(),
            vm_ipv6_network_cidr: "fd00::/64".to_owned(),
        };
        let multus = |default| NetworkSource::Multus { default };
        assert_eq!(
            sources,
            [pod, multus(false), multus(true), NetworkSource::Other]
        );
        assert_eq!(request.subdomain, "sub");
    }

    #[test]
    fn only_the_interface_of_a_tap_is_completed() {
        let xml = "<domain><devices>\
            <interface type='ethernet'><source/><model type='virtio'/><alias name='ua-default'/></interface>\
            <interface type='vhostuser'><source/><mac address='02:00:00:00:00:09'/><alias name='ua-passt'/></interface>\
            </devices></domain>";
        let mut domain = DomainSpec::from_xml(xml).unwrap();
        let untouched = domain.devices.interfaces[1].clone();
        let tap = TapInterface {
            name: "default".to_owned(),
            device: "tap0".to_owned(),
            mtu: 1450,
            mac: "02-00-00-00-00-0A".parse().unwrap(),
        };
        complete_interfaces(&mut domain, vec![tap]);
        let text = domain.to_xml();
        for part in [
            r#"<target dev="tap0" managed="no""#,
            r#"<mtu size="1450""#,
            r#"<mac address="02:00:00:00:00:0a""#,
        ] {
            assert_eq!(text.matches(part).count(), 1, "{part} in {text}");
        }
        assert_eq!(domain.devices.interfaces[1], untouched);
    }
}
