//! Cache and I/O modes, settled before a start and before a disk is hotplugged: what the VMI leaves
//! open depends on whether the files and devices can be opened with `O_DIRECT`.

use super::context::DiskModes;
use super::{ConvertError, Draft, Input};
use domain::DomainSpec;
use domain::disks::{CacheMode, Disk, DiskDevice, IoMode};

/// The file or device that holds the data of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend<'a> {
    /// Its path; empty if the disk has none.
    pub path: &'a str,
    /// It is a block device.
    pub is_block: bool,
}

/// Where the data of a disk is: in its data file where it has one (changed block tracking), else in
/// its source.
#[must_use]
pub fn backend(disk: &Disk) -> Backend<'_> {
    let data = disk
        .source
        .data_store
        .as_ref()
        .and_then(|store| store.source.as_ref());
    let of =
        |source: &'_ domain::disks::DiskSource| (!source.dev.is_empty(), !source.file.is_empty());
    for source in data.into_iter().chain([&disk.source]) {
        match of(source) {
            (_, true) => {
                return Backend {
                    path: &source.file,
                    is_block: false,
                };
            }
            (true, false) => {
                return Backend {
                    path: &source.dev,
                    is_block: true,
                };
            }
            (false, false) => {}
        }
    }
    Backend {
        path: "",
        is_block: false,
    }
}

impl DiskModes {
    /// Whether `path` can be opened with `O_DIRECT`.
    fn direct(&self, path: &str) -> bool {
        let is_exception = self
            .direct_io_exceptions
            .iter()
            .any(|exception| exception == path);
        !path.is_empty() && self.direct_io != is_exception
    }

    /// Whether the image at `path` has all its blocks allocated.
    fn is_preallocated(&self, path: &str) -> bool {
        self.preallocated.iter().any(|image| image == path)
    }
}

/// The step of the conversion.
pub(super) fn apply(input: &Input<'_>, draft: &mut Draft) -> Result<(), ConvertError> {
    let Some(modes) = &input.ctx.disk_modes else {
        return Ok(());
    };
    let disks = &input.vmi.spec.domain.devices.disks;
    let place = |name: &str| disks.iter().position(|disk| disk.name == name);
    draft.domain.devices.disks.iter_mut().try_for_each(|disk| {
        resolve_modes(disk, modes).map_err(|error| {
            match disk.alias.as_ref().and_then(|alias| place(&alias.name)) {
                Some(at) => ConvertError::new(
                    format!("spec.domain.devices.disks[{at}].cache"),
                    error.reason,
                ),
                None => error,
            }
        })
    })
}

/// Settles the modes of all disks of the domain.
///
/// # Errors
/// When a disk wants cache mode `none` and a file or device of it cannot be opened with `O_DIRECT`.
/// The error names the disk, since its place in the VMI is not known here.
pub fn resolve_disk_modes(domain: &mut DomainSpec, modes: &DiskModes) -> Result<(), ConvertError> {
    domain
        .devices
        .disks
        .iter_mut()
        .try_for_each(|disk| resolve_modes(disk, modes))
}

/// Settles the modes of one disk.
///
/// # Errors
/// See [`resolve_disk_modes`].
pub fn resolve_modes(disk: &mut Disk, modes: &DiskModes) -> Result<(), ConvertError> {
    resolve_cache(disk, modes).map_err(|reason| {
        let name = disk.alias.as_ref().map_or("?", |alias| &alias.name);
        ConvertError::new(format!("spec.domain.devices.disks[{name}].cache"), reason)
    })?;
    resolve_io(disk, modes);
    Ok(())
}

/// Without a mode: `none` where `O_DIRECT` works, for the backing file too, else `writethrough`.
fn resolve_cache(disk: &mut Disk, modes: &DiskModes) -> Result<(), String> {
    let backend = backend(disk);
    if backend.path.is_empty() {
        return match disk.device {
            DiskDevice::CdRom => Ok(()),
            _ => Err("cannot be chosen: the disk has neither a file nor a device, and only a CD-ROM drive may be empty".to_owned()),
        };
    }
    let cache = disk
        .driver
        .as_ref()
        .map_or(&CacheMode::Unset, |driver| &driver.cache);
    if !matches!(cache, CacheMode::Unset | CacheMode::None) {
        return Ok(());
    }
    let backing = disk
        .backing_store
        .as_ref()
        .map(|store| store.source.as_ref().map_or("", |source| &source.file));
    let without = [Some(backend.path), backing]
        .into_iter()
        .flatten()
        .find(|path| !modes.direct(path));
    let resolved = match (without, cache) {
        (None, _) => CacheMode::None,
        (Some(_), CacheMode::Unset) => CacheMode::WriteThrough,
        (Some(path), _) => {
            let what = if path.is_empty() {
                "the device below the disk's overlay".to_owned()
            } else {
                format!("{path:?}")
            };
            return Err(format!(
                "\"none\" needs direct I/O, which {what} does not support; leave the mode out or use \"writethrough\""
            ));
        }
    };
    disk.driver.get_or_insert_default().cache = resolved;
    Ok(())
}

/// Without a mode: `native`, which wants `O_DIRECT`, for devices and for images that need no
/// allocation while they are written.
fn resolve_io(disk: &mut Disk, modes: &DiskModes) {
    let backend = backend(disk);
    let is_native =
        !backend.path.is_empty() && (backend.is_block || modes.is_preallocated(backend.path));
    if let Some(driver) = &mut disk.driver
        && driver.io == IoMode::Unset
        && driver.cache == CacheMode::None
        && is_native
    {
        driver.io = IoMode::Native;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use domain::disks::{BackingStore, DataStore, DiskDriver, DiskSource};

    fn on_file(path: &str, cache: &str) -> Disk {
        let driver = DiskDriver {
            cache: cache.into(),
            ..DiskDriver::default()
        };
        Disk {
            source: DiskSource {
                file: path.into(),
                ..DiskSource::default()
            },
            driver: Some(driver),
            ..Disk::default()
        }
    }

    fn modes() -> DiskModes {
        DiskModes {
            direct_io: true,
            direct_io_exceptions: vec!["/nfs/a".into()],
            preallocated: vec!["/full".into(), "/nfs/a".into()],
        }
    }

    fn resolved(mut disk: Disk) -> Option<(CacheMode, IoMode)> {
        resolve_modes(&mut disk, &modes()).ok()?;
        let driver = disk.driver.unwrap();
        Some((driver.cache, driver.io))
    }

    fn pair(cache: &str, io: &str) -> Option<(CacheMode, IoMode)> {
        Some((cache.into(), io.into()))
    }

    #[test]
    fn files_get_the_best_mode_that_works() {
        assert_eq!(resolved(on_file("/sparse", "")), pair("none", ""));
        assert_eq!(resolved(on_file("/full", "")), pair("none", "native"));
        assert_eq!(resolved(on_file("/nfs/a", "")), pair("writethrough", ""));
        assert_eq!(resolved(on_file("/nfs/a", "none")), None);
        assert_eq!(
            resolved(on_file("/nfs/a", "writeback")),
            pair("writeback", "")
        );
    }

    #[test]
    fn the_backing_file_counts_and_a_backing_device_never_passes() {
        let backed = |file: &str, cache: &str| {
            let source = DiskSource {
                file: file.into(),
                ..DiskSource::default()
            };
            let store = BackingStore {
                source: Some(source),
                ..BackingStore::default()
            };
            Disk {
                backing_store: Some(Box::new(store)),
                ..on_file("/sparse", cache)
            }
        };
        assert_eq!(resolved(backed("/other", "")), pair("none", ""));
        assert_eq!(resolved(backed("/nfs/a", "")), pair("writethrough", ""));
        assert_eq!(resolved(backed("", "")), pair("writethrough", ""));
        assert_eq!(resolved(backed("", "none")), None);
    }

    #[test]
    fn the_data_file_is_what_counts_below_a_tracking_overlay() {
        let store = DataStore {
            source: Some(DiskSource {
                dev: "/dev/x".into(),
                ..DiskSource::default()
            }),
            ..DataStore::default()
        };
        let mut disk = on_file("/overlay", "");
        disk.source.data_store = Some(Box::new(store));
        assert_eq!(
            backend(&disk),
            Backend {
                path: "/dev/x",
                is_block: true
            }
        );
        assert_eq!(resolved(disk), pair("none", "native"));
    }

    #[test]
    fn only_a_drive_may_be_empty() {
        assert_eq!(resolved(on_file("", "")), None);
        assert_eq!(
            resolved(Disk {
                device: DiskDevice::CdRom,
                ..on_file("", "none")
            }),
            pair("none", "")
        );
    }
}
