//! `run`: runs a VM on this machine.
//!
//! ```text
//!  manifest ─► place images ─► start the supervisor ─► its updates, the console ─► the VM has ended
//!                                                       │ Ctrl-], --detach
//!                                                       ▼
//!                                              the VM keeps running; console · list · logs · status · stop
//! ```
//!
//! The VM belongs to its supervisor ([`supervise`]), another process. The supervisor stops the VM
//! when `run` ends without leaving it on purpose, even by kill -9.

pub mod attach;
mod incoming;

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::screen::Screen;
use super::target::{read_manifest_text, refused_by_check, vm_name, warn_of_unknown_fields};
use crate::error::{CtlError, RuntimeError, fail};
use crate::files::{FileError, create_private};
use crate::host::config_data::ConfigDataArgs;
use crate::host::console::is_terminal;
use crate::host::control::{ControlClient, Phase};
use crate::host::data_volumes;
use crate::host::network::{Network, NetworkArgs};
use crate::host::orphan_qemu::OrphanQemu;
use crate::host::processes::{find_on_path, tool};
use crate::host::registry::{self, SUPERVISOR_LOG, TEMPORARY, VmDir};
use crate::host::remains::{Earlier, forget};
use crate::host::sidecar_program::SidecarProgram;
use crate::host::start_args::{StartArgs, SuperviseArgs};
use crate::json::is_true_at;
use crate::manifest::config_data::NamedPath;
use crate::manifest::{Manifest, ManifestError, host_architecture, in_conversion, in_manifest};
use crate::view::output::Format;
use attach::{Attachment, Outcome, SupervisorError};
pub use incoming::{Incoming, receive};
use os::signals::EndSignals;

/// Limit for the supervisor to exit after its last update.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// VMI or VM manifest, YAML or JSON; `-` is standard input
    manifest: PathBuf,
    /// Use FILE as the image of volume NAME (container disks are read from it, claims live in it)
    #[arg(long = "disk", value_name = "NAME=FILE", add = ArgValueCompleter::new(NamedPath::candidates))]
    disks: Vec<NamedPath>,
    /// Keep the VM's files in DIR, which stays when the VM ends; without it they are in a directory
    /// that is removed then
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Return once the VM runs (with --until: once the guest is up), and leave it running
    #[arg(short, long)]
    detach: bool,
    /// Track which blocks of claims, data volumes and host disks change, so that launcherctl backup
    /// can back them up. Each run begins anew: its first backup is a full one
    #[arg(long)]
    track_changes: bool,
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
    let text = read_manifest_text(&args.manifest)?;
    warn_of_unknown_fields(&args.manifest, &text);
    let mut manifest = Manifest::parse(&text).map_err(in_manifest(&args.manifest))?;
    manifest.forget_status();
    let name = manifest.text("/metadata/name").to_owned();
    let earlier = Earlier::find(&name)?;
    let screen = Screen::new(format);
    check_emulator(manifest.text("/spec/architecture"))?;
    let bindings = manifest.check_bindings().map_err(ManifestError::Field);
    bindings.map_err(in_manifest(&args.manifest))?;
    let mut notes = manifest.leave_out_node_parts();
    let (network, of_network) = Network::of(&mut manifest, &args.network)?;
    notes.extend(of_network);
    notes.iter().for_each(|note| screen.note(note));
    if args.track_changes && !manifest.track_changes() {
        screen.note("it has no claim, data volume or host disk, so there are no changes to track");
    }
    let sidecars = crate::host::sidecars::programs(manifest.value(), &args.start.sidecars);
    let started = sidecars.as_deref().unwrap_or_default();
    note_sidecars(args, &manifest, started, &screen);
    manifest
        .check_conversion()
        .map_err(in_conversion(&args.manifest))?;
    // From here on, nothing started may outlive this program by accident.
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    let orphan_qemu = OrphanQemu::adopt();
    // At the end of this function the VM has a supervisor, or does not exist.
    let (dir, _starting) = crate::host::vm_dir::create(&name, args.root.as_deref())?;
    if let Some(earlier) = &earlier {
        let notes = earlier.give_back()?;
        notes.iter().for_each(|text| screen.note(text));
    }
    match prepare(args, &manifest, sidecars, network.as_ref(), &dir, &screen) {
        Ok(()) => refused_by_check(&text).iter().for_each(|refused| {
            screen.note(&format!(
                "the manifest is run, but launcherctl check refuses it: {refused}"
            ));
        }),
        Err(error) => {
            discard(args, &name, &dir);
            if let Some(earlier) = earlier {
                earlier.restore(&dir);
            }
            return Err(with_refusal(error, refused_by_check(&text)));
        }
    }
    if let Some(earlier) = earlier {
        earlier.remove(&dir).await;
    }
    // A directory of --root may have another VM's.
    crate::host::failure::clear(&dir);
    let is_up = match args.start.until {
        Some(_) => Phase::GuestUp,
        None => Phase::DomainRunning,
    };
    let detach_at = args.detach.then_some(is_up);
    let ran = async {
        let (supervisor, control) = start_supervisor(&dir)?;
        let attachment = Attachment::new(&name, &dir, control, &screen);
        let outcome = attachment.attend(detach_at, &mut signals);
        has_ended(supervisor, outcome.await).await
    };
    let result = ran.await;
    match result.as_ref().map_err(CtlError::of) {
        // The supervisor has removed everything.
        Ok(_) => {}
        Err(Some(SupervisorError::Failed(_))) => {}
        // Its guest is not forced off for that.
        Err(Some(SupervisorError::Lost(_))) if dir.is_running() => {}
        Err(_) => {
            orphan_qemu.terminate().await;
            forget(&name, &dir);
        }
    }
    result
}

/// Says what `--sidecar` does that the VMI does not.
fn note_sidecars(args: &RunArgs, manifest: &Manifest, started: &[SidecarProgram], screen: &Screen) {
    let vmi = manifest.value();
    let assumed = started.iter().filter_map(SidecarProgram::assumed_hook);
    assumed.for_each(|hook| screen.note(&hook));
    if !started.is_empty() && !crate::host::sidecars::are_wanted(vmi) {
        screen.note("the VMI asks for no hook sidecar: a cluster would run none, run starts those of --sidecar");
    }
    let replaced = crate::host::sidecars::replaced_scripts(vmi, &args.start.sidecars);
    if !replaced.is_empty() {
        screen.note(&format!(
            "--sidecar runs in place of the script of ConfigMap {}",
            replaced.join(", ")
        ));
    }
}

/// Adds what `check` refuses to the error of a manifest that is not run, unless it says that.
fn with_refusal(error: CtlError, refused: Option<String>) -> CtlError {
    let said = error.chain();
    let is_new = |refused: &String| {
        let (_, message) = refused.split_once(": ").unwrap_or_default();
        !said.contains(message)
    };
    let refused = refused.filter(is_new);
    let refused = refused.map(|it| format!("launcherctl check refuses the manifest: {it}"));
    let details = error.details().iter().cloned().chain(refused).collect();
    error.with_details(details)
}

/// Refuses an architecture that this machine can neither run nor emulate.
fn check_emulator(architecture: &str) -> Result<(), CtlError> {
    let emulator = match architecture {
        "arm64" => "qemu-system-aarch64",
        "s390x" => "qemu-system-s390x",
        _ => "qemu-system-x86_64",
    };
    let host = host_architecture();
    if architecture == host || find_on_path(emulator).is_some() {
        return Ok(());
    }
    fail!(
        "spec.architecture: the VM is for {architecture}, and this machine is {host} and has no {emulator}; install that, or leave the field out if the images are for {host}"
    );
}

const PERSISTENT_EFI: &str = "/spec/domain/firmware/bootloader/efi/persistent";

/// Places the VM's files, with the arguments of its supervisor.
fn prepare(
    args: &RunArgs,
    manifest: &Manifest,
    sidecars: Result<Vec<SidecarProgram>, CtlError>,
    network: Option<&Network>,
    dir: &VmDir,
    screen: &Screen,
) -> Result<(), CtlError> {
    if args.root.is_none() {
        mark_temporary(dir)?;
    } else {
        crate::host::vm_dir::take(dir, &vm_name(manifest.value()))?;
        // Those of an earlier, killed VM.
        crate::host::vm_dir::remove_secrets(dir);
        crate::host::vm_dir::remove_overlays(dir);
        if !is_true_at(manifest.value(), PERSISTENT_EFI) {
            crate::host::vm_dir::remove_firmware_variables(dir);
        }
    }
    let mut errors = Vec::new();
    match sidecars {
        Ok(sidecars) => errors.extend(crate::host::config_data::place(
            manifest,
            &args.config_data,
            &sidecars,
            dir,
        )),
        Err(error) => errors.push(error),
    }
    let note = |text: &str| screen.note(text);
    errors.extend(crate::host::kept_disks::resize(manifest, dir, note).err());
    errors.extend(crate::host::images::place(manifest, dir, &args.disks, note));
    // A missing file does not hide the others.
    CtlError::of_several(errors).map_or(Ok(()), Err)?;
    dir.store_vmi(manifest.value())?;
    match network {
        Some(network) => network.store(dir)?,
        // A directory of --root may have an earlier VM's.
        None => Network::remove(dir),
    }
    // A DataVolume has a copy.
    let is_used = |name: &str| {
        let volume = manifest.volumes().find(|(volume, _)| *volume == name);
        volume.is_some_and(|(_, volume)| data_volumes::find(manifest.others(), volume).is_none())
    };
    let mut supervise = SuperviseArgs {
        stop_when_up: !args.detach && !is_terminal(),
        start: args.start.clone(),
        ..SuperviseArgs::default()
    };
    for disk in args.disks.iter().filter(|disk| is_used(&disk.name)) {
        supervise.add_file(&disk.name, &disk.path);
    }
    Ok(supervise.store(dir)?)
}

/// Marks the directory to be removed with the VM.
fn mark_temporary(dir: &VmDir) -> Result<(), FileError> {
    let marker = dir.path(TEMPORARY);
    std::fs::write(&marker, "").map_err(FileError::on("make", &marker))
}

/// Starts the supervisor of the VM in this directory; the connection's owner owns the VM.
fn start_supervisor(dir: &VmDir) -> Result<(Child, ControlClient), CtlError> {
    let (ours, theirs) = UnixStream::pair().map_err(RuntimeError)?;
    let theirs = theirs.into_std().map_err(RuntimeError)?;
    let log = dir.path(SUPERVISOR_LOG);
    let stderr = create_private(&log).map_err(FileError::on("make", &log))?;
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
    Ok((child, ControlClient::new(ours)))
}

/// Waits for the supervisor's exit, unless the VM keeps running.
async fn has_ended(
    mut supervisor: Child,
    outcome: Result<Outcome, CtlError>,
) -> Result<ExitCode, CtlError> {
    if !matches!(outcome, Ok(Outcome::Detached)) {
        let _ = timeout(EXIT_TIMEOUT, supervisor.wait()).await;
    }
    Ok(match outcome? {
        Outcome::Ended(code) => code,
        Outcome::Detached => ExitCode::SUCCESS,
    })
}

/// Removes the files and the name of a VM that is not started; what an earlier VM has left in a
/// directory of `--root` stays.
fn discard(args: &RunArgs, name: &str, dir: &VmDir) {
    if args.root.is_none() {
        crate::host::vm_dir::remove(dir, &[]);
    } else {
        crate::host::vm_dir::remove_secrets(dir);
    }
    registry::remove(name, dir);
}
