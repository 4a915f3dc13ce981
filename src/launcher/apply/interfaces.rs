//! Carries out a plan for the network interfaces. An interface that fails does not stop the others.
//!
//! ```text
//!  plan ──► end DHCP servers of interfaces that are gone ──► network phase 2 ──► attach ──► detach ──► update
//! ```

use std::sync::{Arc, Mutex};

use super::detach::{DetachRequests, attach, detach};
use super::error::{DeviceFailure, InterfaceFailure};
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::blocking;
use crate::launcher::pod_network::{PodNetwork, complete_interface};
use crate::launcher::vm::Vm;
use api::vmi::Vmi;
use convert::Context;
use convert::plan::{InterfaceChange, InterfacePlan, InterfaceWhy};
use domain::DomainSpec;
use domain::alias::Alias;
use domain::interfaces::Interface;
use pod::network::{NetworkError, Scope};

pub(super) struct Interfaces<'a> {
    pub domain: &'a libvirt::ChangeableDomain,
    pub vm: &'a Vm,
    pub network: &'a PodNetwork,
    pub detach_requests: &'a Arc<Mutex<DetachRequests>>,
}

impl Interfaces<'_> {
    /// Attaches, detaches and updates the `live` domain's interfaces. Returns the failures.
    ///
    /// # Errors
    /// The thread that changes the interfaces panicked.
    // D-net-12, D-net-13 (docs/differences.md).
    pub async fn change(
        &self,
        vmi: &Vmi,
        context: &Context,
        live: &DomainSpec,
        mut plan: InterfacePlan,
    ) -> Result<Vec<DeviceFailure>, LauncherError> {
        let mut failures = log_deferred(&plan.deferred);
        let stays = |name: &str| has_interface(live, &plan, name);
        self.network.retain_servers(stays).await;
        if plan.is_empty() {
            return Ok(failures);
        }
        let attach = std::mem::take(&mut plan.attach);
        for change in attach {
            match self.prepare_interface(vmi, context, change).await {
                Ok(change) => plan.attach.push(change),
                Err(error) => failures.push(DeviceFailure::Network(error)),
            }
        }
        let (domain, requests) = (self.domain.clone(), self.detach_requests.clone());
        let apply = move || Ok(apply(&domain, &plan, &requests));
        failures.extend(blocking("changing the domain's interfaces", apply).await?);
        // Not every change makes libvirt send an event.
        self.vm.refresh();
        Ok(failures)
    }

    /// Network phase 2 of an interface to plug in.
    async fn prepare_interface(
        &self,
        vmi: &Vmi,
        context: &Context,
        mut change: InterfaceChange,
    ) -> Result<InterfaceChange, NetworkError> {
        let name = change.why.name();
        let taps = self
            .network
            .taps(vmi, context, Scope::Network(name))
            .await?;
        // The list is empty for an interface without a tap, such as passt.
        for tap in taps {
            complete_interface(&mut change.interface, tap);
        }
        Ok(change)
    }
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

fn apply(
    domain: &libvirt::ChangeableDomain,
    plan: &InterfacePlan,
    requests: &Mutex<DetachRequests>,
) -> Vec<DeviceFailure> {
    let alias = |change: &InterfaceChange| Alias::user(change.why.name()).qualified();
    let attached = plan.attach.iter().filter_map(|change| {
        let alias = alias(change);
        run("attach", change, |xml| {
            attach(domain, &alias, xml, requests)
        })
    });
    let detached = plan.detach.iter().filter_map(|change| {
        let alias = alias(change);
        run("detach", change, |xml| detach(domain, alias, xml, requests))
    });
    let updated = (plan.update.iter())
        .filter_map(|change| run("update", change, |xml| domain.update_device(xml)));
    attached.chain(detached).chain(updated).collect()
}

/// Makes one change (a link's by `virDomainUpdateDeviceFlags`). Returns the failure, if any.
fn run(
    verb: &'static str,
    InterfaceChange { interface, why }: &InterfaceChange,
    change: impl FnOnce(&str) -> Result<(), libvirt::Error>,
) -> Option<DeviceFailure> {
    let name = why.name();
    tracing::info!(interface = name, target_device = tap(interface), verb, %why, "Changing network interface");
    let refusal = change(&interface.to_xml()).err()?;
    let name = name.to_owned();
    Some(
        InterfaceFailure {
            name,
            verb,
            refusal,
        }
        .into(),
    )
}

fn tap(interface: &Interface) -> &str {
    let target = interface.target.as_ref();
    target.map_or("", |target| &target.device)
}
