//! The directory of a VM of `run`: created, cleaned after a killed launcher, and removed.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::Mode;

use super::processes;
use super::registry::{self, START_FILE, VmDir, name_taken};
use crate::error::{CtlError, fail};
use crate::files::{FileError, MAX_SOCKET_PATH_BYTES, absolute, short_temporary};
use api::pod_paths::{
    CONFIG_MAP_DIR, CONFIG_MAP_IMAGE_DIR, MIGRATION_SOCKET_DIR, PodPaths, SECRET_DIR,
    SECRET_IMAGE_DIR, SESSION_NVRAM_DIR, SYSPREP_DIR, SYSPREP_IMAGE_DIR, SYSTEM_NVRAM_DIR,
};

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
    let added = remove_stale(&dir).and_then(|()| registry::add(name, &dir));
    added.inspect_err(|_| match root {
        None => remove(&dir, &[]),
        Some(_) => dir.remove_link(),
    })?;
    Ok((dir, lock))
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

/// Makes a new directory in TMPDIR that is not in a registry yet.
///
/// # Errors
/// It cannot be made.
pub fn create_temporary() -> Result<VmDir, CtlError> {
    rustix::process::umask(PRIVATE);
    let made = make_new(&std::env::temp_dir(), |root| fs::create_dir(root))?;
    let root = made.root().to_owned();
    with_short_path(root).inspect_err(|_| remove(&made, &[]))
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

/// Removes what a killed launcher has left: its socket, which would be mistaken for the next one's,
/// and its domain, whose end the next one would report instead of starting anything.
///
/// # Errors
/// It or its guest runs, or they cannot be removed.
pub fn remove_stale(dir: &VmDir) -> Result<(), CtlError> {
    let root = absolute(dir.root());
    let root = root.display();
    if dir.is_running() {
        fail!("a launcher is running in {root}; end it first or choose another --root");
    }
    if let Some(pid) = processes::guest(dir.root()) {
        fail!(
            "a guest still runs in {root} (QEMU is process {pid}); end it first or choose another --root"
        );
    }
    for stale in ["run/qemu", "etc/qemu"] {
        let _ = fs::remove_dir_all(dir.path(stale));
    }
    let socket = dir.cmd_socket();
    Ok(os::small_file::remove(&socket).map_err(FileError::on("remove", socket))?)
}

/// Removes the directory, and any link to it, except the files `kept` in it; those too if all of
/// them are empty.
pub fn remove(dir: &VmDir, kept: &[PathBuf]) {
    let has_content = |file: &PathBuf| file.metadata().is_ok_and(|it| it.len() > 0);
    if !kept.iter().any(has_content) {
        let _ = dir.root().canonicalize().and_then(fs::remove_dir_all);
        return dir.remove_link();
    }
    let entries = fs::read_dir(dir.root()).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    for path in paths.filter(|path| !kept.contains(path)) {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
}

/// Removes the links to images that were plugged in, as the next run does not have them.
pub fn remove_plugged_links(dir: &VmDir) {
    let any = dir.path(&PodPaths::default().hotplug_image("any"));
    let entries = any.parent().and_then(|it| fs::read_dir(it).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_symlink()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes the guest's writes to its container disks, which are lost with the VM as in a cluster.
pub fn remove_overlays(dir: &VmDir) {
    let _ = fs::remove_dir_all(dir.path(PodPaths::default().overlay_dir));
}

/// Removes the firmware's variables (NVRAM). libvirt then makes them from the template of the next
/// start, which is another one if `secureBoot` has changed.
pub fn remove_firmware_variables(dir: &VmDir) {
    for path in [SYSTEM_NVRAM_DIR, SESSION_NVRAM_DIR] {
        let _ = fs::remove_dir_all(dir.path(path));
    }
}

/// Removes the copies of ConfigMaps and Secrets, the VMI, which may have passwords for cloud-init,
/// the images made from them, and how the VM was started.
pub fn remove_secrets(dir: &VmDir) {
    dir.remove_vmi();
    let _ = fs::remove_file(dir.path(START_FILE));
    let paths = PodPaths::default();
    for path in [
        SECRET_DIR,
        CONFIG_MAP_DIR,
        SYSPREP_DIR,
        SECRET_IMAGE_DIR,
        CONFIG_MAP_IMAGE_DIR,
        SYSPREP_IMAGE_DIR,
        paths.cloud_init_dir,
        paths.ignition_dir,
    ] {
        let _ = fs::remove_dir_all(dir.path(path));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
            remove(&dir, &[]);
            assert!(fs::symlink_metadata(dir.root()).is_err() && !root.exists());
        }
    }
}
