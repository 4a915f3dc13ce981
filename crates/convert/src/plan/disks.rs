//! Disk hotplug and hot-unplug: which disks are attached or detached, which CD-ROM media are
//! changed or ejected.
//!
//! | live | wanted | |
//! |---|---|---|
//! | hotplugged disk | target gone | detach |
//! | target free | hotplugged disk | attach |
//! | hotplugged disk | hotplugged disk of another volume | detach, attach |
//! | CD-ROM, empty or hotplugged | CD-ROM with another source, or target gone | update |
//! | anything else | | left alone |
//!
//! A disk is hotplugged if its data is in the directory where virt-handler mounts hotplugged
//! volumes, and its bus is one on which that works. Everything else in a running domain is there to
//! stay.

use std::collections::HashMap;

use super::{DiskChange, DiskPlan, Why};
use domain::DomainSpec;
use domain::disks::{Disk, DiskBus, DiskDevice, DiskSource, DiskType};

/// The directory where virt-handler mounts hotplugged volumes.
#[derive(Debug, Clone, Copy)]
struct HotplugDir<'a>(&'a str);

impl HotplugDir<'_> {
    /// The path below the directory. It is searched for anywhere in `path`, since all of the pod's
    /// paths may be below a root of their own.
    fn strip(self, path: &str) -> Option<&str> {
        path.rsplit_once(self.0)?.1.strip_prefix('/')
    }

    fn has(self, source: &DiskSource) -> bool {
        source
            .backend_path()
            .is_some_and(|path| self.strip(path).is_some())
    }
}

/// What to do so that the disks of the `live` domain become the `wanted` ones. `hotplug_dir` is
/// where virt-handler mounts hotplugged volumes.
#[must_use]
pub fn disks(live: &DomainSpec, wanted: &DomainSpec, hotplug_dir: &str) -> DiskPlan {
    let dir = HotplugDir(hotplug_dir.trim_end_matches('/'));
    let (live, wanted) = (&live.devices.disks, &wanted.devices.disks);
    let (live_at, wanted_at) = (by_target(live), by_target(wanted));
    let mut plan = DiskPlan::default();
    for old in live {
        let new = wanted_at.get(old.target.device.as_str()).copied();
        if let Some(why) = detach(dir, old, new, wanted) {
            plan.detach.push(DiskChange::new(old, why));
        } else if let Some(change) = update(dir, old, new) {
            plan.update.push(change);
        }
    }
    for new in wanted {
        let old = live_at.get(new.target.device.as_str()).copied();
        match attach(dir, old, new, live) {
            Some(why @ Why::Occupied { .. }) => plan.deferred.push(DiskChange::new(new, why)),
            Some(why) => plan.attach.push(DiskChange::new(new, why)),
            None => {}
        }
    }
    plan
}

fn by_target(disks: &[Disk]) -> HashMap<&str, &Disk> {
    disks
        .iter()
        .map(|disk| (disk.target.device.as_str(), disk))
        .collect()
}

fn detach(dir: HotplugDir<'_>, old: &Disk, new: Option<&Disk>, wanted: &[Disk]) -> Option<Why> {
    if !is_hotplugged(dir, old) {
        return None;
    }
    match new {
        None => Some(match wanted.iter().find(|disk| is_same_volume(old, disk)) {
            Some(new) => moved(old, new),
            None => Why::Gone {
                volume: volume(old),
            },
        }),
        Some(new) if replaces(dir, old, new) => Some(replaced(old, new)),
        Some(_) => None,
    }
}

fn attach(dir: HotplugDir<'_>, old: Option<&Disk>, new: &Disk, live: &[Disk]) -> Option<Why> {
    if !is_hotplugged(dir, new) {
        return None;
    }
    match old {
        None => Some(match live.iter().find(|disk| is_same_volume(disk, new)) {
            Some(old) => moved(old, new),
            None => Why::New {
                volume: volume(new),
            },
        }),
        Some(old) if replaces(dir, old, new) => Some(replaced(old, new)),
        Some(old) if !is_same_volume(old, new) && !changes_medium(dir, old, new) => {
            Some(Why::Occupied {
                old: volume(old),
                new: volume(new),
            })
        }
        Some(_) => None,
    }
}

/// A change of CD-ROM media: the live drive with the medium of the wanted one, or ejected.
// D-disk-4 (docs/differences.md).
fn update(dir: HotplugDir<'_>, old: &Disk, new: Option<&Disk>) -> Option<DiskChange> {
    let medium = match new {
        Some(new) if changes_medium(dir, old, new) => Some(&new.source),
        None if is_drive(dir, old) => None,
        _ => return None,
    };
    // A source without a path is not a medium, whatever else it says.
    let medium = medium
        .filter(|source| source.backend().is_some())
        .cloned()
        .unwrap_or_default();
    if old.source == medium {
        return None;
    }
    // The drive keeps its name whatever is in it, so that media go by the names of their files.
    let why = match (old.source.backend_path(), medium.backend_path()) {
        (Some(old), None) => Why::Ejected {
            volume: medium_name(dir, old),
        },
        (None, Some(new)) => Why::Inserted {
            volume: medium_name(dir, new),
        },
        (old, new) => {
            let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
            let (old, new) = tell_apart([medium_name(dir, old), medium_name(dir, new)], [old, new]);
            Why::Swapped { old, new }
        }
    };
    let mut disk = old.clone();
    disk.source = medium;
    disk.r#type = if disk.source.file.is_empty() {
        DiskType::Block
    } else {
        DiskType::File
    };
    disk.driver.get_or_insert_default().r#type = "raw".into();
    Some(DiskChange { disk, why })
}

/// Whether a disk can be hotplugged and unplugged: on virtio or SCSI, not on SATA or USB.
fn is_hotplugged(dir: HotplugDir<'_>, disk: &Disk) -> bool {
    matches!(
        disk.target.bus,
        DiskBus::Unset | DiskBus::Virtio | DiskBus::Scsi
    ) && dir.has(&disk.source)
}

/// Whether a disk is a CD-ROM drive that may get another medium.
fn is_drive(dir: HotplugDir<'_>, disk: &Disk) -> bool {
    disk.device == DiskDevice::CdRom && (disk.source.backend().is_none() || dir.has(&disk.source))
}

/// Whether the drive stays and its medium is what may differ.
fn changes_medium(dir: HotplugDir<'_>, old: &Disk, new: &Disk) -> bool {
    is_drive(dir, old) && is_drive(dir, new)
}

/// Whether a hotplugged disk has to make room for another one at its target.
fn replaces(dir: HotplugDir<'_>, old: &Disk, new: &Disk) -> bool {
    is_hotplugged(dir, old)
        && is_hotplugged(dir, new)
        && !is_same_volume(old, new)
        && !changes_medium(dir, old, new)
}

/// Whether two disks hold the same volume: the same data, under the same name where both have one.
// D-disk-2 (docs/differences.md).
pub(super) fn is_same_volume(old: &Disk, new: &Disk) -> bool {
    let renamed = matches!((name(old), name(new)), (Some(old), Some(new)) if old != new);
    !renamed && old.source.backend_path() == new.source.backend_path()
}

/// The name that the VMI gives to the disk; libvirt's own names mean nothing there.
fn name(disk: &Disk) -> Option<&String> {
    disk.alias
        .as_ref()
        .filter(|alias| alias.user_defined)
        .map(|alias| &alias.name)
}

/// The volume by the name that the VMI gives it; by its path where the disk has none.
pub(super) fn volume(disk: &Disk) -> String {
    name(disk).cloned().unwrap_or_else(|| {
        disk.source
            .backend_path()
            .unwrap_or(&disk.target.device)
            .into()
    })
}

/// A hotplugged medium by the name of its volume; its file or device has this name, too.
fn medium_name(dir: HotplugDir<'_>, path: &str) -> String {
    dir.strip(path)
        .map_or(path, |file| file.strip_suffix(".img").unwrap_or(file))
        .into()
}

fn moved(old: &Disk, new: &Disk) -> Why {
    Why::Moved {
        volume: volume(new),
        from: old.target.device.clone(),
        to: new.target.device.clone(),
    }
}

fn replaced(old: &Disk, new: &Disk) -> Why {
    let paths = [&old.source, &new.source].map(|source| source.backend_path().unwrap_or_default());
    let (old, new) = tell_apart([volume(old), volume(new)], paths);
    Why::Replaced { old, new }
}

/// The names, or where they are the same the paths.
fn tell_apart([old, new]: [String; 2], [old_path, new_path]: [&str; 2]) -> (String, String) {
    if old == new {
        (old_path.into(), new_path.into())
    } else {
        (old, new)
    }
}
