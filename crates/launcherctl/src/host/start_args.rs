//! The options with which a VM is started: of `run`, and of its supervisor, to which `run` passes
//! its own on.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::sidecars::SidecarArgs;
use super::vm_dir::{START_FILE, VmDir};
use crate::error::CtlError;
use crate::files::FileError;

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
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SuperviseArgs {
    /// Stop the VM when the text of --until has appeared.
    pub stop_when_up: bool,
    /// The VM comes by a migration.
    pub incoming: bool,
    pub start: StartArgs,
}

impl SuperviseArgs {
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
    pub fn load(dir: &VmDir) -> Result<Self, CtlError> {
        dir.load(START_FILE)
    }
}

impl StartArgs {
    /// `--timeout`.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
