//! Changes the running domain to match its VMI.
//!
//! ```text
//!  live XML, VMI ─► plan ─► DHCP servers, taps ─► its steps, one ─► sizes of ─► overlays of
//!                    └────► dry run               after the other   new disks    unplugged disks
//! ```
//! A disk's own files are made in its step.

pub(super) mod cpus;
pub(super) mod detach;
mod disk_names;
mod disk_sizes;
mod disks;
pub(super) mod error;
pub(super) mod host_devices;
mod interfaces;
pub(super) mod memory;

use std::sync::{Arc, Mutex};

use super::error::LauncherError;
use super::libvirt_domain::{blocking, read_spec};
use super::pod_backend::{ConvertFor, PodBackend};
use super::pod_network::PodNetwork;
use super::sync_request::SyncRequest;
use super::vm::Vm;
use detach::DetachRequests;
use disk_names::with_live_targets;
use error::DeviceFailure;

use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::Context;
use convert::plan::{self, DomainStep, PlanStep, SyncPlan, Verb};
use domain::DomainSpec;
use libvirt::{ChangeableDomain, XmlKind};
use os::failpoints;

pub(super) struct Apply {
    pub vm: Arc<Vm>,
    pub pod: Arc<dyn PodBackend>,
    pub network: Arc<PodNetwork>,
    pub detach_requests: Arc<Mutex<DetachRequests>>,
}

/// A plan, and what it was made of.
pub(super) struct Planned {
    pub plan: SyncPlan,
    pub live: DomainSpec,
    wanted: DomainSpec,
    /// The input of the conversion.
    pub context: Context,
}

impl Apply {
    /// Plans a sync of the running domain, which is paused if `resume`. Blocks.
    ///
    /// # Errors
    /// The VMI cannot be converted, or libvirt's error.
    pub fn plan(
        &self,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
        domain: &libvirt::DomainHandle,
        resume: bool,
    ) -> Result<Planned, LauncherError> {
        let live = read_spec(domain, XmlKind::Live)?;
        let mut planned = self.plan_devices(vmi, options, live)?;
        let (live, wanted) = (&planned.live, &planned.wanted);
        planned.plan.resizes = disk_sizes::resizes(domain, &*self.pod, vmi, live, wanted);
        let grace_period = self.vm.metadata().changed_grace_period(vmi);
        let grace_period =
            grace_period.map(|(before, after)| DomainStep::GracePeriod { before, after });
        let resume = resume.then_some(DomainStep::Resume);
        planned.plan.domain = resume.into_iter().chain(grace_period).collect();
        Ok(planned)
    }

    /// Plans the changes of devices that libvirt need not be asked for. Blocks.
    ///
    /// # Errors
    /// The VMI cannot be converted.
    pub fn plan_devices(
        &self,
        vmi: &Vmi,
        options: &VirtualMachineOptions,
        live: DomainSpec,
    ) -> Result<Planned, LauncherError> {
        let vmi_now = with_live_targets(vmi, &live);
        let (pod, guest) = (&self.pod, ConvertFor::ThisPod);
        let (wanted, context) = pod.collect_and_convert(&vmi_now, options, guest)?;
        let disks = plan::disks(&live, &wanted, context.paths().hotplug_disk_dir);
        let plan = SyncPlan {
            disks: disks.defer_unready(|disk| pod::disk_ready(pod.flags(), disk)),
            interfaces: plan::interfaces(&live, &wanted, vmi),
            ..SyncPlan::default()
        };
        Ok(Planned {
            plan,
            live,
            wanted,
            context,
        })
    }

    /// Plans the running domain's changes, prepares the network for them (DHCP servers, taps), and
    /// takes the plan's steps; if `resume`, the first one resumes the guest. Returns the devices
    /// that could not be changed.
    ///
    /// # Errors
    /// There is no plan, the guest cannot be resumed, or a change panicked.
    pub async fn run(
        self: &Arc<Self>,
        request: &SyncRequest,
        domain: ChangeableDomain,
        resume: bool,
    ) -> Result<Vec<DeviceFailure>, LauncherError> {
        let (this, vmi, options) = (self.clone(), request.vmi.clone(), request.options.clone());
        let planned_domain = domain.clone();
        let plan = move || this.plan(&vmi, &options, &planned_domain, resume);
        let mut planned = blocking("planning the domain's changes", plan).await?;
        let (vmi, context) = (request.vmi.clone(), &planned.context);
        self.network.ensure_dhcp_servers(&vmi, context).await;
        let (live, interfaces) = (&planned.live, &mut planned.plan.interfaces);
        let prepared = interfaces::prepare(&self.network, &vmi, context, live, interfaces);
        let mut failures = prepared.await;
        let this = self.clone();
        let change = move || this.carry_out(&domain, &vmi, planned);
        failures.extend(blocking("changing the domain's devices", change).await?);
        Ok(failures)
    }

    /// Takes the plan's steps. A device that fails does not stop the others, but nothing is
    /// attached at the target of a disk whose detach libvirt refuses. A detach only asks: until the
    /// guest releases the disk, an attach at its target fails, and the next sync tries again.
    /// Returns the failures.
    fn carry_out(
        &self,
        domain: &ChangeableDomain,
        vmi: &Vmi,
        Planned {
            plan,
            mut live,
            wanted,
            ..
        }: Planned,
    ) -> Result<Vec<DeviceFailure>, LauncherError> {
        let (pod, requests) = (&*self.pod, &self.detach_requests);
        for plan::DiskChange { disk, why } in &plan.disks.deferred {
            let target = &disk.target.device;
            tracing::info!(target_device = %target, %why, "The disk stays as it is; the next sync tries again");
        }
        if !plan.is_empty() {
            failpoints::hit("sync.planned");
        }
        let mut failures = Vec::new();
        for step in plan.steps() {
            let done = match step {
                PlanStep::Domain(DomainStep::Resume) => {
                    domain.resume()?;
                    tracing::info!("Domain unpaused.");
                    Ok(())
                }
                // `Syncs::apply` takes the VMI's grace period, whether it changes or not.
                PlanStep::Domain(DomainStep::Start | DomainStep::GracePeriod { .. }) => Ok(()),
                PlanStep::Disk(Verb::Attach, change) if has_failed(&failures, change) => Ok(()),
                PlanStep::Disk(verb, change) => {
                    disks::change(domain, pod, vmi, verb, change, requests)
                }
                PlanStep::Resize(resize) => {
                    disk_sizes::resize(domain, resize);
                    Ok(())
                }
                PlanStep::Interface(verb, change) => {
                    interfaces::change(domain, verb, change, requests)
                }
            };
            failures.extend(done.err());
        }
        if !plan.is_empty() {
            // Not every change makes libvirt send an event.
            self.vm.refresh();
            live = read_spec(domain, XmlKind::Live)?;
        }
        // Only now libvirt tells how large the guest sees a new disk.
        if !plan.disks.attach.is_empty() {
            for resize in disk_sizes::resizes(domain, pod, vmi, &live, &wanted) {
                disk_sizes::resize(domain, &resize);
            }
        }
        // An overlay stays until the guest has released its disk. A leftover costs only its file.
        if let Err(error) = pod::untrack_unplugged(pod.flags(), vmi, &live.devices.disks) {
            tracing::error!(reason = %os::logging::chain(&error), "An overlay of an unplugged volume stays");
        }
        Ok(failures)
    }
}

/// Whether the disk that had the target before could not be detached.
fn has_failed(failures: &[DeviceFailure], change: &plan::DiskChange) -> bool {
    let of_target = |failure: &DeviceFailure| matches!(failure, DeviceFailure::Disk { target, .. } if *target == change.disk.target.device);
    failures.iter().any(of_target)
}
