//! `run`: runs a VM on this machine.
//!
//! ```text
//!  manifest ─► place images ─► start the supervisor ─► its updates, the console ─► the VM has ended
//!                                                       │ Ctrl-], --detach
//!                                                       ▼
//!                                              the VM keeps running; console · list · logs · status · stop
//! ```
//!
//! The VM belongs to its supervisor ([`supervise`]), another process. Whether the VM outlives
//! `run`: `host/control.rs`.

pub mod attach;
mod incoming;

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::inputs::read_manifest;
use super::screen::Screen;
use crate::error::{CtlError, RuntimeError, fail};
use crate::files::{FileError, create_private};
use crate::host::config_data::ConfigDataArgs;
use crate::host::console::is_terminal;
use crate::host::control::{ControlClient, RunPhase, SupervisorError};
use crate::host::network::{HostNetwork, NetworkArgs};
use crate::host::processes::{terminate_all, tool};
use crate::host::sidecar_program::SidecarProgram;
use crate::host::start_args::{StartArgs, SuperviseArgs};
use crate::host::vm_dir::{SUPERVISOR_LOG, VmDir};
use crate::host::{config_data, failure, images, new_dir, remains};
use crate::json::{copy_at, is_true_at};
use crate::manifest::config_data::NamedPath;
use crate::manifest::{Manifest, ManifestError, in_conversion, in_manifest};
use crate::view::output::Format;
use attach::{Attachment, AttachmentEnd};
pub use incoming::{CANCELLED, Incoming, NotArrived, receive};
use os::signals::EndSignals;

/// Limit for the supervisor to exit after its last update.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// VMI or VM manifest, YAML or JSON; `-` is standard input
    manifest: PathBuf,
    /// Use FILE as the image of volume NAME (container disks are read from it, claims live in it)
    #[arg(long = "disk", value_name = "NAME=FILE")]
    disks: Vec<NamedPath>,
    /// Keep the VM's files in DIR, which stays when the VM ends; without it they are in a directory
    /// that is removed then
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Return once the VM runs (with --until: once the guest is up), and leave it running
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    config_data: ConfigDataArgs,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    start: StartArgs,
}

/// Runs the VM until it ends, or until the terminal leaves it.
///
/// # Errors
/// It cannot be started, or the launcher ends on its own.
pub async fn run(args: &RunArgs, format: Format) -> Result<ExitCode, CtlError> {
    let mut manifest = read_manifest(&args.manifest)?;
    manifest.forget_status();
    if args.start.until.is_some() && has_no_console(manifest.value()) {
        fail!(
            "--until waits for text on the guest's serial console, and the VMI has none (spec.domain.devices.autoattachSerialConsole: false)"
        );
    }
    let name = manifest.text("/metadata/name").to_owned();
    let screen = Screen::new(format);
    let bindings = manifest.check_bindings().map_err(ManifestError::Field);
    bindings.map_err(in_manifest(&args.manifest))?;
    let mut notes = manifest.leave_out_node_parts();
    let (network, of_network) = HostNetwork::of(&mut manifest, &args.network)?;
    notes.extend(of_network);
    notes.iter().for_each(|note| screen.note(note));
    let sidecars = crate::host::sidecars::programs(manifest.value(), &args.start.sidecars);
    manifest
        .check_conversion()
        .map_err(in_conversion(&args.manifest))?;
    // From here on, nothing started may outlive this program by accident.
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    // At the end of this function the VM has a supervisor, or does not exist.
    remains::make_way(&name).await?;
    let (dir, _starting) = new_dir::create(&name, args.root.as_deref())?;
    let prepared = prepare(args, &manifest, sidecars, network.as_ref(), &dir, &screen);
    prepared.inspect_err(|_| remains::forget(&dir))?;
    // A directory of --root may have another VM's.
    failure::clear(&dir);
    let is_up = match args.start.until {
        Some(_) => RunPhase::GuestUp,
        None => RunPhase::DomainRunning,
    };
    let detach_at = args.detach.then_some(is_up);
    let ran = async {
        let (mut supervisor, control) = start_supervisor(&dir)?;
        let attachment = Attachment::new(&name, &dir, control, &screen);
        let outcome = attachment.attend(detach_at, &mut signals).await;
        if !matches!(outcome, Ok(AttachmentEnd::Detached)) {
            let _ = timeout(EXIT_TIMEOUT, supervisor.wait()).await;
        }
        Ok(match outcome? {
            AttachmentEnd::Ended(code) => code,
            AttachmentEnd::Detached => ExitCode::SUCCESS,
        })
    };
    let result = ran.await;
    match result.as_ref().map_err(CtlError::of) {
        // The supervisor has removed everything.
        Ok(_) => {}
        Err(Some(SupervisorError::Failed(_))) => {}
        // Its guest is not forced off for that.
        Err(Some(SupervisorError::Lost(_))) if dir.is_running() => {}
        Err(_) => {
            terminate_all(dir.root()).await;
            remains::forget(&dir);
        }
    }
    result
}

const PERSISTENT_EFI: &str = "/spec/domain/firmware/bootloader/efi/persistent";

/// Whether the VMI asks for no serial console.
fn has_no_console(vmi: &serde_json::Value) -> bool {
    copy_at(vmi, "/spec/domain/devices/autoattachSerialConsole") == false
}

/// Places the VM's files, with the arguments of its supervisor.
fn prepare(
    args: &RunArgs,
    manifest: &Manifest,
    sidecars: Result<Vec<SidecarProgram>, CtlError>,
    network: Option<&HostNetwork>,
    dir: &VmDir,
    screen: &Screen,
) -> Result<(), CtlError> {
    if args.root.is_some() {
        // Those of an earlier, killed VM.
        dir.remove_secrets();
        dir.remove_overlays();
        if !is_true_at(manifest.value(), PERSISTENT_EFI) {
            dir.remove_firmware_variables();
        }
    }
    let mut errors = Vec::new();
    match sidecars {
        Ok(sidecars) => errors.extend(config_data::place(
            manifest,
            &args.config_data,
            &sidecars,
            dir,
        )),
        Err(error) => errors.push(error),
    }
    let note = |text: &str| screen.note(text);
    errors.extend(images::place(manifest, dir, &args.disks, note));
    // A missing file does not hide the others.
    CtlError::of_several(errors).map_or(Ok(()), Err)?;
    dir.store_vmi(manifest.value())?;
    match network {
        Some(network) => network.store(dir)?,
        // A directory of --root may have an earlier VM's.
        None => HostNetwork::remove(dir),
    }
    let supervise = SuperviseArgs {
        stop_when_up: !args.detach && !is_terminal(),
        start: args.start.clone(),
        ..SuperviseArgs::default()
    };
    Ok(supervise.store(dir)?)
}

/// Starts the supervisor of the VM in this directory; the connection's owner owns the VM.
fn start_supervisor(dir: &VmDir) -> Result<(Child, ControlClient), CtlError> {
    let (ours, theirs) = UnixStream::pair().map_err(RuntimeError)?;
    let theirs = theirs.into_std().map_err(RuntimeError)?;
    let stderr = create_private(&dir.path(SUPERVISOR_LOG))?;
    let mut command = Command::from(tool("launcherctl").map_err(RuntimeError)?);
    command
        .arg("supervise")
        .arg("--")
        .arg(dir.root())
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(stderr);
    let program = command.as_std().get_program().to_owned();
    let child = command.spawn().map_err(FileError::on("start", program))?;
    Ok((child, ControlClient::new(ours, dir)))
}
