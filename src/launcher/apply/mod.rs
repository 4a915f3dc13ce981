//! Changes the running domain to match its VMI: disks first, then network interfaces.

pub(super) mod cpus;
pub(super) mod detach;
mod disk_names;
pub(super) mod disk_sizes;
pub(super) mod disks;
pub(super) mod error;
pub(super) mod host_devices;
mod interfaces;
pub(super) mod memory;

use std::sync::{Arc, Mutex};

use super::error::LauncherError;
use super::libvirt_domain::{blocking, read_spec};
use super::pod_backend::PodBackend;
use super::pod_network::PodNetwork;
use super::sync_request::SyncRequest;
use super::vm::Vm;
use detach::DetachRequests;
use error::{DeviceFailure, DiskFailure};
use interfaces::Interfaces;

use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::{Context, plan};
use domain::DomainSpec;
use libvirt::{ChangeableDomain, XmlKind};
use os::failpoints;

pub(super) struct Apply {
    pub vm: Arc<Vm>,
    pub pod: Arc<dyn PodBackend>,
    pub network: Arc<PodNetwork>,
    pub detach_requests: Arc<Mutex<DetachRequests>>,
}

/// The result of changing the disks.
struct ChangedDisks {
    failures: Vec<DiskFailure>,
    /// The domain as libvirt now reports it.
    live: DomainSpec,
    interfaces: plan::InterfacePlan,
    /// The input of the conversion.
    context: Context,
}

impl Apply {
    /// Changes the running domain to match the VMI. Returns the devices that could not be changed.
    ///
    /// # Errors
    /// A step before the changes failed, or a change panicked.
    pub async fn run(
        self: &Arc<Self>,
        request: &SyncRequest,
        domain: ChangeableDomain,
    ) -> Result<Vec<DeviceFailure>, LauncherError> {
        let (this, vmi, options) = (self.clone(), request.vmi.clone(), request.options.clone());
        let with_disks = domain.clone();
        let change = move || this.change_disks(&with_disks, &vmi, &options);
        let changed = blocking("changing the domain's disks", change).await?;
        let mut failures: Vec<DeviceFailure> =
            changed.failures.into_iter().map(Into::into).collect();
        self.network.adopt(&request.vmi, &changed.context).await;
        let plan = changed.interfaces;
        let interfaces = Interfaces {
            domain: &domain,
            vm: &self.vm,
            network: &self.network,
            detach_requests: &self.detach_requests,
        };
        let changed = interfaces.change(&request.vmi, &changed.context, &changed.live, plan);
        failures.extend(changed.await?);
        Ok(failures)
    }

    /// Hotplugs and unplugs disks, changes media, then resizes disks with volumes that have grown.
    fn change_disks(
        &self,
        domain: &ChangeableDomain,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
    ) -> Result<ChangedDisks, LauncherError> {
        let pod = &*self.pod;
        let mut live = read_spec(domain, XmlKind::Live)?;
        let (plan, wanted, context) = disks::plan(pod, vmi, options, &live)?;
        for plan::Change { disk, why } in &plan.deferred {
            let target = &disk.target.device;
            tracing::info!(target_device = %target, %why, "The disk stays as it is; the next sync tries again");
        }
        let mut failures = Vec::new();
        if !plan.is_empty() {
            failpoints::hit("sync.planned");
            failures = disks::apply(domain, pod, vmi, plan, &self.detach_requests)?;
            // Not every change makes libvirt send an event.
            self.vm.refresh();
            live = read_spec(domain, XmlKind::Live)?;
        }
        // An overlay stays until the guest has released its disk. A leftover costs only its file.
        if let Err(error) = pod.remove_unused_overlays(vmi, &live) {
            tracing::error!(reason = %os::logging::chain(&error), "An overlay of an unplugged volume stays");
        }
        let sizes = disk_sizes::sizes(domain, pod, vmi, &live, &wanted);
        disk_sizes::resize(domain, &plan::resizes(&live, &wanted, &sizes));
        Ok(ChangedDisks {
            failures,
            interfaces: plan::interfaces(&live, &wanted, vmi),
            live,
            context,
        })
    }
}
