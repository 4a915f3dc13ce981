//! The owner of files that QEMU opens.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Uid, chownat, statat};
use rustix::io::Errno;

use super::PodError;

/// User and group that QEMU runs as.
const QEMU: u32 = 107;

/// Gives a file that is already open (or inspected) to QEMU's user. Only root can do that. A
/// launcher that is not root runs as that user, or on a laptop, and need not do it.
pub(super) fn give_to_qemu(file: impl AsFd, shown: &Path) -> Result<(), PodError> {
    let file = file.as_fd();
    let fail = || PodError::io("give to QEMU's user", shown);
    let stat = statat(file, "", AtFlags::EMPTY_PATH).map_err(|e| fail()(e))?;
    if !rustix::process::geteuid().is_root() || (stat.st_uid, stat.st_gid) == (QEMU, QEMU) {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(QEMU)), Some(Gid::from_raw(QEMU)));
    match chownat(file, "", owner.0, owner.1, AtFlags::EMPTY_PATH) {
        // Root has no CAP_CHOWN, or its user namespace does not know the user.
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => Ok(()),
        Err(e) => Err(fail()(e)),
    }
}
