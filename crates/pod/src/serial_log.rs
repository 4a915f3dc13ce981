//! The file that virtlogd writes the first serial console to, and virt-tail follows.

use rustix::fs::{Mode, OFlags, openat};

use super::ownership::give_to_qemu;
use super::safe_path::Dir;
use super::{LauncherFlags, PodError};
use api::pod_paths;

/// Makes the log of the first serial console, empty, where it is missing, and gives it to QEMU's
/// user.
///
/// Only where the launcher runs as root: virtlogd would make the file readable for root alone, and
/// virt-tail, in a container of its own, runs as user 107. Otherwise both are the same user.
pub(super) fn make(flags: &LauncherFlags, uid: &str) -> Result<(), PodError> {
    let dir = Dir::of_pod(&flags.root, &format!("{}/{uid}", pod_paths::PRIVATE_DIR))?;
    let path = dir.path().join(pod_paths::SERIAL_LOG);
    let open_flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = openat(&dir, pod_paths::SERIAL_LOG, open_flags, mode)
        .map_err(PodError::io("make", &path))?;
    give_to_qemu(&file, &path)
}
