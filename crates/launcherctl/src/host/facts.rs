//! Collects what the rules of `client::problems` look at.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::console_log::console_log_file;
use super::control::{ControlClient, Current};
use super::last_images::find_removed;
use super::registry::VmDir;
use super::start_args::SuperviseArgs;
use super::{launcher_log, remains};
use crate::error::{CtlError, text_error};
use crate::files::{MAX_FILE_BYTES, absolute};
use api::pod_paths::{HOOKS_REPORT, PodPaths};
use client::problems::{Condition, Facts, Loss, RemovedImage};
use client::refusal::NETWORK_SIDECAR;
use client::{Client, is_migrating};
use domain::Domain;
use domain::disks::{Disk, DiskDevice};
use hooks::{HookPoint, HookPointReport, Report};
use os::procfs;
use os::small_file::{self, Links};

/// How much of the console's end is read.
const MAX_CONSOLE_BYTES: u64 = 4096;

/// Adds what takes questions to the launcher, and files of the VM and its QEMU.
pub async fn complete(facts: &mut Facts, uid: &str, qemu: Option<i32>, dir: &VmDir) {
    if facts.condition == Condition::Answers
        && let Ok(client) = Client::connect(&dir.cmd_socket()).await
    {
        // KubeVirt's tells nothing.
        facts.launcher = client.debug().await.unwrap_or_default();
        facts.metrics = client.metrics().await.unwrap_or_default();
    }
    // The launcher may have made a part of it again.
    let is_lost = matches!(facts.condition, Condition::Lost(_));
    if is_lost && !dir.is_of_run() {
        facts.missing_directory = Some(absolute(dir.root()));
    }
    facts.stopped_supervisor = dir.stopped_supervisor().await;
    if dir.is_of_run() && !facts.launcher.problems.is_empty() {
        facts.stopped_libvirt = remains::stopped_libvirt(dir.root());
    }
    if facts.condition == Condition::Silent {
        facts.stopped_launcher = dir.stopped_launcher().await;
    }
    let supervisor = ControlClient::current(dir).await;
    // Later the log may still say it.
    if supervisor.is_some_and(|current| current.phase.is_none() && !current.is_ending()) {
        facts.missing_sidecars = launcher_log::missing_sidecars(&dir.log_file());
    }
    // In a pod virt-handler ends it.
    facts.is_ended_by_nobody =
        dir.is_of_run() && supervisor.is_none_or(|current| !current.is_ending());
    facts.stop_began = supervisor.and_then(Current::asked_to_shut_down);
    if let Ok(args) = SuperviseArgs::load(dir) {
        facts.wants_kvm = !args.start.emulate;
        facts.removed_images = find_removed(dir, || remains::guest(dir.root()));
        facts.files = args.files;
    }
    let of_qemu = dir.path(&PodPaths::default().serial_log(uid));
    let console = small_file::tail(&console_log_file(dir), MAX_CONSOLE_BYTES);
    let console = console.or_else(|_| small_file::tail(&of_qemu, MAX_CONSOLE_BYTES));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    facts.console = console.ok().map(text);
    facts.changed_by = changed_by(dir);
    facts.unbootable_disk = unbootable_disk(&facts.domain);
    let process = match qemu {
        Some(pid) => pid.to_string(),
        // QEMU is in the cgroup of its pod.
        None if dir.root() == Path::new("/") => "self".to_owned(),
        None => return,
    };
    facts.stopped_qemu = qemu.filter(|pid| procfs::is_stopped(*pid));
    if is_migrating(Some(&facts.domain)) {
        facts.stopped_target = remains::stopped_target(&facts.domain.spec.name, qemu);
    }
    facts.memory_events = procfs::memory_events(&process);
}

/// Refuses to end a VM with whose QEMU images are lost.
///
/// # Errors
/// An image was removed, and cannot be linked again.
pub fn check_images(name: &str, dir: &VmDir) -> Result<(), CtlError> {
    let loss = match dir.is_running() {
        true => Loss::EndOfVm,
        false => Loss::EndWithoutLauncher,
    };
    let explained = |image: RemovedImage| {
        let (cause, remedy) = image.explained(loss);
        format!("{cause}; {}", remedy.replace("{vm}", &format!(" {name}")))
    };
    let removed = find_removed(dir, || remains::guest(dir.root()));
    let lost = removed.into_iter().filter(RemovedImage::is_lost);
    let mut lost = lost.map(explained);
    match lost.next() {
        None => Ok(()),
        Some(first) => Err(CtlError::from(text_error!("{first}")).with_details(lost.collect())),
    }
}

/// The user's hook sidecars that have changed the domain, by the launcher's report.
fn changed_by(dir: &VmDir) -> Vec<String> {
    let report = small_file::read(&dir.path(HOOKS_REPORT), MAX_FILE_BYTES).ok();
    let report = report.and_then(|text| serde_json::from_slice::<Report>(&text).ok());
    let sidecars = report.unwrap_or_default().sidecars.into_iter();
    let has_changed = |point: &HookPointReport| {
        let last = point.last.as_ref();
        point.point == HookPoint::OnDefineDomain
            && last.is_some_and(|call| !call.changes.is_empty())
    };
    let changed =
        sidecars.filter(|it| it.name != NETWORK_SIDECAR && it.points.iter().any(has_changed));
    let names = changed.map(|it| format!("hook sidecar {:?} ({})", it.name, it.socket));
    names.collect()
}

/// The volume of the first disk, if a BIOS boots the guest and the disk's raw image has no boot
/// sector.
fn unbootable_disk(domain: &Domain) -> Option<String> {
    let os = &domain.spec.os;
    if os.boot_loader.is_some() || !os.kernel.is_empty() {
        return None;
    }
    let disks = domain.spec.devices.disks.iter();
    let disks = disks.filter(|disk| disk.device == DiskDevice::Disk);
    let first =
        disks.min_by_key(|disk| disk.boot_order.as_ref().map_or(u64::MAX, |it| it.order))?;
    let mut sector = [0; 512];
    let image = Path::new(raw_image(first)?);
    let mut image = small_file::open(image, File::options().read(true), Links::Follow).ok()?;
    (image.read_exact(&mut sector).is_err() || !sector.ends_with(&[0x55, 0xaa]))
        .then(|| first.volume().to_owned())
}

/// The raw image with a disk's data: its file, or what is below a fresh overlay.
fn raw_image(disk: &Disk) -> Option<&str> {
    if disk
        .driver
        .as_ref()
        .is_some_and(|driver| driver.r#type == "raw")
    {
        return disk.source.backend_path();
    }
    let below = disk.backing_store.as_ref()?;
    below
        .format
        .as_ref()
        .filter(|format| format.r#type == "raw")?;
    below.source.as_ref()?.backend_path()
}
