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

use crate::files::{FileError, MAX_FILE_BYTES, absolute};
use crate::json::text_at;
use crate::similar::known_names;
use api::pod_paths::{COMMAND_SOCKET, PodPaths};
use os::file_id::FileId;
use os::grpc::serving_process;
use os::procfs::is_stopped;
use pod::Root;

/// The VMI as last sent, below the VM's directory.
const VMI_FILE: &str = "/vmi.json";
/// The VMI's fields that wait for a restart.
const RESTART_FILE: &str = "/restart.json";
/// The supervisor's arguments, below the VM's directory.
pub const START_FILE: &str = "/start.json";
/// The supervisor's socket, below the VM's directory.
pub const CONTROL_SOCKET: &str = "/control.sock";
/// An empty file that marks a directory to be removed with the VM.
pub const TEMPORARY: &str = "/temporary";
/// The supervisor's standard error, below the VM's directory.
pub const SUPERVISOR_LOG: &str = "/supervisor.log";

/// Why a VM cannot be found in the registry, or added to it.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    File(#[from] FileError),
    /// No VM has this name; all names.
    #[error(
        "this user has no VM named {0} here (nothing remains of one whose guest has ended): there is {1}"
    )]
    UnknownName(String, String),
    /// The name is taken by a VM that runs.
    #[error(
        "a VM named {0} is running, in {root}; end it first (launcherctl stop {0}) or give this one another name: names are unique on this machine, across namespaces",
        root = .1.display()
    )]
    NameTaken(String, PathBuf),
    /// A VM whose guest has lost its launcher has the name.
    #[error(
        "{0} has lost its launcher, and its guest still runs (QEMU is process {1}); launcherctl stop {0} forces it off"
    )]
    GuestRuns(String, i32),
    /// Another user owns the registry's directory.
    #[error("{path} is not a directory of this user; remove it or set XDG_RUNTIME_DIR", path = .0.display())]
    NotOurs(PathBuf),
    /// A stored file cannot be read.
    #[error("{file}: not valid JSON", file = .0.display())]
    NotJson(PathBuf, #[source] serde_json::Error),
}

impl RegistryError {
    /// The name is taken by the VM in `dir`.
    pub fn name_taken(name: &str, dir: &VmDir) -> Self {
        Self::NameTaken(name.to_owned(), absolute(dir.root()))
    }
}

/// The directory of a VM: its launcher's root.
#[derive(Debug, Clone)]
pub struct VmDir {
    root: PathBuf,
}

impl VmDir {
    /// The directory of a launcher with this root.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
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

    /// PID of a launcher whose process a signal or a debugger has stopped: no call is answered.
    pub async fn stopped_launcher(&self) -> Option<i32> {
        stopped_server(&self.cmd_socket()).await
    }

    /// Like [`Self::stopped_launcher`], of the VM's supervisor.
    pub async fn stopped_supervisor(&self) -> Option<i32> {
        stopped_server(&self.path(CONTROL_SOCKET)).await
    }

    /// Whether both are the same directory; that of `--root` may be a link with a short path.
    pub fn is_same(&self, other: &Self) -> bool {
        let path = |dir: &Self| dir.root.canonicalize().ok();
        path(self).is_some() && path(self) == path(other)
    }

    /// Whether the VM has a supervisor.
    pub fn is_supervised(&self) -> bool {
        UnixStream::connect(self.path(CONTROL_SOCKET)).is_ok()
    }

    /// Locks the directory by flock(2) until the file is closed; `None` if another `run` has. A
    /// `run` that starts a VM holds the lock until the VM has a supervisor or is given up: until
    /// then nothing there answers, and another `run` would take it for a lost VM.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn lock_for_start(&self) -> Result<Option<fs::File>, FileError> {
        let directory = fs::File::open(&self.root).map_err(FileError::on("open", &self.root))?;
        Ok(directory.try_lock().is_ok().then_some(directory))
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
    pub fn load<T: DeserializeOwned>(&self, file: &str) -> Result<T, RegistryError> {
        let file = self.path(file);
        let text = os::small_file::read(&file, MAX_FILE_BYTES);
        let text = text.map_err(FileError::on("read", &file))?;
        serde_json::from_slice(&text).map_err(|source| RegistryError::NotJson(file, source))
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
    pub fn load_vmi(&self) -> Result<Value, RegistryError> {
        self.load(VMI_FILE)
    }

    /// Stores which fields of the last sent VMI wait for a restart, in a plan's format: the stored
    /// VMI lacks them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store_restart(&self, fields: &[Value]) -> Result<(), FileError> {
        if fields.is_empty() {
            let _ = fs::remove_file(self.path(RESTART_FILE));
            return Ok(());
        }
        self.store(RESTART_FILE, &fields)
    }

    /// The fields stored by [`Self::store_restart`]; empty if none were.
    pub fn load_restart(&self) -> Vec<Value> {
        self.load(RESTART_FILE).unwrap_or_default()
    }

    /// The field does not wait any more.
    ///
    /// # Errors
    /// This cannot be stored.
    pub fn forget_restart(&self, field: &str) -> Result<(), FileError> {
        let mut fields = self.load_restart();
        fields.retain(|it| text_at(it, "/field") != field);
        self.store_restart(&fields)
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

/// PID of the process that listens on a socket, if it is stopped.
async fn stopped_server(socket: &Path) -> Option<i32> {
    let pid = serving_process(socket).await;
    pid.filter(|pid| is_stopped(*pid))
}

/// Adds the VM under its name.
///
/// # Errors
/// A VM of that name is running, or being started in another directory.
pub fn add(name: &str, vm: &VmDir) -> Result<(), RegistryError> {
    let directory = directory()?;
    let registry = fs::File::open(&directory).map_err(FileError::on("open", &directory))?;
    // Only for a moment: another process may be checking the same name.
    registry.lock().map_err(FileError::on("lock", &directory))?;
    let link = directory.join(name);
    if let Ok(old) = fs::read_link(&link).map(VmDir::at) {
        // In `vm` it is this `run` that starts it.
        let is_being_started = || !old.is_same(vm) && matches!(old.lock_for_start(), Ok(None));
        if old.is_running() || old.is_supervised() || is_being_started() {
            return Err(RegistryError::name_taken(name, &old));
        }
        fs::remove_file(&link).map_err(FileError::on("remove", &link))?;
    }
    symlink(vm.root(), &link).map_err(FileError::on("make", &link))?;
    Ok(())
}

/// Moves the name to a VM's new directory. Does nothing unless the VM in `from` has the name.
///
/// # Errors
/// The registry cannot be written.
pub fn follow(name: &str, from: &VmDir, vm: &VmDir) -> Result<(), RegistryError> {
    let registry = directory()?;
    let (link, new) = (registry.join(name), registry.join(format!(".{name}.new")));
    if fs::read_link(&link).ok().as_deref() != Some(from.root()) {
        return Ok(());
    }
    let _ = fs::remove_file(&new);
    symlink(vm.root(), &new).map_err(FileError::on("make", &new))?;
    fs::rename(&new, &link).map_err(FileError::on("make", &link))?;
    Ok(())
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
pub fn find(name: &str) -> Result<VmDir, RegistryError> {
    let root = fs::read_link(directory()?.join(name));
    let unknown = |_| {
        let all = all().unwrap_or_default();
        let known = known_names(name, all.iter().map(|(name, _)| name.as_str()));
        RegistryError::UnknownName(name.to_owned(), known)
    };
    root.map(VmDir::at).map_err(unknown)
}

/// The VM in this directory, reached by any path, with its name.
///
/// # Errors
/// The registry cannot be read.
pub fn find_in(root: &Path) -> Result<Option<(String, VmDir)>, RegistryError> {
    // Canonical paths do not work: that of /proc/PID/root is another root.
    let wanted = FileId::at(root);
    let mut vms = all()?.into_iter();
    // Somebody may have removed it.
    let is_same =
        |vm: &VmDir| wanted.is_some() && FileId::at(vm.root()) == wanted || vm.root() == root;
    Ok(vms.find(|(_, vm)| is_same(vm)))
}

/// All VMs with their names, including those whose launcher ended without their supervisor.
///
/// # Errors
/// The registry cannot be read.
pub fn all() -> Result<Vec<(String, VmDir)>, RegistryError> {
    let registry = directory()?;
    let entries = fs::read_dir(&registry).map_err(FileError::on("read", &registry))?;
    let vms = entries.flatten().filter_map(|entry| {
        let root = fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().into_string().ok()?, VmDir::at(root)))
    });
    Ok(vms.collect())
}

/// The user's directory of links; refused if another user owns it.
fn directory() -> Result<PathBuf, RegistryError> {
    let user = rustix::process::getuid().as_raw();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        // After su(1) it is still the other user's. The specification: a relative path is invalid.
        Some(runtime)
            if Path::new(&runtime).is_absolute()
                && fs::metadata(&runtime).is_ok_and(|it| it.is_dir() && it.uid() == user) =>
        {
            Path::new(&runtime).join("launcherctl")
        }
        _ => std::env::temp_dir().join(format!("launcherctl-{user}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(FileError::on("make", directory)(error).into());
        }
        _ => {}
    }
    let metadata = fs::symlink_metadata(&directory).map_err(FileError::on("stat", &directory))?;
    if metadata.is_dir() && metadata.uid() == user {
        Ok(directory)
    } else {
        Err(RegistryError::NotOurs(directory))
    }
}
