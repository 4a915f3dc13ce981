//! The options with which a VM is started: of `run`, and of its supervisor, to which `run` passes
//! its own on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::sidecars::SidecarArgs;

/// How a VM is started.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// The guest is up when TEXT appears on its console; without a terminal or --detach, shut it
    /// down then
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub until: Option<String>,
    /// Stop the VM and fail if it has not started after this many seconds, or TEXT has not appeared
    /// as many seconds later
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

/// Arguments of `supervise`. Standard input is the socket of the `run` that owns the VM.
#[derive(Debug, Args)]
pub struct SuperviseArgs {
    /// The VM's directory, with its VMI and images
    pub directory: PathBuf,
    /// Stop the VM when the text of --until has appeared
    #[arg(long)]
    pub stop_when_up: bool,
    /// The VM comes by a migration
    #[arg(long)]
    pub incoming: bool,
    #[command(flatten)]
    pub start: StartArgs,
}

impl StartArgs {
    /// `--timeout`.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// The same for another command line.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![format!("--timeout={}", self.timeout).into()];
        if let Some(text) = &self.until {
            arguments.push(format!("--until={text}").into());
        }
        if self.emulate {
            arguments.push("--emulate".into());
        }
        arguments.extend(self.sidecars.to_arguments().map(Into::into));
        if let Some(launcher) = &self.launcher {
            arguments.extend(["--launcher".into(), launcher.clone().into_os_string()]);
        }
        arguments
    }
}
