//! The user's registry: a link by the VM's name to the directory of each VM of `launcherctl run`.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::vm_dir::VmDir;
use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{FileError, absolute};
use crate::similar::known_names;

/// The name is taken by the VM in `dir`.
pub fn name_taken(name: &str, dir: &VmDir) -> TextError {
    text_error!(
        "a VM named {name} is running, in {}; end it first (launcherctl stop {name}) or give this one another name: names are unique on this machine, across namespaces",
        absolute(dir.root()).display()
    )
}

/// Adds the VM under its name.
///
/// # Errors
/// A VM of that name is running, or being started in another directory.
pub fn add(name: &str, vm: &VmDir) -> Result<(), CtlError> {
    let directory = directory()?;
    let registry = fs::File::open(&directory).map_err(FileError::on("open", &directory))?;
    // Only for a moment: another process may be checking the same name.
    registry.lock().map_err(FileError::on("lock", &directory))?;
    let link = directory.join(name);
    if let Ok(old) = fs::read_link(&link).map(VmDir::at) {
        // In `vm` it is this `run` that starts it.
        if !old.is_same(vm) && old.is_in_use() {
            return Err(name_taken(name, &old).into());
        }
        fs::remove_file(&link).map_err(FileError::on("remove", &link))?;
    }
    Ok(symlink(vm.root(), &link).map_err(FileError::on("make", &link))?)
}

/// Moves the name of the VM in `from` to its new directory.
///
/// # Errors
/// The registry cannot be written.
pub fn follow(from: &VmDir, vm: &VmDir) -> Result<(), CtlError> {
    let (registry, name) = (directory()?, from.name());
    // The name may be as long as a file's can be.
    let new = registry.join(format!(".{}.new", std::process::id()));
    let link = registry.join(&name);
    let _ = fs::remove_file(&new);
    symlink(vm.root(), &new).map_err(FileError::on("make", &new))?;
    Ok(fs::rename(&new, &link).map_err(FileError::on("make", &link))?)
}

/// Removes the VM's names, and any link to its directory, which stays.
pub fn remove(vm: &VmDir) {
    vm.remove_link();
    let Ok(registry) = directory() else { return };
    let vms = all().unwrap_or_default().into_iter();
    for it in vms.filter(|it| it.root() == vm.root()) {
        let _ = fs::remove_file(registry.join(it.name()));
    }
}

/// The VM of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<VmDir, CtlError> {
    let vms = all()?;
    if let Some(vm) = vms.iter().find(|vm| vm.name() == name) {
        return Ok(vm.clone());
    }
    let names: Vec<String> = vms.iter().map(VmDir::name).collect();
    let known = known_names(name, names.iter().map(String::as_str));
    fail!(
        "this user has no VM named {name} here (nothing remains of one whose guest has ended): there is {known}"
    );
}

/// The VM in this directory, reached by any path: as in the registry, else without a name.
pub fn find_in(root: &Path) -> VmDir {
    // Canonical paths do not work: that of /proc/PID/root is another root.
    let here = VmDir::at(std::path::absolute(root).unwrap_or_else(|_| root.to_owned()));
    // A pod may have no registry. Somebody may have removed the directory.
    let mut vms = all().unwrap_or_default().into_iter();
    let found = vms.find(|vm| vm.is_same(&here) || vm.root() == here.root());
    found.unwrap_or(here)
}

/// All VMs, including those whose launcher ended without their supervisor.
///
/// # Errors
/// The registry cannot be read.
pub fn all() -> Result<Vec<VmDir>, CtlError> {
    let registry = directory()?;
    let entries = fs::read_dir(&registry).map_err(FileError::on("read", &registry))?;
    let vms = entries.flatten().filter_map(|entry| {
        let root = fs::read_link(entry.path()).ok()?;
        let name = entry.file_name().into_string().ok()?;
        Some(VmDir::at(root).named(name))
    });
    Ok(vms.collect())
}

/// The user's directory of links; refused if another user owns it.
fn directory() -> Result<PathBuf, CtlError> {
    let user = rustix::process::getuid().as_raw();
    // After su(1) it is still the other user's.
    let is_own = |it: &PathBuf| fs::metadata(it).is_ok_and(|it| it.is_dir() && it.uid() == user);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = match runtime.filter(|it| it.is_absolute() && is_own(it)) {
        Some(runtime) => runtime.join("launcherctl"),
        None => std::env::temp_dir().join(format!("launcherctl-{user}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FileError::on("make", directory)(error).into());
        }
        _ => {}
    }
    let metadata = fs::symlink_metadata(&directory).map_err(FileError::on("stat", &directory))?;
    if metadata.is_dir() && metadata.uid() == user {
        return Ok(directory);
    }
    fail!(
        "{} is not a directory of this user; remove it or set XDG_RUNTIME_DIR",
        directory.display()
    );
}
