//! The VMs of `launcherctl run` on this machine: a directory for each, and the user's registry with
//! a link to it by the VM's name.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{FileError, InFile, MAX_FILE_BYTES, absolute};
use crate::json::text_at;
use crate::similar::known_names;
use api::pod_paths::{COMMAND_SOCKET, PodPaths};
use pod::Root;

/// The VMI as last sent, below the VM's directory.
const VMI_FILE: &str = "/vmi.json";
/// The VMI's fields that wait for a restart.
const RESTART_FILE: &str = "/restart.json";
/// Why the VM has failed, below its directory.
pub const FAILURE_FILE: &str = "/failure.json";
/// The supervisor's arguments, below the VM's directory.
pub const START_FILE: &str = "/start.json";
/// The supervisor's socket, below the VM's directory.
pub const CONTROL_SOCKET: &str = "/control.sock";
/// An empty file that marks a directory to be removed with the VM.
pub const TEMPORARY: &str = "/temporary";
/// The supervisor's standard error, below the VM's directory.
pub const SUPERVISOR_LOG: &str = "/supervisor.log";

/// The directory of a VM: its launcher's root.
#[derive(Debug, Clone)]
pub struct VmDir {
    root: PathBuf,
    /// The VM's name in the registry; empty if it has none there.
    name: String,
}

impl VmDir {
    /// The directory of a launcher with this root.
    pub fn at(root: PathBuf) -> Self {
        let name = String::new();
        Self { root, name }
    }

    /// The VM's name: that of the registry, else of what `run` has stored; empty if unknown.
    pub fn name(&self) -> String {
        let of_file = |(file, pointer): (&str, &str)| {
            let stored = self.load::<Value>(file).unwrap_or_default();
            Some(text_at(&stored, pointer).to_owned()).filter(|name| !name.is_empty())
        };
        let mut files = [(FAILURE_FILE, "/name"), (VMI_FILE, "/metadata/name")].into_iter();
        match &*self.name {
            "" => files.find_map(of_file).unwrap_or_default(),
            name => name.to_owned(),
        }
    }

    /// The root as the `pod` crate's type.
    pub fn pod_root(&self) -> Root {
        match self.is_of_run() {
            // A claim's image may be a link out of it.
            true => Root::of_user(&self.root),
            false => Root::new(&self.root),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A pod path, e.g. `/var/run/kubevirt`, below this root.
    pub fn path(&self, pod_path: &str) -> PathBuf {
        self.root.join(pod_path.trim_start_matches('/'))
    }

    pub fn cmd_socket(&self) -> PathBuf {
        self.path(&PodPaths::default().shared(COMMAND_SOCKET))
    }

    /// Whether something accepts connections on the cmd socket. Its path may be too long for an
    /// address.
    pub fn is_running(&self) -> bool {
        let socket = self.cmd_socket();
        let connect = || {
            let directory = fs::File::open(socket.parent()?).ok()?;
            let short = format!("/proc/self/fd/{}", directory.as_raw_fd());
            UnixStream::connect(Path::new(&short).join(socket.file_name()?)).ok()
        };
        connect().is_some()
    }

    /// Whether both are the same directory; that of `--root` may be a link with a short path.
    pub fn is_same(&self, other: &Self) -> bool {
        let id = |it: &Self| it.root.metadata().ok().map(|it| (it.dev(), it.ino()));
        id(self).is_some() && id(self) == id(other)
    }

    /// Whether the VM has a supervisor.
    pub fn is_supervised(&self) -> bool {
        UnixStream::connect(self.path(CONTROL_SOCKET)).is_ok()
    }

    /// Whether a launcher or a supervisor serves there, or a `run` is about to start them.
    pub fn is_in_use(&self) -> bool {
        let is_starting = self.root.exists() && self.lock_for_start().is_none();
        self.is_running() || self.is_supervised() || is_starting
    }

    /// Locks the directory by flock(2) until the file is closed; `None` if another `run` has. A
    /// `run` that starts a VM holds the lock until the VM has a supervisor or is given up: until
    /// then nothing there answers, and another `run` would take it for a lost VM.
    pub fn lock_for_start(&self) -> Option<fs::File> {
        let directory = fs::File::open(&self.root).ok()?;
        directory.try_lock().is_ok().then_some(directory)
    }

    /// Whether the directory is removed with the VM.
    pub fn is_temporary(&self) -> bool {
        self.path(TEMPORARY).exists()
    }

    /// The launcher's log.
    pub fn log_file(&self) -> PathBuf {
        self.root.join("launcher.log")
    }

    /// Removes the root if it is a link to the VM's directory, which stays.
    pub fn remove_link(&self) {
        if fs::symlink_metadata(&self.root).is_ok_and(|it| it.is_symlink()) {
            let _ = fs::remove_file(&self.root);
        }
    }

    /// Stores a value as JSON below the root, replacing an earlier one. Private to this user: a VMI
    /// may have passwords for cloud-init.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, file: &str, value: &impl Serialize) -> Result<(), FileError> {
        let file = self.path(file);
        let text = serde_json::to_vec(value).unwrap_or_default();
        os::small_file::replace(&file, &text).map_err(FileError::on("write", file))
    }

    /// Loads what [`Self::store`] has stored.
    ///
    /// # Errors
    /// There is none.
    pub fn load<T: DeserializeOwned>(&self, file: &str) -> Result<T, CtlError> {
        let file = self.path(file);
        let text = os::small_file::read(&file, MAX_FILE_BYTES);
        let text = text.map_err(FileError::on("read", &file))?;
        Ok(serde_json::from_slice(&text).map_err(|source| InFile::new(&file, source))?)
    }

    /// Stores the VMI for later calls.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store_vmi(&self, vmi: &Value) -> Result<(), FileError> {
        self.store(VMI_FILE, vmi)
    }

    /// The VMI last sent by `run` or a later verb.
    ///
    /// # Errors
    /// There is none.
    pub fn load_vmi(&self) -> Result<Value, CtlError> {
        self.load(VMI_FILE)
    }

    /// Stores which fields of the last sent VMI wait for a restart, in a plan's format: the stored
    /// VMI lacks them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store_restart(&self, fields: &[Value]) -> Result<(), FileError> {
        self.store(RESTART_FILE, &fields)
    }

    /// The fields stored by [`Self::store_restart`]; empty if none were.
    pub fn load_restart(&self) -> Vec<Value> {
        self.load(RESTART_FILE).unwrap_or_default()
    }

    /// Removes an ended VM's stored VMI, and the fields that waited for a restart.
    pub fn remove_vmi(&self) {
        for file in [VMI_FILE, RESTART_FILE] {
            let _ = fs::remove_file(self.path(file));
        }
    }

    /// Whether `run`, which stores the VMI here, started the launcher.
    pub fn is_of_run(&self) -> bool {
        self.path(VMI_FILE).exists()
    }
}

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

/// Removes the VM from the registry, and any link to its directory, which stays.
pub fn remove(name: &str, vm: &VmDir) {
    vm.remove_link();
    if let Ok(registry) = directory()
        && fs::read_link(registry.join(name)).is_ok_and(|root| root == vm.root())
    {
        let _ = fs::remove_file(registry.join(name));
    }
}

/// The VM of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<VmDir, CtlError> {
    let vms = all()?;
    if let Some(vm) = vms.iter().find(|vm| vm.name == name) {
        return Ok(vm.clone());
    }
    let known = known_names(name, vms.iter().map(|vm| vm.name.as_str()));
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
    let found = vms.find(|vm| vm.is_same(&here) || vm.root == here.root);
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
        Some(VmDir { root, name })
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
