//! The directory of a VM, its launcher's root: what is where in it, and whoever answers there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::processes;
use crate::error::{CtlError, fail};
use crate::files::{FileError, InFile, MAX_FILE_BYTES, absolute};
use crate::json::text_at;
use api::pod_paths::{
    COMMAND_SOCKET, CONFIG_MAP_DIR, CONFIG_MAP_IMAGE_DIR, PodPaths, SECRET_DIR, SECRET_IMAGE_DIR,
    SESSION_NVRAM_DIR, SYSPREP_DIR, SYSPREP_IMAGE_DIR, SYSTEM_NVRAM_DIR,
};
use client::{CallError, Client};
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

    /// The same with its name in the registry.
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// The VM's name: that of the registry, else of what `run` has stored; empty if unknown.
    pub fn name(&self) -> String {
        match &*self.name {
            "" => self.stored("name"),
            name => name.to_owned(),
        }
    }

    /// The VM's UID by what `run` has stored; empty if unknown.
    pub fn uid(&self) -> String {
        self.stored("uid")
    }

    /// A text of a failed VM's reason, else of the VMI's metadata.
    fn stored(&self, field: &str) -> String {
        let text = |file, parent| {
            let stored: Value = self.load(file).unwrap_or_default();
            text_at(&stored, &format!("{parent}/{field}")).to_owned()
        };
        let texts = [text(FAILURE_FILE, ""), text(VMI_FILE, "/metadata")];
        let known = texts.into_iter().find(|text| !text.is_empty());
        known.unwrap_or_default()
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

    /// Connects to the launcher.
    ///
    /// # Errors
    /// None answers.
    pub async fn client(&self) -> Result<Client, CallError> {
        Client::connect(&self.cmd_socket()).await
    }

    /// The VMI last sent: stored by `run`, else from the launcher, as in a pod; `None` if neither
    /// has one.
    ///
    /// # Errors
    /// The launcher does not answer.
    pub async fn last_vmi(&self, launcher: &Client) -> Result<Option<Value>, CallError> {
        match self.load_vmi() {
            Ok(vmi) => Ok(Some(vmi)),
            Err(_) => Ok(launcher.last_sync().await?.map(|sync| sync.vmi)),
        }
    }

    /// Whether something accepts connections on the cmd socket, whose path is short enough for an
    /// address in a VM of `run`.
    pub fn is_running(&self) -> bool {
        UnixStream::connect(self.cmd_socket()).is_ok()
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

    /// Whether `run`, which stores the VMI here, started the launcher.
    pub fn is_of_run(&self) -> bool {
        self.path(VMI_FILE).exists()
    }

    /// Removes what a killed launcher has left: its socket, which would be mistaken for the next
    /// one's, and its domain, whose end the next one would report instead of starting anything.
    ///
    /// # Errors
    /// It or its guest runs, or they cannot be removed.
    pub fn remove_stale(&self) -> Result<(), CtlError> {
        let root = absolute(&self.root);
        let root = root.display();
        if self.is_running() {
            fail!("a launcher is running in {root}; end it first or choose another --root");
        }
        if let Some(pid) = processes::guest(&self.root) {
            fail!(
                "a guest still runs in {root} (QEMU is process {pid}); end it first or choose another --root"
            );
        }
        for stale in ["run/qemu", "etc/qemu"] {
            let _ = fs::remove_dir_all(self.path(stale));
        }
        let socket = self.cmd_socket();
        Ok(os::small_file::remove(&socket).map_err(FileError::on("remove", socket))?)
    }

    /// Removes the directory, and any link to it, except the files `kept` in it; those too if all
    /// of them are empty.
    pub fn remove(&self, kept: &[PathBuf]) {
        let has_content = |file: &PathBuf| file.metadata().is_ok_and(|it| it.len() > 0);
        if !kept.iter().any(has_content) {
            let _ = self.root.canonicalize().and_then(fs::remove_dir_all);
            return self.remove_link();
        }
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        for path in paths.filter(|path| !kept.contains(path)) {
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }

    /// Removes the links to images that were plugged in, as the next run does not have them.
    pub fn remove_plugged_links(&self) {
        let any = self.path(&PodPaths::default().hotplug_image("any"));
        let entries = any.parent().and_then(|it| fs::read_dir(it).ok());
        for entry in entries.into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|it| it.is_symlink()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Removes the guest's writes to its container disks, which are lost with the VM as in a
    /// cluster.
    pub fn remove_overlays(&self) {
        let _ = fs::remove_dir_all(self.path(PodPaths::default().overlay_dir));
    }

    /// Removes the firmware's variables (NVRAM). libvirt then makes them from the template of the
    /// next start, which is another one if `secureBoot` has changed.
    pub fn remove_firmware_variables(&self) {
        for path in [SYSTEM_NVRAM_DIR, SESSION_NVRAM_DIR] {
            let _ = fs::remove_dir_all(self.path(path));
        }
    }

    /// Removes the copies of ConfigMaps and Secrets, the VMI, which may have passwords for
    /// cloud-init, the images made from them, and how the VM was started.
    pub fn remove_secrets(&self) {
        for file in [VMI_FILE, RESTART_FILE, START_FILE] {
            let _ = fs::remove_file(self.path(file));
        }
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
            let _ = fs::remove_dir_all(self.path(path));
        }
    }
}
