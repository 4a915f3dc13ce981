//! Network phase 2 of a VMI: puts its interfaces' tap devices into the domain, and runs DHCP
//! servers for its guest.

use api::vmi::Vmi;
use convert::Context;
use convert::plan::{InterfacePlan, InterfaceWhy};
use domain::DomainSpec;
use domain::alias::Alias;
use domain::interfaces::{Interface, InterfaceTarget, Mac, Mtu};
use pod::network::{
    NetworkError, NetworkPaths, NetworkRequest, NetworkSetup, PodLinks, Scope, TapInterface,
};

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use api::pod_paths::{PRIVATE_DIR, RESOLV_CONF};

/// Phase 2 of the pod's network. Owns the guest's DHCP servers, which end with it.
pub(super) struct PodNetwork {
    setup: Mutex<NetworkSetup>,
    /// Whether the servers of all interfaces have been started.
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
        let taps = self.ensure_taps(vmi, context, Scope::All).await?;
        self.is_set_up.store(true, Ordering::Relaxed);
        complete_interfaces(domain, taps);
        Ok(())
    }

    /// Starts the DHCP servers for a running guest, as its earlier launcher did: the guest asks
    /// them again when half of its lease is over.
    pub async fn ensure_dhcp_servers(&self, vmi: &Vmi, context: &Context) {
        if self.is_set_up.load(Ordering::Relaxed) {
            return;
        }
        let mut is_set_up = true;
        let interfaces = vmi.spec.domain.devices.interfaces.iter();
        for interface in interfaces.filter(|one| one.state != "absent") {
            // One that is about to be plugged in has no link yet.
            let taps = self.ensure_taps(vmi, context, Scope::Network(&interface.name));
            if let Err(error) = taps.await {
                is_set_up = false;
                tracing::warn!(reason = %os::logging::chain(&error), "An interface of the guest has no DHCP server; the next sync tries again");
            }
        }
        self.is_set_up.store(is_set_up, Ordering::Relaxed);
    }

    /// Returns the tap devices of `scope`, and starts the guest's DHCP servers unless they run.
    pub async fn ensure_taps(
        &self,
        vmi: &Vmi,
        context: &Context,
        scope: Scope<'_>,
    ) -> Result<Vec<TapInterface>, NetworkError> {
        let request = NetworkRequest { vmi, context };
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
    let (request, links) = (NetworkRequest { vmi, context }, PodLinks::read().await);
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
pub(super) fn complete_interface(interface: &mut Interface, tap: TapInterface) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
