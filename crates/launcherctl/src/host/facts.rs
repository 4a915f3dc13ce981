//! Collects what the rules of `client::problems` look at.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::failure::console_log;
use super::start_args::SuperviseArgs;
use super::vm_dir::VmDir;
use client::problems::VmFacts;
use domain::Domain;
use domain::disks::{Disk, DiskDevice};
use os::procfs;
use os::small_file::{self, Links};

/// How much of the console's end is read.
const MAX_CONSOLE_BYTES: u64 = 4096;

/// Adds what files of the VM and its QEMU tell.
pub fn complete(facts: &mut VmFacts, uid: &str, qemu: Option<i32>, dir: &VmDir) {
    if let Ok(args) = SuperviseArgs::load(dir) {
        facts.wants_kvm = !args.start.emulate;
    }
    let has_console = !facts.domain.spec.devices.consoles.is_empty();
    let console = small_file::tail(&console_log(dir, uid), MAX_CONSOLE_BYTES).ok();
    facts.console = console
        .filter(|_| has_console)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    facts.unbootable_disk = unbootable_disk(&facts.domain);
    facts.memory_events = match qemu {
        Some(pid) => procfs::memory_events(&pid.to_string()),
        // QEMU is in the cgroup of its pod.
        None if dir.root() == Path::new("/") => procfs::memory_events("self"),
        None => String::new(),
    };
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
