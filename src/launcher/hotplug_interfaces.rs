//! A plan for the network interfaces, carried out. An interface that fails does not stop the others.
//!
//! ```text
//!  plan ──► end DHCP servers of interfaces that are gone ──► network phase 2 ──► attach ──► detach ──► update
//! ```

use std::sync::{Arc, Mutex};

use super::hotplug::{DetachRequests, attach, detach};
use super::libvirt_domain::blocking;
use super::network_setup::complete_interface;
use super::{InterfaceFailure, Launcher, LauncherError};
use api::vmi::Vmi;
use convert::Context;
use convert::plan::{InterfaceChange, InterfacePlan, InterfaceWhy};
use domain::DomainSpec;
use domain::alias::Alias;
use domain::interfaces::Interface;
use pod::network::Scope;

impl Launcher {
    /// Does what the plan for the `live` domain's interfaces says: attach, detach, update. Returns what failed.
    ///
    /// # Errors
    /// When the work has panicked.
    // D-net-12, D-net-13 (docs/differences.md).
    pub(super) async fn hotplug_interfaces(
        self: &Arc<Self>,
        domain: &libvirt::Domain,
        vmi: &Vmi,
        context: &Context,
        live: &DomainSpec,
        mut plan: InterfacePlan,
    ) -> Result<Vec<InterfaceFailure>, LauncherError> {
        let mut failures = log_deferred(&plan.deferred);
        let stays = |name: &str| has_interface(live, &plan, name);
        self.network.lock().await.retain_servers(stays);
        if plan.is_empty() {
            return Ok(failures);
        }
        let attach = std::mem::take(&mut plan.attach);
        for change in attach {
            match self.prepare_interface(vmi, context, change).await {
                Ok(change) => plan.attach.push(change),
                Err(failure) => failures.push(failure),
            }
        }
        let (launcher, domain) = (self.clone(), domain.clone());
        let apply = move || Ok(apply(&domain, &plan, &launcher.detach_requests));
        failures.extend(blocking("changing the domain's interfaces", apply).await?);
        // Not every change makes libvirt send an event.
        self.refresh();
        Ok(failures)
    }

    /// Network phase 2 of an interface that is to be plugged in.
    async fn prepare_interface(
        &self,
        vmi: &Vmi,
        context: &Context,
        mut change: InterfaceChange,
    ) -> Result<InterfaceChange, InterfaceFailure> {
        let name = change.why.name();
        let taps = self.taps(vmi, context, Scope::Network(name)).await;
        let taps = taps.map_err(|error| failure(name, "attach", os::logging::chain(&error)))?;
        // None where the interface has no tap, such as passt.
        for tap in taps {
            complete_interface(&mut change.interface, tap);
        }
        Ok(change)
    }
}

/// What cannot be done is an error only where waiting does not help.
fn log_deferred(deferred: &[InterfaceWhy]) -> Vec<InterfaceFailure> {
    let mut failures = Vec::new();
    for why in deferred {
        match why {
            InterfaceWhy::NoDevice { name } => {
                failures.push(failure(name, "attach", why.to_string()));
            }
            _ => tracing::info!(%why, "The interface stays as it is; the next sync tries again"),
        }
    }
    failures
}

/// Whether the guest has the interface, or is about to get it.
fn has_interface(live: &DomainSpec, plan: &InterfacePlan, name: &str) -> bool {
    let is_named = |alias: &Option<Alias>| alias.as_ref().is_some_and(|alias| alias.name == name);
    let mut interfaces = live.devices.interfaces.iter();
    interfaces.any(|interface| is_named(&interface.alias))
        || plan.attach.iter().any(|change| change.why.name() == name)
}

fn apply(
    domain: &libvirt::Domain,
    plan: &InterfacePlan,
    requests: &Mutex<DetachRequests>,
) -> Vec<InterfaceFailure> {
    let mut failures = Vec::new();
    for (verb, InterfaceChange { interface, why }) in plan.steps() {
        let (name, xml) = (why.name(), interface.to_xml());
        tracing::info!(interface = name, target_device = tap(interface), verb, %why, "Changing network interface");
        let done = match verb {
            "attach" => attach(domain, &xml),
            "detach" => detach(domain, Alias::user(name).qualified(), &xml, requests),
            _ => domain.update_device(&xml),
        };
        if let Err(error) = done {
            failures.push(failure(name, verb, error.to_string()));
        }
    }
    failures
}

fn tap(interface: &Interface) -> &str {
    let target = interface.target.as_ref();
    target.map_or("", |target| &target.device)
}

fn failure(name: &str, verb: &'static str, reason: String) -> InterfaceFailure {
    InterfaceFailure {
        name: name.to_owned(),
        verb,
        reason,
    }
}
