//! `hooks`: a running launcher's sidecars and their last calls; `hooks try`: calls one sidecar with
//! a VMI, without a launcher; `hooks check`: checks that a launcher can rely on a program as a
//! sidecar. Both take the sidecar of a plugin too.

mod check;
mod trial;

use std::path::Path;
use std::process::{ExitCode, Stdio};

use clap::{Args, Subcommand};
use prost::bytes::Bytes;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::target::Target;
use crate::error::{CtlError, RuntimeError, fail, text_error};
use crate::files::{FileError, short_temporary};
use crate::host::config_data::place_of_file;
use crate::host::sidecar_program::SidecarProgram;
use crate::host::vm_dir::VmDir;
use crate::json::set;
use crate::manifest::{in_manifest, other_documents};
use crate::verbs::inputs::{parse, read};
use crate::view::output::{Format, answer_json};
use api::pod_paths::HOOKS_REPORT;
use api::vmi::Vmi;
use client::refusal::plain;
use hooks::Report;
use hooks::conformance::{CloudInit, Subject, TrialPod};
use os::signals::EndSignals;
use pod::ExampleCloudInit;

/// A VMI with the parts that sidecars change most often: disks, an interface, cloud-init.
const DEFAULT_VMI: &str = include_str!("check_vmi.yaml");

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
    Check(check::HooksCheckArgs),
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
    let vm = target.connect().await?;
    let launcher = vm.client.debug().await.unwrap_or_default();
    let report = match vm.dir.path(HOOKS_REPORT).exists() {
        true => vm.dir.load(HOOKS_REPORT)?,
        false => Report::default(),
    };
    let mut document = json!(report);
    let ignored = plain(&launcher.ignored_by_libvirt);
    set(&mut document, "/ignoredByLibvirt", json!(ignored));
    answer_json(format, &document)
}

/// Options of `hooks try` and `hooks check`.
#[derive(Debug, Args)]
struct Options {
    /// The sidecar is a plugin's: it serves LauncherHookService; a program needs {}
    #[arg(long)]
    plugin: bool,
    /// Show what the sidecar prints
    #[arg(short, long)]
    verbose: bool,
}

/// The program with what a launcher would give it for the VMI; without one, for a small one. Its
/// directories are removed on drop: one for its socket, and one for the shim's links and the
/// ConfigMaps and Secrets of the VMI's file.
fn subject(
    vmi: Option<&Path>,
    program: &[String],
    options: &Options,
) -> Result<(Command, Subject, [TempDir; 2]), CtlError> {
    let is_plugin = options.plugin;
    let program = match program {
        [program] => SidecarProgram::parse(program, is_plugin)?,
        words => SidecarProgram::new(words, is_plugin)?,
    };
    let file = vmi.unwrap_or(Path::new("the default VMI"));
    let has_file = vmi.is_some();
    let (text, value, vmi, context) = match vmi {
        Some(file) => read(file, None)?,
        None => parse(file, DEFAULT_VMI.to_owned(), None)?,
    };
    let documents = other_documents(&text).map_err(in_manifest(file))?;
    let (sockets, links) = (temporary_dir()?, temporary_dir()?);
    // A sidecar's cloud-init data are read below `links`, a plugin's below `sockets`.
    for root in [&sockets, &links] {
        place_of_file(&value, &documents, &VmDir::at(root.path().to_owned()))?;
    }
    let (mut socket_dir, mut plugin) = (sockets.path().to_owned(), None);
    if is_plugin {
        let image = pod::example_cloud_init_image(&socket_dir, &vmi);
        let image = image.map_err(|error| text_error!("a cloud-init image").caused_by(error))?;
        let pod = TrialPod::new(&socket_dir, image).map_err(FileError::on("fill", &socket_dir))?;
        socket_dir = plugin.insert(pod).socket_dir();
    }
    let mut command = program.command(&socket_dir, links.path())?;
    if options.verbose {
        // Standard output is for the result.
        command.stdout(std::io::stderr());
    } else {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let subject = Subject {
        socket_dir,
        domain_xml: convert::domain(&vmi, &context)?.to_xml(),
        vmi_json: Bytes::from(value.to_string()),
        cloud_init: match has_file {
            true => cloud_init(&links, &vmi)?,
            false => CloudInit::Examples,
        },
        plugin,
    };
    Ok((command, subject, [sockets, links]))
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

/// Stops at Ctrl-C and other signals, so that the sidecar and its files do not outlive this
/// program.
async fn until_signal<T>(work: impl Future<Output = T>) -> Result<T, CtlError> {
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    tokio::select! {
        done = work => Ok(done),
        _ = signals.next() => fail!("cancelled, and the sidecar has been killed"),
    }
}
