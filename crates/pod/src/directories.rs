//! The directories of the pod that the launcher makes (docs/contract.md §2).

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chownat, fchmod, openat, statat};
use rustix::io::Errno;

use super::safe_path::{Dir, checked_name};
use super::{Config, PodError};
use api::pod_paths;

/// User and group that QEMU runs as.
pub(super) const QEMU: u32 = 107;

/// Makes the directories, and in root mode the serial console's log, that the launcher, libvirt and QEMU expect, with
/// the modes and owners that virt-handler and QEMU rely on. What is there already stays.
///
/// # Errors
/// A directory cannot be made, or `uid` cannot be a directory's name.
pub fn directories(cfg: &Config, uid: &str) -> Result<(), PodError> {
    let own = |path: &str, mode| {
        Dir::make(&cfg.root, path, mode)?;
        let dir = Dir::of_pod(&cfg.root, path)?;
        set_mode(&dir, mode)?;
        give_to_qemu(dir.as_fd(), dir.path())
    };
    own(
        &format!(
            "{}/{}",
            pod_paths::PRIVATE_DIR,
            checked_name("the VMI's uid", uid)?
        ),
        0o755,
    )?;
    for path in [
        cfg.cloud_init_dir(),
        cfg.ignition_dir(),
        cfg.overlay_dir(),
        cfg.hotplug_dir().to_owned(),
    ] {
        Dir::make(&cfg.root, &path, 0o755)?;
    }
    Dir::make(&cfg.root, cfg.container_disk_dir(), 0o750)?;
    for path in pod_paths::QEMU_DIRS {
        own(path, 0o750)?;
    }
    // Root's UEFI variables are given to libvirt by path, so the directory is not libvirt's to make. Another user's is,
    // and that user may not even enter this one.
    if !cfg.run_as_nonroot {
        Dir::make(&cfg.root, pod_paths::SYSTEM_NVRAM_DIR, 0o755)?;
        super::serial_log::make(cfg, uid)?;
    }
    for path in [
        pod_paths::LIBVIRT_RUN_DIR,
        &format!("{}/sockets", cfg.share_dir.trim_end_matches('/')),
    ] {
        Dir::make(&cfg.root, path, 0o755)?;
    }
    Ok(())
}

fn set_mode(dir: &Dir, mode: u32) -> Result<(), PodError> {
    let wanted = Mode::from_raw_mode(mode);
    let fd = openat(
        dir,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(PodError::io("open", dir.path()))?;
    match fchmod(fd, wanted) {
        // Not ours: whoever made it knows what mode it needs.
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(e) => Err(PodError::io("set the mode of", dir.path())(e)),
    }
}

/// Gives a file that is already open (or inspected) to QEMU's user. Only root can do that; a
/// launcher that is not root runs as that user (or on a laptop), and needs not.
pub(super) fn give_to_qemu(file: impl AsFd, shown: &Path) -> Result<(), PodError> {
    let file = file.as_fd();
    let fail = || PodError::io("give to QEMU's user", shown);
    let stat = statat(file, "", AtFlags::EMPTY_PATH).map_err(|e| fail()(e))?;
    if !rustix::process::geteuid().is_root() || (stat.st_uid, stat.st_gid) == (QEMU, QEMU) {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(QEMU)), Some(Gid::from_raw(QEMU)));
    match chownat(file, "", owner.0, owner.1, AtFlags::EMPTY_PATH) {
        // Root without CAP_CHOWN, or a user namespace that does not know the user.
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => Ok(()),
        Err(e) => Err(fail()(e)),
    }
}
