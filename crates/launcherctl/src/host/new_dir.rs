//! Makes the directory of a VM of `run`, private to this user and with a short path.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::Mode;

use super::registry::{self, name_taken};
use super::vm_dir::{TEMPORARY, VmDir};
use crate::error::CtlError;
use crate::files::{FileError, MAX_SOCKET_PATH_BYTES, short_temporary};
use api::pod_paths::{MIGRATION_SOCKET_DIR, PodPaths};

/// What a launcher makes below its root: the directories of the pod and of libvirt.
const DIRECTORIES: [&str; 6] = ["cache", "etc", "lib", "log", "run", "var"];
/// A UID in Kubernetes' format: the sockets below it have the longest paths.
const ANY_UID: &str = "00000000-0000-0000-0000-000000000000";
/// Files of this process and its children are private, whatever the umask was.
const PRIVATE: Mode = Mode::RWXG.union(Mode::RWXO);

/// Makes a root for the VM `name`, in `root` or in a new directory with a short name, and adds it
/// to the registry. If `root`'s path is too long for the sockets below it, a link with a short path
/// replaces it, which [`registry::remove`] removes. Hold the lock until the VM has a supervisor.
///
/// # Errors
/// The directory cannot be made, or a VM of that name, or in that directory, is running or being
/// started.
pub fn create(name: &str, root: Option<&Path>) -> Result<(VmDir, fs::File), CtlError> {
    let dir = match root {
        None => create_temporary()?,
        Some(root) => at_root(root)?,
    };
    let lock = dir.lock_for_start();
    let lock = lock.ok_or_else(|| name_taken(name, &dir))?;
    let added = dir.remove_stale().and_then(|()| registry::add(name, &dir));
    added.inspect_err(|_| match root {
        None => dir.remove(&[]),
        Some(_) => dir.remove_link(),
    })?;
    Ok((dir.named(name.to_owned()), lock))
}

/// A directory of `--root`, by a short path.
fn at_root(root: &Path) -> Result<VmDir, CtlError> {
    rustix::process::umask(PRIVATE);
    fs::create_dir_all(root).map_err(FileError::on("make", root))?;
    for directory in DIRECTORIES {
        keep_private(&root.join(directory))?;
    }
    let root = root.canonicalize().map_err(FileError::on("find", root))?;
    with_short_path(root)
}

/// Makes the directory private to this user, including what an earlier run has left in it.
fn keep_private(directory: &Path) -> Result<(), FileError> {
    let private = || fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    let made = fs::create_dir_all(directory).and_then(|()| private());
    made.map_err(FileError::on("make", directory))
}

/// The directory by its own path, or by a link with a short path if that is too long for the
/// sockets below it, of which those of a migration have the longest paths: QEMU makes and opens
/// them by their full path.
fn with_short_path(root: PathBuf) -> Result<VmDir, CtlError> {
    let sockets = PodPaths::default().shared(MIGRATION_SOCKET_DIR);
    let longest = format!("{sockets}/{ANY_UID}-49152-source.sock").len();
    if root.as_os_str().len().saturating_add(longest) <= MAX_SOCKET_PATH_BYTES {
        return Ok(VmDir::at(root));
    }
    let base = short_temporary(longest.saturating_add("/vm-400000fff".len()));
    make_new(&base, |link| symlink(&root, link))
}

/// Makes a new directory in TMPDIR, which is removed with the VM and has no name yet.
///
/// # Errors
/// It cannot be made.
pub fn create_temporary() -> Result<VmDir, CtlError> {
    rustix::process::umask(PRIVATE);
    let made = make_new(&std::env::temp_dir(), |root| fs::create_dir(root))?;
    let marker = made.path(TEMPORARY);
    let marked = fs::write(&marker, "").map_err(FileError::on("make", marker));
    let short = marked.map_err(CtlError::from);
    let short = short.and_then(|()| with_short_path(made.root().to_owned()));
    short.inspect_err(|_| made.remove(&[]))
}

/// Makes a directory, or a link to one, with a short name that is not taken.
fn make_new(base: &Path, make: impl FnMut(&Path) -> io::Result<()>) -> Result<VmDir, CtlError> {
    let made = tempfile::Builder::new()
        .prefix("vm-")
        .rand_bytes(5)
        .make_in(base, make);
    let kept = made.and_then(|made| Ok(made.keep()?));
    let (_, root) = kept.map_err(FileError::on("make a directory in", base))?;
    Ok(VmDir::at(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_is_too_long_for_sockets_gets_a_short_link() {
        let base = tempfile::Builder::new()
            .prefix("a")
            .rand_bytes(1)
            .tempdir_in("/tmp")
            .unwrap();
        let short = base.path().join("short");
        assert_eq!(with_short_path(short.clone()).unwrap().root(), short);
        // Sockets fit, but not those of a migration; and none fits.
        for length in [20, 200] {
            let root = base.path().join("l".repeat(length));
            fs::create_dir(&root).unwrap();
            let dir = with_short_path(root.clone()).unwrap();
            assert!(dir.root().as_os_str().len() <= 20 && dir.root() != root);
            assert_eq!(dir.root().canonicalize().unwrap(), root);
            dir.remove_link();
            assert!(!dir.root().exists() && root.exists());
            let dir = with_short_path(root.clone()).unwrap();
            fs::write(dir.path("file"), "").unwrap();
            dir.remove(&[]);
            assert!(fs::symlink_metadata(dir.root()).is_err() && !root.exists());
        }
    }
}
