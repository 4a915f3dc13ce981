//! `run`: a VM on this machine. It starts a `virt-launcher` with its own root and the embedded
//! libvirt, and does virt-handler's part over the same sockets as in a cluster.
//!
//! ```text
//!  manifest ─► place images ─► start launcher ─► ready ─► sync ─► console
//!                                      │ a signal, a failure       │ Ctrl-], a signal, --until
//!                                      ▼                           ▼
//!                                     kill ─► guest is down ◄─ shutdown (kill after the grace period, or a second signal)
//!                                                   ▼
//!                                                delete ─► exit
//! ```

mod console;
pub mod images;
mod launcher;
mod orphan_qemu;
mod progress;
mod vm_dir;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::client::CallError;
use super::error::{CtlError, RunError};
use super::events::MAX_QUEUED;
use super::files::FileError;
use super::json::text_at;
use super::manifest::Manifest;
use super::notify_server::{self, notify_socket};
use super::output::Format;
use super::registry::{self, VmDir};
use super::relay::{RELAY_SOCKET, Relay};
use super::target::read_manifest;
use api::pod_paths::PodPaths;
use console::{Console, ConsoleEvent, RawTerminal};
use launcher::LauncherProcess;
use orphan_qemu::OrphanQemu;
use os::signals::EndSignals;
use progress::Progress;

/// Where Debian and Fedora have the UEFI images.
const OVMF_PATH: &str = "/usr/share/OVMF";

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// VMI or VM manifest, YAML or JSON; `-` is standard input
    manifest: PathBuf,
    /// Use FILE as the image of volume NAME (container disks are read from it, claims live in it)
    #[arg(long = "disk", value_name = "NAME=FILE")]
    disks: Vec<String>,
    /// Keep the VM's files in DIR instead of a directory that goes with the VM
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// The guest is up when TEXT appears on its console; without a terminal, shut it down then
    #[arg(long, value_name = "TEXT")]
    until: Option<String>,
    /// Fail if TEXT has not appeared after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// Emulate the processor even where /dev/kvm exists
    #[arg(long)]
    emulate: bool,
    /// The launcher to start, if not the one beside this program
    #[arg(long, value_name = "FILE")]
    launcher: Option<PathBuf>,
    /// Show the launcher's log on standard error
    #[arg(short, long)]
    verbose: bool,
}

/// Runs the VM until it ends.
///
/// # Errors
/// If it cannot be started, or the launcher ends on its own.
pub async fn run(args: &RunArgs, format: Format) -> Result<ExitCode, CtlError> {
    let mut manifest = read_manifest(&args.manifest)?;
    let progress = Progress::new(format);
    if manifest.strip_network() {
        progress.note(
            "its network interfaces are left out: tap devices are made by virt-handler, in a cluster",
        );
    }
    // From here on, what is started must not outlive this program.
    let mut stop = EndSignals::listen().map_err(CtlError::Runtime)?;
    let orphan_qemu = OrphanQemu::adopt();
    let name = manifest.text("/metadata/name").to_owned();
    let dir = vm_dir::create(&name, args.root.as_deref())?;
    let result = run_in(args, &manifest, &dir, &progress, &mut stop).await;
    if orphan_qemu.terminate().await && result.is_err() {
        progress.note("the QEMU of the launcher that ended is ended too");
    }
    registry::remove(&name, &dir);
    let log = log_file(&dir);
    let result = result.map_err(|error| with_log(error, &log));
    if args.root.is_none() {
        vm_dir::remove(&dir, result.is_err().then_some(log.as_path()));
    }
    result
}

async fn run_in(
    args: &RunArgs,
    manifest: &Manifest,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut EndSignals,
) -> Result<ExitCode, CtlError> {
    images::place(manifest, dir, &args.disks)?;
    dir.store_vmi(manifest.value())?;
    let domain = [
        manifest.text("/metadata/namespace"),
        manifest.text("/metadata/name"),
    ]
    .join("_");
    vm_dir::remove_stale_domain(dir, &domain);
    let (sender, events) = mpsc::channel(MAX_QUEUED);
    notify_server::serve(&dir.path(&notify_socket()), sender)?;
    let relay = Relay::serve(&dir.path(RELAY_SOCKET))?;
    let child = start_launcher(args, manifest, dir)?;
    let mut launcher = LauncherProcess::new(manifest.value(), child, events, relay);
    let started = tokio::select! {
        started = start(&mut launcher, dir, progress) => started.map(|()| true),
        _ = stop.next() => Ok(false),
    };
    if !matches!(started, Ok(true)) {
        progress.note("the VM is not started");
        launcher.abort().await;
        return started.map(|_| ExitCode::FAILURE);
    }
    let outcome = attend(args, &mut launcher, dir, progress, stop).await;
    let ended = launcher.end(progress, stop).await;
    let code = outcome?;
    ended?;
    Ok(code)
}

async fn start(
    launcher: &mut LauncherProcess<'_>,
    dir: &VmDir,
    progress: &Progress,
) -> Result<(), CtlError> {
    launcher.connect(&dir.cmd_socket()).await?;
    progress.phase("launcher is ready");
    launcher.sync().await?;
    progress.phase("domain is running");
    Ok(())
}

/// Shows the console until the VM ends or is to be shut down.
async fn attend(
    args: &RunArgs,
    launcher: &mut LauncherProcess<'_>,
    dir: &VmDir,
    progress: &Progress,
    stop: &mut EndSignals,
) -> Result<ExitCode, CtlError> {
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let socket = dir.path(&PodPaths::default().serial_socket(launcher.uid()));
    let mut console = if socket.exists() {
        Some(Console::connect(&socket, interactive, progress.console()).await?)
    } else {
        None
    };
    if interactive {
        progress.note(match console {
            Some(_) => "the guest's console follows; Ctrl-] shuts the guest down, Ctrl-C after that ends it at once",
            None => "the VM has no serial console; Ctrl-C shuts the guest down, a second one ends it at once",
        });
    }
    let _raw = console
        .as_ref()
        .and_then(|_| interactive.then(RawTerminal::enter).flatten());
    let mut until = Until::new(args.until.as_deref());
    let deadline = tokio::time::sleep(Duration::from_secs(args.timeout));
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            event = next_console_event(&mut console) => match event {
                ConsoleEvent::Output(bytes) => {
                    progress.guest_wrote(&bytes);
                    if until.seen_in(&bytes) {
                        progress.phase("guest is up");
                        if !interactive { return Ok(ExitCode::SUCCESS); }
                    }
                }
                ConsoleEvent::Escape => return Ok(ExitCode::SUCCESS),
                ConsoleEvent::InputEnded | ConsoleEvent::Closed => {}
            },
            is_down = launcher.next_event(progress) => if is_down? {
                return if until.is_waiting() { Err(RunError::EndedBeforeUp.into()) } else { Ok(ExitCode::SUCCESS) };
            },
            _ = stop.next() => return Ok(ExitCode::SUCCESS),
            () = &mut deadline, if until.is_waiting() => {
                return Err(RunError::NotUp {
                    text: args.until.clone().unwrap_or_default(),
                    timeout: Duration::from_secs(args.timeout),
                }
                .into());
            }
        }
    }
}

async fn next_console_event(console: &mut Option<Console>) -> ConsoleEvent {
    match console {
        Some(console) => console.next().await,
        None => std::future::pending().await,
    }
}

/// Starts the launcher as a pod does, below the VM's root.
fn start_launcher(args: &RunArgs, manifest: &Manifest, dir: &VmDir) -> Result<Child, CtlError> {
    let program = args.launcher.clone().map_or_else(installed_launcher, Ok)?;
    let log = log_file(dir);
    let stderr = if args.verbose {
        Stdio::inherit()
    } else {
        Stdio::from(std::fs::File::create(&log).map_err(FileError::on("make", &log))?)
    };
    let grace = launcher::grace(manifest.value()).as_secs();
    let mut command = Command::new(&program);
    command
        .args([
            "--name",
            manifest.text("/metadata/name"),
            "--namespace",
            manifest.text("/metadata/namespace"),
        ])
        .args([
            "--uid",
            manifest.text("/metadata/uid"),
            "--libvirt",
            "embed",
            "--allow-emulation",
        ])
        .args([
            "--ovmf-path",
            OVMF_PATH,
            "--grace-period-seconds",
            &grace.saturating_add(15).to_string(),
        ])
        .arg("--root")
        .arg(dir.root())
        // libvirt stores some of its state in the user's directories, which may be missing, another user's or read-only.
        .env("XDG_RUNTIME_DIR", dir.path("/run"))
        .env("XDG_CACHE_HOME", dir.path("/cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        // Ctrl-C on the terminal is for this program, which then shuts the guest down.
        .process_group(0)
        .kill_on_drop(true);
    if args.emulate {
        command.arg("--force-emulation");
    }
    Ok(command.spawn().map_err(FileError::on("start", program))?)
}

/// The launcher installed beside this program, else the one on the search path.
fn installed_launcher() -> Result<PathBuf, CtlError> {
    let me = std::env::current_exe().map_err(CtlError::Runtime)?;
    let beside = me.with_file_name("virt-launcher");
    Ok(if beside.exists() {
        beside
    } else {
        "virt-launcher".into()
    })
}

fn log_file(dir: &VmDir) -> PathBuf {
    dir.root().join("launcher.log")
}

/// The error, with where the launcher's log is and its last error, unless that says the same.
fn with_log(error: CtlError, log: &Path) -> CtlError {
    let Ok(text) = std::fs::read_to_string(log) else {
        return error;
    };
    let last_error = last_error(&text).filter(|last| match &error {
        CtlError::Call(CallError::Refused { message, .. }) => !last.ends_with(message),
        _ => true,
    });
    CtlError::WithLog {
        source: Box::new(error),
        log: log.to_owned(),
        last_error,
    }
}

fn last_error(text: &str) -> Option<String> {
    let lines = text
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = lines.filter(|line| matches!(line["level"].as_str(), Some("error" | "fatal")));
    let line = errors.next()?;
    Some(match (text_at(&line, "/msg"), text_at(&line, "/reason")) {
        (message, "") => message.to_owned(),
        (message, reason) => format!("{message}: {reason}"),
    })
}

/// Searches a stream that arrives in pieces for a text.
struct Until {
    text: Option<Vec<u8>>,
    tail: Vec<u8>,
}

impl Until {
    fn new(text: Option<&str>) -> Self {
        Self {
            text: text.map(|text| text.as_bytes().to_vec()),
            tail: Vec::new(),
        }
    }

    fn is_waiting(&self) -> bool {
        self.text.is_some()
    }

    /// True once, for the piece that completes the text.
    fn seen_in(&mut self, piece: &[u8]) -> bool {
        let Some(text) = &self.text else { return false };
        self.tail.extend_from_slice(piece);
        if self
            .tail
            .windows(text.len().max(1))
            .any(|window| window == text)
        {
            self.text = None;
            return true;
        }
        let keep = self.tail.len().saturating_sub(text.len());
        self.tail.drain(..keep);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_arrives_in_pieces_is_seen_once() {
        let mut until = Until::new(Some("guest is up"));
        assert!(!until.seen_in(b"\r\nguest i"));
        assert!(until.is_waiting());
        assert!(until.seen_in(b"s up\r\n"));
        assert!(!until.seen_in(b"guest is up"));
        assert!(!until.is_waiting());
    }
}
