//! Changes the network interfaces of the running domain. Before one is plugged in, network phase 2
//! makes its tap device; the DHCP servers of those that are gone end.

use std::sync::Mutex;

use super::detach::{DetachRequests, attach, detach};
use super::error::DeviceFailure;
use crate::launcher::pod_network::{PodNetwork, complete_interface};
use api::vmi::Vmi;
use convert::Context;
use convert::plan::{InterfaceChange, InterfacePlan, InterfaceWhy, Verb};
use domain::DomainSpec;
use domain::alias::Alias;
use pod::network::Scope;

/// Network phase 2 of the interfaces to plug into the `live` domain. Returns the failures; the
/// interfaces that have failed are no longer in the plan.
// D-net-12, D-net-13 (docs/differences.md).
pub(super) async fn prepare(
    network: &PodNetwork,
    vmi: &Vmi,
    context: &Context,
    live: &DomainSpec,
    plan: &mut InterfacePlan,
) -> Vec<DeviceFailure> {
    let mut failures = log_deferred(&plan.deferred);
    let stays = |name: &str| has_interface(live, plan, name);
    network.retain_servers(stays).await;
    for mut change in std::mem::take(&mut plan.attach) {
        let scope = Scope::Network(change.why.name());
        match network.ensure_taps(vmi, context, scope).await {
            Ok(taps) => {
                // The list is empty for an interface without a tap, such as passt.
                for tap in taps {
                    complete_interface(&mut change.interface, tap);
                }
                plan.attach.push(change);
            }
            Err(error) => failures.push(DeviceFailure::Network(error)),
        }
    }
    failures
}

/// Logs deferred changes. Returns those that a later sync could not make either.
fn log_deferred(deferred: &[InterfaceWhy]) -> Vec<DeviceFailure> {
    let mut failures = Vec::new();
    for why in deferred {
        match why {
            InterfaceWhy::NoDevice { .. } => failures.push(DeviceFailure::NoDevice(why.clone())),
            _ => tracing::info!(%why, "The interface stays as it is; the next sync tries again"),
        }
    }
    failures
}

/// Whether the guest has the interface or is about to get it.
fn has_interface(live: &DomainSpec, plan: &InterfacePlan, name: &str) -> bool {
    let is_named = |alias: &Option<Alias>| alias.as_ref().is_some_and(|alias| alias.name == name);
    let mut interfaces = live.devices.interfaces.iter();
    interfaces.any(|interface| is_named(&interface.alias))
        || plan.attach.iter().any(|change| change.why.name() == name)
}

/// Makes one change (a link's by `virDomainUpdateDeviceFlags`).
pub(super) fn change(
    domain: &libvirt::ChangeableDomain,
    verb: Verb,
    InterfaceChange { interface, why }: &InterfaceChange,
    requests: &Mutex<DetachRequests>,
) -> Result<(), DeviceFailure> {
    let (name, target) = (why.name(), interface.target.as_ref());
    let target_device = target.map_or("", |target| &target.device);
    tracing::info!(interface = name, target_device, %verb, %why, "Changing network interface");
    let (alias, xml) = (Alias::user(name).qualified(), interface.to_xml());
    let changed = match verb {
        Verb::Attach => attach(domain, &alias, &xml, requests),
        Verb::Detach => detach(domain, &alias, &xml, requests),
        Verb::Update => domain.update_device(&xml),
    };
    changed.map_err(|refusal| DeviceFailure::Interface {
        name: name.to_owned(),
        action: verb.to_string(),
        refusal,
    })
}
