//! `hooks`: a running launcher's sidecars and their last calls; `hooks try`: calls one sidecar with
//! a VMI, without a launcher; `hooks check`: checks that a launcher can rely on a program as a
//! sidecar. Both take the sidecar of a plugin too.

mod check;
mod trial;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::target::Target;
use crate::error::{CtlError, RuntimeError, fail, text_error};
use crate::files::{FileError, InFile, MAX_FILE_BYTES, short_temporary};
use crate::host::config_data::place_of_file;
use crate::host::registry::VmDir;
use crate::json::set;
use crate::view::output::{Format, answer_json};
use api::pod_paths::HOOKS_REPORT;
use api::vmi::Vmi;
use client::refusal::plain;
use hooks::Report;
use hooks::conformance::CloudInit;
use hooks::plugins::TrialPod;
use os::signals::EndSignals;
use pod::ExampleCloudInit;

/// Arguments of `hooks`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HooksArgs {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a sidecar against a VMI, without a launcher, and print what it changes
    Try(trial::TryArgs),
    /// Check whether a sidecar program does what a launcher expects: answers, bad input, size,
    /// time, its end
    Check(check::CheckArgs),
}

/// `hooks`, `hooks try` and `hooks check`.
///
/// # Errors
/// There is no launcher with sidecars, or the sidecar fails.
pub async fn hooks(args: &HooksArgs, format: Format) -> Result<ExitCode, CtlError> {
    match &args.action {
        None => list(&args.target, format).await,
        Some(Action::Try(args)) => trial::run(args, format).await,
        Some(Action::Check(args)) => check::run(args, format).await,
    }
}

async fn list(target: &Target, format: Format) -> Result<ExitCode, CtlError> {
    // A report left by an ended launcher is out of date.
    let (dir, client) = target.connect().await?;
    let launcher = client.debug().await.unwrap_or_default();
    let file = dir.path(HOOKS_REPORT);
    let report: Report = match os::small_file::read(&file, MAX_FILE_BYTES) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| InFile::new(&file, error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Report::default(),
        Err(error) => return Err(FileError::on("read", file)(error).into()),
    };
    let mut document = json!(report);
    let ignored = plain(&launcher.ignored_by_libvirt);
    set(&mut document, "/ignoredByLibvirt", json!(ignored));
    answer_json(format, &document)
}

/// Makes the directories for a sidecar's socket and for the shim's links, with the ConfigMaps and
/// Secrets of the VMI's file. They are removed on drop.
fn temporary_dirs(vmi: &Value, documents: &[Value]) -> Result<(TempDir, TempDir), CtlError> {
    let (sockets, links) = (temporary_dir()?, temporary_dir()?);
    // A sidecar's cloud-init data are read below `links`, a plugin's below `sockets`.
    for root in [&sockets, &links] {
        place_of_file(vmi, documents, &VmDir::at(root.path().to_owned()))?;
    }
    Ok((sockets, links))
}

/// The VMI's cloud-init data, of whose Secrets `links` has those that are there; examples if it has
/// no volume with any.
fn cloud_init(links: &TempDir, vmi: &Vmi) -> Result<CloudInit, CtlError> {
    let data = pod::example_cloud_init(links.path(), vmi)
        .map_err(|error| text_error!("the VMI's cloud-init data").caused_by(error))?;
    Ok(match data {
        ExampleCloudInit::Data(data) => CloudInit::Data(json!(data)),
        ExampleCloudInit::NoVolume => CloudInit::Examples,
        ExampleCloudInit::NeedsSecret => CloudInit::NeedsSecret,
    })
}

fn temporary_dir() -> Result<TempDir, FileError> {
    // Half of a path for the sidecar's own names.
    let base = short_temporary(64);
    tempfile::tempdir_in(&base).map_err(FileError::on("make", base))
}

/// The directory of the socket below an empty one, and what stands for the pod of a plugin that is
/// tried with a VMI.
fn socket_dir(root: &Path, vmi: Option<&Vmi>) -> Result<(PathBuf, Option<TrialPod>), CtlError> {
    let Some(vmi) = vmi else {
        return Ok((root.to_owned(), None));
    };
    let image = pod::example_cloud_init_image(root, vmi);
    let image = image.map_err(|error| text_error!("a cloud-init image").caused_by(error))?;
    let pod = TrialPod::new(root, image).map_err(FileError::on("fill", root))?;
    Ok((pod.socket_dir(), Some(pod)))
}

/// Shows what the sidecar prints on standard error, as standard output is for the result, or drops
/// it.
fn show(command: &mut Command, is_shown: bool) {
    let out = if is_shown {
        std::io::stderr().into()
    } else {
        Stdio::null()
    };
    command.stdout(out);
    if !is_shown {
        command.stderr(Stdio::null());
    }
}

/// Stops at Ctrl-C and other signals, so that the sidecar and its files do not outlive this
/// program.
async fn until_signal<T>(work: impl Future<Output = T>) -> Result<T, CtlError> {
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    tokio::select! {
        done = work => Ok(done),
        _ = signals.next() => fail!("cancelled, and the sidecar has been killed"),
    }
}
