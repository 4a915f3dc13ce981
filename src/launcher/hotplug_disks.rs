//! A plan for the disks, carried out. A disk that fails does not stop the others.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::pod_backend::PodBackend;
use super::{DiskFailure, LauncherError, lock};
use api::vmi::Vmi;
use convert::plan::{Change, DiskPlan};
use domain::DomainSpec;
use domain::alias::Alias;
use domain::disks::Disk;
use os::failpoints;

/// A guest that has not let a disk go in this time is asked again.
const DETACH_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Disks that the guest was asked to let go, by alias: since when, and whether it has refused.
#[derive(Debug, Default)]
pub(super) struct DetachRequests(HashMap<String, DetachRequest>);

#[derive(Debug)]
struct DetachRequest {
    asked: Instant,
    refused: bool,
}

impl DetachRequests {
    /// The guest has let the device go.
    pub fn removed(&mut self, alias: &str) {
        self.0.remove(alias);
    }

    /// The guest keeps the device: the next sync asks again.
    pub fn refused(&mut self, alias: &str) {
        if let Some(request) = self.0.get_mut(alias) {
            tracing::warn!(
                alias,
                "the guest does not let the disk go; the next sync asks again"
            );
            request.refused = true;
        }
    }

    /// Whether it was asked already; `Some(true)` if it is to be asked again.
    // D-disk-16 (docs/differences.md).
    fn again(&self, alias: &str, now: Instant) -> Option<bool> {
        self.0.get(alias).map(|request| {
            request.refused || now.duration_since(request.asked) >= DETACH_RETRY_AFTER
        })
    }

    fn asked(&mut self, alias: String, now: Instant) {
        self.0.insert(
            alias,
            DetachRequest {
                asked: now,
                refused: false,
            },
        );
    }
}

/// Does what the plan says: detach, attach, update. Returns what failed.
///
/// # Errors
/// When nothing could be tried.
// D-disk-10 (docs/differences.md).
pub(super) fn apply(
    domain: &libvirt::Domain,
    pod: &dyn PodBackend,
    vmi: &Vmi,
    plan: DiskPlan,
    requests: &Mutex<DetachRequests>,
) -> Result<Vec<DiskFailure>, LauncherError> {
    let mut failures = Vec::new();
    for Change { disk, why } in &plan.detach {
        tracing::info!(volume = %volume(disk), target = %disk.target.device, %why, "Detaching disk");
        failpoints::hit("unplug.prepared");
        // QEMU has the overlay open; its name is of no use any more.
        let detached = detach(domain, disk, requests)
            .map_err(LauncherError::from)
            .and_then(|()| pod.remove_overlay(disk));
        failpoints::hit("unplug.asked");
        failures.extend(
            detached
                .err()
                .map(|error| failure(disk, "detach", os::logging::chain(&error))),
        );
    }
    for Change { disk, why } in plan.attach {
        tracing::info!(volume = %volume(&disk), target = %disk.target.device, %why, "Attaching disk");
        let attached = pod
            .make_overlay(vmi, &disk)
            .and_then(|()| with_modes(pod, &disk))
            .and_then(|disk| {
                failpoints::hit("plug.prepared");
                Ok(attach(domain, &disk.to_xml())?)
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

/// Plugs a disk in. Where an unplug was cut short, the definition may still have it, and libvirt refuses it a second time:
/// there it goes first.
// D-disk-1 (docs/differences.md).
fn attach(domain: &libvirt::Domain, xml: &str) -> Result<(), libvirt::Error> {
    match domain.attach_device(xml) {
        Err(refused) => match domain.detach_device_config(xml) {
            Ok(()) => domain.attach_device(xml),
            Err(_) => Err(refused),
        },
        done => done,
    }
}

/// Asks the guest to let a disk go, unless it is just thinking about it.
// D-disk-17 (docs/differences.md).
fn detach(
    domain: &libvirt::Domain,
    disk: &Disk,
    requests: &Mutex<DetachRequests>,
) -> Result<(), libvirt::Error> {
    let (alias, now) = (alias(disk), Instant::now());
    let again = lock(requests).again(&alias, now);
    let result = match again {
        Some(false) => {
            tracing::info!(volume = %volume(disk), "the guest has not let the disk go yet");
            return Ok(());
        }
        // The definition lost it with the first request, so that this one is for the guest alone.
        Some(true) => domain.detach_device_live(&disk.to_xml()),
        None => {
            // Before the call: the guest's answer may come before the call returns.
            lock(requests).asked(alias.clone(), now);
            match domain.detach_device(&disk.to_xml()) {
                // An earlier launcher has asked: the definition has lost the disk, and the guest has not.
                Err(error) if error.is_device_missing() => {
                    domain.detach_device_live(&disk.to_xml())
                }
                done => done,
            }
        }
    };
    match result {
        // Somebody was faster.
        Err(error) if error.is_device_missing() => Ok(()),
        Err(error) => {
            if again.is_none() {
                lock(requests).removed(&alias);
            }
            Err(error)
        }
        Ok(()) => {
            if again.is_some() {
                lock(requests).asked(alias, now);
            }
            Ok(())
        }
    }
}

/// The disk with the cache and I/O modes that its file allows.
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

/// The volume of a disk is its alias.
fn volume(disk: &Disk) -> String {
    disk.alias
        .as_ref()
        .map(|alias| alias.name.clone())
        .unwrap_or_default()
}

/// The alias as libvirt's events have it.
fn alias(disk: &Disk) -> String {
    let alias = disk.alias.as_ref();
    alias.map(Alias::qualified).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_asked_once_until_it_refuses_or_patience_ends() {
        let mut requests = DetachRequests::default();
        let now = Instant::now();
        assert_eq!(requests.again("ua-data", now), None);
        requests.asked("ua-data".into(), now);
        assert_eq!(requests.again("ua-data", now), Some(false));
        assert_eq!(
            requests.again("ua-data", now + DETACH_RETRY_AFTER),
            Some(true)
        );
        requests.refused("ua-data");
        assert_eq!(requests.again("ua-data", now), Some(true));
        requests.asked("ua-data".into(), now);
        assert_eq!(requests.again("ua-data", now), Some(false));
        requests.removed("ua-data");
        assert_eq!(requests.again("ua-data", now), None);
        requests.refused("ua-other");
        assert_eq!(requests.again("ua-other", now), None);
    }

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
