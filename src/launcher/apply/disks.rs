//! Makes and carries out the plan for the disks. A disk that fails does not stop the others.

use std::sync::Mutex;

use super::detach::{DetachRequests, attach, detach};
use super::disk_names::with_live_targets;
use super::error::DiskFailure;
use crate::launcher::error::LauncherError;
use crate::launcher::pod_backend::PodBackend;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::Context;
use convert::plan::{Change, DiskPlan};
use domain::DomainSpec;
use domain::alias::Alias;
use domain::disks::Disk;
use os::failpoints;

/// Plans the changes of the `live` domain's disks. Also returns the wanted domain and its context.
pub(in crate::launcher) fn plan(
    pod: &dyn PodBackend,
    vmi: &Vmi,
    options: &VirtualMachineOptions,
    live: &DomainSpec,
) -> Result<(DiskPlan, DomainSpec, Context), LauncherError> {
    let (wanted, context) = pod.wanted(&with_live_targets(vmi, live), options)?;
    let hotplug_dir = context.paths().hotplug_disk_dir;
    let plan =
        convert::plan::disks(live, &wanted, hotplug_dir).defer_unready(|disk| pod.is_ready(disk));
    Ok((plan, wanted, context))
}

/// Carries out the plan: detach, attach, update. Returns the failures. Nothing is attached at the
/// target of a disk that could not be detached.
///
/// # Errors
/// No disk was changed, because a step before that failed.
// D-disk-10 (docs/differences.md).
pub(in crate::launcher) fn apply(
    domain: &libvirt::ChangeableDomain,
    pod: &dyn PodBackend,
    vmi: &Vmi,
    plan: DiskPlan,
    requests: &Mutex<DetachRequests>,
) -> Result<Vec<DiskFailure>, LauncherError> {
    let mut failures = Vec::new();
    for Change { disk, why } in &plan.detach {
        tracing::info!(volume = %volume(disk), target = %disk.target.device, %why, "Detaching disk");
        failpoints::hit("unplug.prepared");
        let detached = detach(domain, alias(disk), &disk.to_xml(), requests);
        failpoints::hit("unplug.asked");
        failures.extend(
            detached
                .err()
                .map(|error| failure(disk, "detach", error.to_string())),
        );
    }
    let mut wanted = plan.attach;
    wanted.retain(|Change { disk, .. }| {
        let is_free = |failed: &DiskFailure| failed.target != disk.target.device;
        failures.iter().all(is_free)
    });
    for Change { disk, why } in wanted {
        tracing::info!(volume = %volume(&disk), target = %disk.target.device, %why, "Attaching disk");
        let attached = pod
            .make_overlay(vmi, &disk)
            .and_then(|()| with_modes(pod, &disk))
            .and_then(|disk| {
                failpoints::hit("plug.prepared");
                Ok(attach(domain, &alias(&disk), &disk.to_xml(), requests)?)
            });
        failpoints::hit("plug.attached");
        failures.extend(
            attached
                .err()
                .map(|error| failure(&disk, "attach", os::logging::chain(&error))),
        );
    }
    for Change { disk, why } in &plan.update {
        tracing::info!(volume = %volume(disk), target = %disk.target.device, %why, "Updating disk");
        let updated = domain.update_device(&disk.to_xml());
        failures.extend(
            updated
                .err()
                .map(|error| failure(disk, "update", error.to_string())),
        );
    }
    Ok(failures)
}

/// The disk with the modes (`cache` and `io` of `<driver>`) that its file allows.
fn with_modes(pod: &dyn PodBackend, disk: &Disk) -> Result<Disk, LauncherError> {
    let mut alone = DomainSpec::default();
    alone.devices.disks.push(disk.clone());
    pod.resolve_disk_modes(&mut alone)?;
    Ok(alone.devices.disks.pop().unwrap_or_else(|| disk.clone()))
}

fn failure(disk: &Disk, verb: &'static str, reason: String) -> DiskFailure {
    DiskFailure {
        volume: volume(disk),
        target: disk.target.device.clone(),
        verb,
        reason,
    }
}

/// The name of the disk's volume, which is also its alias.
fn volume(disk: &Disk) -> String {
    disk.alias
        .as_ref()
        .map(|alias| alias.name.clone())
        .unwrap_or_default()
}

/// The disk's alias as libvirt's events spell it.
fn alias(disk: &Disk) -> String {
    let alias = disk.alias.as_ref();
    alias.map(Alias::qualified).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_disk() {
        let mut disk = Disk {
            alias: Some(Alias::user("data")),
            ..Disk::default()
        };
        disk.target.device = "sda".into();
        assert_eq!(alias(&disk), "ua-data");
        let text = failure(
            &disk,
            "attach",
            "LibvirtError(Code=1, Domain=10, Message='no')".into(),
        )
        .to_string();
        assert_eq!(
            text,
            "disk \"data\" (sda): attach: LibvirtError(Code=1, Domain=10, Message='no')"
        );
    }
}
