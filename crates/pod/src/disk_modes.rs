//! The facts on which the cache and I/O modes of disks depend, and whether a disk can be attached.

use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

use super::disk_source::find;
use super::safe_path::Dir;
use super::{LauncherFlags, PodError, image};
use convert::context::DiskModes;
use domain::DomainSpec;
use domain::disks::Disk;

/// Finds out for each disk of the domain whether its file or device can be opened with `O_DIRECT`,
/// and whether its image is preallocated. An image that does not exist yet is judged by its
/// directory.
#[must_use]
pub fn disk_modes(flags: &LauncherFlags, domain: &DomainSpec) -> DiskModes {
    let mut modes = DiskModes {
        direct_io: true,
        ..DiskModes::default()
    };
    for disk in &domain.devices.disks {
        let backend = disk.source.backend();
        let backing = disk
            .backing_store
            .as_ref()
            .and_then(|store| store.source.as_ref())
            .map(|source| source.file.as_str());
        let opened = [
            backend.map(|backend| (backend.path, backend.is_block)),
            backing.map(|path| (path, false)),
        ];
        for (path, is_block) in opened.into_iter().flatten() {
            if !path.is_empty()
                && !is_known(&modes, path)
                && !supports_direct_io(flags, path, is_block)
            {
                modes.direct_io_exceptions.push(path.into());
            }
        }
        let Some(image) = backend.filter(|backend| !backend.is_block) else {
            continue;
        };
        // The reference writes the cloud-init image after this, so that it is never found
        // preallocated.
        let is_cloud_init =
            Path::new(image.path).starts_with(flags.root.path(flags.cloud_init_dir()));
        if !is_cloud_init && is_preallocated(flags, image.path, data_format(disk)) {
            modes.preallocated.push(image.path.into());
        }
    }
    modes
}

fn is_known(modes: &DiskModes, path: &str) -> bool {
    modes
        .direct_io_exceptions
        .iter()
        .any(|known: &String| known == path)
}

fn supports_direct_io(flags: &LauncherFlags, path: &str, is_block: bool) -> bool {
    match opens_directly(flags, path, is_block) {
        Ok(does) => does,
        Err(e) => {
            tracing::warn!(
                "{path}: taken as without direct I/O: {}",
                os::logging::chain(&e)
            );
            false
        }
    }
}

fn opens_directly(flags: &LauncherFlags, path: &str, is_block: bool) -> Result<bool, PodError> {
    let found = match follow_own_link(flags, path) {
        Err(e) if e.is_not_found() && !is_block => return dir_supports_direct_io(flags, path),
        found => found?,
    };
    match found.open(OFlags::RDONLY | OFlags::DIRECT) {
        Ok(_) => Ok(true),
        // EINVAL: the file system does not know the flag.
        Err(PodError::File(error)) if error.source.kind() == std::io::ErrorKind::InvalidInput => {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// With image volumes, the launcher has linked the images of container disks.
fn follow_own_link(flags: &LauncherFlags, path: &str) -> Result<super::safe_path::Found, PodError> {
    let images = flags.container_disk_dir.trim_end_matches('/');
    let is_ours = flags.image_volume && Path::new(path).starts_with(flags.root.path(images));
    if !is_ours {
        return find(flags, path);
    }
    let target = std::fs::read_link(path).map_err(PodError::io("open", path))?;
    find(flags, &target.to_string_lossy())
}

/// Tries direct I/O with a file of its own, so that no half-made image is ever in the place of a
/// real one.
// D-disk-15 (docs/differences.md).
fn dir_supports_direct_io(flags: &LauncherFlags, path: &str) -> Result<bool, PodError> {
    let parent = Path::new(path)
        .parent()
        .and_then(|parent| flags.root.strip(parent));
    let parent = parent.ok_or_else(|| PodError::invalid(path, "it is not below the pod's root"))?;
    let dir = Dir::of_pod(&flags.root, &parent.to_string_lossy())?;
    let name = format!(".direct-io-{}", std::process::id());
    let open_flags = OFlags::RDONLY
        | OFlags::CREATE
        | OFlags::EXCL
        | OFlags::NOFOLLOW
        | OFlags::CLOEXEC
        | OFlags::DIRECT;
    let opened = openat(&dir, name.as_str(), open_flags, Mode::from_raw_mode(0o600));
    // A file system that refuses the flag may have made the file all the same.
    let _ = unlinkat(&dir, name.as_str(), AtFlags::empty());
    match opened {
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::INVAL) => Ok(false),
        Err(e) => Err(PodError::io("try direct I/O in", dir.path())(e)),
    }
}

/// The format in which QEMU opens the disk's data, behind an overlay if it has one.
fn data_format(disk: &Disk) -> &str {
    let data_store = disk.source.data_store.as_ref();
    match data_store.and_then(|store| store.format.as_ref()) {
        Some(format) => &format.r#type,
        None => disk.driver.as_ref().map_or("", |driver| &driver.r#type),
    }
}

/// Whether all of the image is allocated. A qcow2 image may even be a little larger than its disk.
// D-disk-22 (docs/differences.md).
fn is_preallocated(flags: &LauncherFlags, path: &str, format: &str) -> bool {
    follow_own_link(flags, path)
        .and_then(|found| Ok(image::size_in_format(&found, format)? <= image::allocated(&found)))
        .unwrap_or(false)
}

/// Whether a hotplugged disk is ready to be attached: its file or device is there and can be
/// opened. A disk that is not ready is left for the next sync, because virt-handler may still be
/// mounting it. A file that must never be opened is never ready.
#[must_use]
// D-disk-13 (docs/differences.md).
pub fn disk_ready(flags: &LauncherFlags, disk: &Disk) -> bool {
    let path = disk.source.backend_path().unwrap_or_default();
    let found = match find(flags, path) {
        Ok(found) => found,
        Err(e) if e.is_not_found() => return false,
        Err(e) => {
            tracing::warn!(
                "disk {:?} is not attached: {}",
                disk.target.device,
                os::logging::chain(&e)
            );
            return false;
        }
    };
    if found.is_block() {
        return found.read().is_ok();
    }
    // virt-handler makes an empty file to mount the real one on.
    found.stat().st_size > 0 && found.open(OFlags::RDWR).is_ok()
}
