//! The VMs of `launcherctl run` on this machine: a directory for each, and a registry of the user's with a link to it by
//! the VM's name.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::FileError;
use api::pod_paths::{COMMAND_SOCKET, PodPaths};
use pod::Root;

/// The VMI as it was sent last.
const VMI_FILE: &str = "vmi.json";

/// Why a VM cannot be found in the registry, or not be added to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// No VM has this name.
    #[error("no VM named {0} was started here with launcherctl run")]
    UnknownName(String),
    /// The name is taken by a VM that runs.
    #[error(
        "a VM named {name} is running, in {root}; end it first (launcherctl shutdown --name {name}) or give this one another name",
        root = root.display()
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Root of the VM that has it.
        root: PathBuf,
    },
    /// The path of the registry is another user's directory.
    #[error("{path} is not a directory of this user; remove it or set XDG_RUNTIME_DIR", path = .0.display())]
    NotOurs(PathBuf),
    /// The stored VMI cannot be read.
    #[error("{file}: not valid JSON", file = file.display())]
    Vmi {
        /// Where it is stored.
        file: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// The directory of a VM: its launcher's root.
#[derive(Debug, Clone)]
pub struct VmDir {
    root: PathBuf,
}

impl VmDir {
    /// A launcher whose root is `root`.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The root, as the `pod` crate takes it.
    #[must_use]
    pub fn pod_root(&self) -> Root {
        Root::new(&self.root)
    }

    /// The launcher's root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path of the pod, e.g. `/var/run/kubevirt`, below this root.
    #[must_use]
    pub fn path(&self, pod_path: &str) -> PathBuf {
        self.root.join(pod_path.trim_start_matches('/'))
    }

    /// The cmd socket.
    #[must_use]
    pub fn cmd_socket(&self) -> PathBuf {
        self.path(&PodPaths::default().shared(COMMAND_SOCKET))
    }

    /// Whether something accepts connections on the cmd socket.
    #[must_use]
    pub fn is_running(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.cmd_socket()).is_ok()
    }

    /// Stores the VMI for later calls.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store_vmi(&self, vmi: &Value) -> Result<(), FileError> {
        let (file, new) = (self.root.join(VMI_FILE), self.root.join("vmi.json.new"));
        fs::write(&new, vmi.to_string()).map_err(FileError::on("write", &new))?;
        fs::rename(&new, &file).map_err(FileError::on("write", &file))
    }

    /// The VMI that was sent last.
    ///
    /// # Errors
    /// If there is none.
    pub fn load_vmi(&self) -> Result<Value, RegistryError> {
        let file = self.root.join(VMI_FILE);
        let text = fs::read_to_string(&file).map_err(FileError::on("read", &file))?;
        serde_json::from_str(&text).map_err(|source| RegistryError::Vmi { file, source })
    }
}

/// Adds the VM under its name.
///
/// # Errors
/// If a VM of that name is running.
pub fn add(name: &str, vm: &VmDir) -> Result<(), RegistryError> {
    let link = directory()?.join(name);
    if let Ok(old) = fs::read_link(&link) {
        if VmDir::at(old.clone()).is_running() {
            return Err(RegistryError::NameTaken {
                name: name.to_owned(),
                root: old,
            });
        }
        fs::remove_file(&link).map_err(FileError::on("remove", &link))?;
    }
    std::os::unix::fs::symlink(vm.root(), &link).map_err(FileError::on("make", &link))?;
    Ok(())
}

/// Removes the VM from the registry; its directory stays.
pub fn remove(name: &str, vm: &VmDir) {
    if let Ok(registry) = directory()
        && fs::read_link(registry.join(name)).is_ok_and(|root| root == vm.root())
    {
        let _ = fs::remove_file(registry.join(name));
    }
}

/// The VM of this name.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<VmDir, RegistryError> {
    fs::read_link(directory()?.join(name))
        .map(VmDir::at)
        .map_err(|_| RegistryError::UnknownName(name.to_owned()))
}

/// The VMs whose launcher answers, with their names.
///
/// # Errors
/// If the registry cannot be read.
pub fn running() -> Result<Vec<(String, VmDir)>, RegistryError> {
    let registry = directory()?;
    let entries = fs::read_dir(&registry).map_err(FileError::on("read", &registry))?;
    let vms = entries.flatten().filter_map(|entry| {
        let root = fs::read_link(entry.path()).ok()?;
        Some((entry.file_name().into_string().ok()?, VmDir::at(root)))
    });
    Ok(vms.filter(|(_, vm)| vm.is_running()).collect())
}

/// The user's directory of links; refused if it belongs to another user.
fn directory() -> Result<PathBuf, RegistryError> {
    let user = rustix::process::getuid().as_raw();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        // After su(1) it is still the other user's.
        Some(runtime) if fs::metadata(&runtime).is_ok_and(|it| it.is_dir() && it.uid() == user) => {
            Path::new(&runtime).join("launcherctl")
        }
        _ => std::env::temp_dir().join(format!("launcherctl-{user}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => Ok(directory),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let metadata =
                fs::symlink_metadata(&directory).map_err(FileError::on("stat", &directory))?;
            if metadata.is_dir() && metadata.uid() == user {
                Ok(directory)
            } else {
                Err(RegistryError::NotOurs(directory))
            }
        }
        Err(error) => Err(FileError::on("make", directory)(error).into()),
    }
}
