//! The directories of the pod that the launcher makes (docs/contract.md §2).

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, fchmod, openat};
use rustix::io::Errno;

use super::ownership::give_to_qemu;
use super::safe_path::{Dir, checked_name};
use super::{LauncherFlags, PodError};
use api::pod_paths;

/// Makes the directories that the launcher, libvirt and QEMU expect, and without `--run-as-nonroot`
/// the serial console's log, with the modes and owners (chmod, chown) that virt-handler and QEMU
/// rely on. Existing ones stay.
///
/// # Errors
/// A directory cannot be made, or `uid` cannot be a directory's name.
pub fn directories(flags: &LauncherFlags, uid: &str) -> Result<(), PodError> {
    let own = |path: &str, mode| {
        Dir::make(&flags.root, path, mode)?;
        let dir = Dir::of_pod(&flags.root, path)?;
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
        flags.cloud_init_dir(),
        flags.ignition_dir(),
        flags.overlay_dir(),
        flags.hotplug_dir().to_owned(),
    ] {
        Dir::make(&flags.root, &path, 0o755)?;
    }
    Dir::make(&flags.root, flags.container_disk_dir(), 0o750)?;
    for path in pod_paths::QEMU_DIRS {
        own(path, 0o750)?;
    }
    // libvirt gets the path of root's UEFI variables, and does not make their directory. It does
    // make that of another user, who may not even enter this one.
    if !flags.run_as_nonroot {
        Dir::make(&flags.root, pod_paths::SYSTEM_NVRAM_DIR, 0o755)?;
        super::serial_log::make(flags, uid)?;
    }
    for path in [
        pod_paths::LIBVIRT_RUN_DIR,
        &format!("{}/sockets", flags.share_dir.trim_end_matches('/')),
    ] {
        Dir::make(&flags.root, path, 0o755)?;
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
        // Not the launcher's directory: its owner knows what mode it needs.
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(e) => Err(PodError::io("set the mode of", dir.path())(e)),
    }
}
