//! `run`: a VM on this machine. It starts a `virt-launcher` with a root of its own and the embedded
//! libvirt, and plays virt-handler for it over the same sockets as in a cluster.
//!
//! ```text
//!  manifest ─► place disks ─► start launcher ─► ready ─► sync ─► console
//!                                      │ a signal, a failure       │ Ctrl-], a signal, --until
//!                                      ▼                           ▼
//!                                     kill ─► guest is down ◄─ shutdown (kill after the grace period, or a second signal)
//!                                                   ▼
//!                                                delete ─► exit
//! ```

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::console::{Console, Happened, RawTerminal};
use super::left_behind::LeftBehind;
use super::manifest::Manifest;
use super::phases::Phases;
use super::session::Session;
use super::stop::Stop;
use super::vm::{self, Vm};
use super::{CtlError, Output, images, watch};
use api::pod_paths::PodPaths;

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
    /// Fail if TEXT has not appeared after so many seconds
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
pub async fn run(args: RunArgs, output: Output) -> Result<ExitCode, CtlError> {
    let mut manifest = Manifest::read(&args.manifest)?;
    let phases = Phases::new(output);
    for note in images::adapt_to_laptop(&mut manifest) {
        phases.note(&note);
    }
    // What is started from here on must not outlive this program.
    let mut stop = Stop::listen().map_err(CtlError::Runtime)?;
    let left_behind = LeftBehind::adopt();
    let name = manifest.text("/metadata/name").to_owned();
    let session = Session::create(&name, args.root.clone())?;
    let result = run_in(&args, &manifest, &session, &phases, &mut stop).await;
    if left_behind.end().await && result.is_err() {
        phases.note("a QEMU that lost its launcher is ended too");
    }
    session.unregister(&name);
    let log = log_file(&session);
    if args.root.is_none() {
        session.remove(result.is_err().then_some(log.as_path()));
    }
    result.map_err(|error| with_log(error, &log))
}

async fn run_in(
    args: &RunArgs,
    manifest: &Manifest,
    session: &Session,
    phases: &Phases,
    stop: &mut Stop,
) -> Result<ExitCode, CtlError> {
    images::place(manifest, session, &args.disks)?;
    session.store_vmi(manifest.value())?;
    session.forget_ended(&format!(
        "{}_{}",
        manifest.text("/metadata/namespace"),
        manifest.text("/metadata/name")
    ));
    let (sender, reports) = mpsc::unbounded_channel();
    watch::serve(&session.path(&watch::notify_socket()), sender)?;
    let relay = watch::Relay::serve(&session.path(watch::RELAY_SOCKET))?;
    let mut vm = Vm::new(
        manifest.value(),
        start_launcher(args, manifest, session)?,
        reports,
        relay,
    );
    let started = tokio::select! {
        started = start(&mut vm, session, phases) => started.map(|()| true),
        () = stop.asked() => Ok(false),
    };
    if !matches!(started, Ok(true)) {
        phases.note("the VM is not started");
        vm.give_up().await;
        return started.map(|_| ExitCode::FAILURE);
    }
    let outcome = attend(args, &mut vm, session, phases, stop).await;
    let ended = vm.end(phases, stop).await;
    let code = outcome?;
    ended?;
    Ok(code)
}

async fn start(vm: &mut Vm<'_>, session: &Session, phases: &Phases) -> Result<(), CtlError> {
    vm.connect(&session.cmd_socket()).await?;
    phases.reached("launcher is ready");
    vm.sync().await?;
    phases.reached("domain is running");
    Ok(())
}

/// Shows the console until the VM ends or somebody asks for its end.
async fn attend(
    args: &RunArgs,
    vm: &mut Vm<'_>,
    session: &Session,
    phases: &Phases,
    stop: &mut Stop,
) -> Result<ExitCode, CtlError> {
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let socket = session.path(&PodPaths::default().serial_socket(vm.text("/metadata/uid")));
    let mut console = if socket.exists() {
        Some(Console::connect(&socket, interactive, phases.console()).await?)
    } else {
        None
    };
    if interactive {
        phases.note(match console {
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
            happened = next_on(&mut console) => match happened {
                Happened::Output(bytes) => {
                    phases.guest_wrote(&bytes);
                    if until.seen_in(&bytes) {
                        phases.reached("guest is up");
                        if !interactive { return Ok(ExitCode::SUCCESS); }
                    }
                }
                Happened::Escape => return Ok(ExitCode::SUCCESS),
                Happened::InputEnded | Happened::Closed => {}
            },
            gone = vm.next_report(phases) => if gone? {
                return if until.is_waiting() { Err(CtlError::Run("the guest ended before it was up".into())) } else { Ok(ExitCode::SUCCESS) };
            },
            () = stop.asked() => return Ok(ExitCode::SUCCESS),
            () = &mut deadline, if until.is_waiting() => {
                return Err(CtlError::Run(format!("{:?} has not appeared on the console after {} s", args.until.as_deref().unwrap_or_default(), args.timeout)));
            }
        }
    }
}

async fn next_on(console: &mut Option<Console>) -> Happened {
    match console {
        Some(console) => console.next().await,
        None => std::future::pending().await,
    }
}

/// Starts the launcher as a pod would, below the session's root.
fn start_launcher(
    args: &RunArgs,
    manifest: &Manifest,
    session: &Session,
) -> Result<Child, CtlError> {
    let program = args.launcher.clone().map_or_else(beside_me, Ok)?;
    let log = log_file(session);
    let stderr = if args.verbose {
        Stdio::inherit()
    } else {
        Stdio::from(std::fs::File::create(&log).map_err(CtlError::file("make", &log))?)
    };
    let grace = vm::grace(manifest.value()).as_secs();
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
            images::OVMF_PATH,
            "--grace-period-seconds",
            &grace.saturating_add(15).to_string(),
        ])
        .arg("--root")
        .arg(session.root())
        // libvirt keeps some of its state in the user's directories, which may be missing, another user's or read-only.
        .env("XDG_RUNTIME_DIR", session.path("/run"))
        .env("XDG_CACHE_HOME", session.path("/cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        // Ctrl-C on the terminal is for us: we then end the guest in order.
        .process_group(0)
        .kill_on_drop(true);
    if args.emulate {
        command.arg("--force-emulation");
    }
    command.spawn().map_err(CtlError::file("start", program))
}

/// The launcher installed beside this program, else the one on the search path.
fn beside_me() -> Result<PathBuf, CtlError> {
    let me = std::env::current_exe().map_err(CtlError::Runtime)?;
    let beside = me.with_file_name("virt-launcher");
    Ok(if beside.exists() {
        beside
    } else {
        "virt-launcher".into()
    })
}

fn log_file(session: &Session) -> PathBuf {
    session.root().join("launcher.log")
}

/// An error of a VM that was run, with the launcher's last words unless they are the same, and where the rest is.
fn with_log(error: CtlError, log: &Path) -> CtlError {
    let Ok(text) = std::fs::read_to_string(log) else {
        return error;
    };
    let words = last_error(&text).filter(
        |words| !matches!(&error, CtlError::Refused { message, .. } if words.ends_with(message)),
    );
    let words = words
        .map(|words| format!("\n  its last error: {words}"))
        .unwrap_or_default();
    CtlError::Run(format!(
        "{}\n  the launcher's log: {}{words}",
        os::logging::chain(&error),
        log.display()
    ))
}

fn last_error(text: &str) -> Option<String> {
    let lines = text
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = lines.filter(|line| matches!(line["level"].as_str(), Some("error" | "fatal")));
    let line = errors.next()?;
    let part = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    Some(if part("reason").is_empty() {
        part("msg")
    } else {
        format!("{}: {}", part("msg"), part("reason"))
    })
}

/// Looks for a text in a stream that arrives in pieces.
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

    /// True once, with the piece that completes the text.
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
