//! The options with which a VM is started: of `run`, and of its supervisor, to which `run` passes
//! its own on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::registry::{RegistryError, START_FILE, VmDir};
use super::sidecars::SidecarArgs;
use crate::files::FileError;
use os::file_id::FileId;

/// How a VM is started.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct StartArgs {
    /// Wait until TEXT appears on the guest's console. Then, with neither a terminal nor --detach,
    /// shut the guest down
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub until: Option<String>,
    /// Time limit for the start, and once more for TEXT to appear. After it the VM is stopped, and
    /// run fails
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u64,
    /// Emulate the processor even where /dev/kvm exists
    #[arg(long)]
    pub emulate: bool,
    #[command(flatten)]
    pub sidecars: SidecarArgs,
    /// The launcher to start, if not the one beside this program
    #[arg(long, value_name = "FILE")]
    pub launcher: Option<PathBuf>,
}

/// How the supervisor runs a VM: stored in the VM's directory for it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SuperviseArgs {
    /// Stop the VM when the text of --until has appeared.
    pub stop_when_up: bool,
    /// The VM comes by a migration.
    pub incoming: bool,
    /// The user's files of volumes: their names in the VM's directory say little.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// What these files were when the VM got them, by volume.
    #[serde(default)]
    pub file_ids: BTreeMap<String, FileId>,
    /// The directory of `--root` that the VM has left by a migration: its disks return there.
    #[serde(default)]
    pub home: Option<PathBuf>,
    /// The directory of the other launcher of the last migration, which may have links to the same
    /// images.
    #[serde(default)]
    pub peer: Option<PathBuf>,
    pub start: StartArgs,
}

impl SuperviseArgs {
    /// Notes the user's file of a volume, if that exists and its path is text.
    pub fn add_file(&mut self, volume: &str, file: &Path) {
        let path = file.canonicalize().ok();
        let path = path.as_ref().and_then(|path| path.to_str());
        if let (Some(path), Some(id)) = (path, FileId::at(file)) {
            self.files.insert(volume.to_owned(), path.to_owned());
            self.file_ids.insert(volume.to_owned(), id);
        }
    }

    pub fn remove_file(&mut self, volume: &str) {
        self.files.remove(volume);
        self.file_ids.remove(volume);
    }

    /// Stores them for the supervisor.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn store(&self, dir: &VmDir) -> Result<(), FileError> {
        dir.store(START_FILE, self)
    }

    /// Loads what [`Self::store`] has stored.
    ///
    /// # Errors
    /// The file is missing or unreadable.
    pub fn load(dir: &VmDir) -> Result<Self, RegistryError> {
        dir.load(START_FILE)
    }
}

impl StartArgs {
    /// `--timeout`.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
