//! Cache and I/O modes of disks, resolved before a start and before a hotplug: the modes that the
//! VMI leaves out depend on whether the files and devices can be opened with `O_DIRECT`.

use super::context::DiskModes;
use super::{ConvertError, DomainSpec, Input};
use domain::disks::{CacheMode, Disk, DiskDevice, IoMode};

impl DiskModes {
    /// Whether `path` can be opened with `O_DIRECT`.
    fn direct(&self, path: &str) -> bool {
        let is_exception = self
            .direct_io_exceptions
            .iter()
            .any(|exception| exception == path);
        self.direct_io != is_exception
    }

    /// Whether the image at `path` has all its blocks allocated.
    fn is_preallocated(&self, path: &str) -> bool {
        self.preallocated.iter().any(|image| image == path)
    }
}

/// The last rule of the conversion; in a launcher `PodBackend::resolve_disk_modes` does it
/// instead, once the files are there.
pub(super) fn apply(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let Some(modes) = &input.ctx.disk_modes else {
        return Ok(());
    };
    let disks = &input.devices.disks;
    let index = |name: &str| disks.iter().position(|disk| disk.name == name);
    resolve_all(domain, modes, |name| {
        index(name).map_or_else(|| name.to_owned(), |index| index.to_string())
    })
}

/// Resolves the modes of all disks of the domain.
///
/// # Errors
/// When a disk wants cache mode `none` and a file or device of it cannot be opened with `O_DIRECT`.
/// The error names the disk, since its index in the VMI is not known here.
pub fn resolve_disk_modes(domain: &mut DomainSpec, modes: &DiskModes) -> Result<(), ConvertError> {
    resolve_all(domain, modes, str::to_owned)
}

/// `index` gives the index of a disk in the VMI, for an error, from the disk's name.
fn resolve_all(
    domain: &mut DomainSpec,
    modes: &DiskModes,
    index: impl Fn(&str) -> String,
) -> Result<(), ConvertError> {
    for disk in &mut domain.devices.disks {
        resolve_cache(disk, modes).map_err(|error| {
            let name = disk.alias.as_ref().map_or("?", |alias| &alias.name);
            let index = index(name);
            ConvertError::new(format!("spec.domain.devices.disks[{index}].cache"), error)
        })?;
        resolve_io(disk, modes);
    }
    Ok(())
}

/// Without a mode: `none` where `O_DIRECT` works, for the backing file too, else `writethrough`.
fn resolve_cache(disk: &mut Disk, modes: &DiskModes) -> Result<(), String> {
    let Some(path) = disk.source.backend_path() else {
        return match disk.device {
            DiskDevice::CdRom => Ok(()),
            _ => Err("cannot be determined: the disk has neither a file nor a device, and only a CD-ROM drive may be empty".to_owned()),
        };
    };
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
    // A backing device, which has no file, counts as without direct I/O.
    let without = [Some(path), backing]
        .into_iter()
        .flatten()
        .find(|path| path.is_empty() || !modes.direct(path));
    let resolved = match (without, cache) {
        (None, _) => CacheMode::None,
        (Some(_), CacheMode::Unset) => CacheMode::WriteThrough,
        (Some(path), _) => {
            let what = match path {
                "" => "the device below the disk's overlay".to_owned(),
                path => format!("{path:?}"),
            };
            return Err(format!(
                "\"none\" needs direct I/O, which {what} does not support; leave the mode out or use \"writethrough\""
            ));
        }
    };
    disk.driver.get_or_insert_default().cache = resolved;
    Ok(())
}

/// The I/O mode (`SetDriverIOmode`). Without one: `native`, which wants `O_DIRECT`, for devices and
/// for images that need no allocation while they are written.
fn resolve_io(disk: &mut Disk, modes: &DiskModes) {
    let is_native = disk
        .source
        .backend()
        .is_some_and(|backend| backend.is_block || modes.is_preallocated(backend.path));
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
        resolve_cache(&mut disk, &modes()).ok()?;
        resolve_io(&mut disk, &modes());
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
