//! `run`: a VM on this machine. It starts a `virt-launcher` with a root of its own and the embedded
//! libvirt, and plays virt-handler for it over the same sockets as in a cluster.
//!
//! ```text
//!  manifest ─► place disks ─► start launcher ─► ready ─► sync ─► console
//!                                                                  │ Ctrl-], SIGTERM, --until
//!                                                                  ▼
//!                           exit ◄─ delete ◄─ guest is down ◄─ shutdown (kill after the grace period)
//! ```

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::client::Client;
use super::console::{Console, Happened, RawTerminal};
use super::manifest::Manifest;
use super::session::Session;
use super::watch::{self, Report};
use super::{CtlError, Output, images};
use crate::cmd::Action;
use crate::fs_events;
use crate::proto::cmd::v1::VirtualMachineOptions;

/// KubeVirt's default for `terminationGracePeriodSeconds`.
const DEFAULT_GRACE: u64 = 30;
/// How long the launcher may take to end after its domain is gone.
const EXIT: Duration = Duration::from_secs(60);

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
    let phases = Phases { started: Instant::now(), output };
    for note in images::adapt_to_laptop(&mut manifest) {
        phases.note(&note);
    }
    let name = manifest.text("/metadata/name").to_owned();
    let session = Session::create(&name, args.root.clone())?;
    let result = run_in(&args, &manifest, &session, &phases).await;
    session.unregister(&name);
    if args.root.is_none() && result.is_ok() {
        let _ = std::fs::remove_dir_all(session.root());
    }
    result.map_err(|error| with_log(error, &session))
}

async fn run_in(args: &RunArgs, manifest: &Manifest, session: &Session, phases: &Phases) -> Result<ExitCode, CtlError> {
    images::place(manifest, session, &args.disks)?;
    session.store_vmi(manifest.value())?;
    let (sender, reports) = mpsc::unbounded_channel();
    watch::serve(&session.path(watch::NOTIFY_SOCKET), sender)?;
    let mut launcher = start_launcher(args, manifest, session)?;
    let client = ready(&mut launcher, session).await?;
    phases.reached("launcher is ready");
    client.sync(manifest.value(), VirtualMachineOptions::default()).await?;
    phases.reached("domain is running");
    let mut vm = Vm { client, manifest, launcher, reports, down: false };
    let outcome = attend(args, &mut vm, session, phases).await;
    let ended = vm.end(phases).await;
    let code = outcome?;
    ended?;
    Ok(code)
}

/// Shows the console until the VM ends or somebody asks for its end.
async fn attend(args: &RunArgs, vm: &mut Vm<'_>, session: &Session, phases: &Phases) -> Result<ExitCode, CtlError> {
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let socket = session.path(&format!("/var/run/kubevirt-private/{}/virt-serial0", vm.manifest.text("/metadata/uid")));
    let mut console = if socket.exists() { Some(Console::connect(&socket, interactive).await?) } else { None };
    if interactive && console.is_some() {
        phases.note("the guest's console follows; Ctrl-] shuts the guest down");
    }
    let _raw = console.as_ref().and_then(|_| interactive.then(RawTerminal::enter).flatten());
    let mut terminate = signal(SignalKind::terminate()).map_err(CtlError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CtlError::Runtime)?;
    let mut until = Until::new(args.until.as_deref());
    let deadline = tokio::time::sleep(Duration::from_secs(args.timeout));
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            happened = next_on(&mut console) => match happened {
                Happened::Output(bytes) => if until.seen_in(&bytes) {
                    phases.reached("guest is up");
                    if !interactive { return Ok(ExitCode::SUCCESS); }
                },
                Happened::Escape => return Ok(ExitCode::SUCCESS),
                Happened::InputEnded | Happened::Closed => {}
            },
            gone = vm.next_report(phases) => if gone? {
                return if until.is_waiting() { Err(CtlError::Run("the guest ended before it was up".into())) } else { Ok(ExitCode::SUCCESS) };
            },
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
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

/// A running VM.
struct Vm<'a> {
    client: Client,
    manifest: &'a Manifest,
    launcher: Child,
    reports: mpsc::UnboundedReceiver<Report>,
    down: bool,
}

impl Vm<'_> {
    /// Waits for the next report; true if the guest is down.
    async fn next_report(&mut self, phases: &Phases) -> Result<bool, CtlError> {
        tokio::select! {
            report = self.reports.recv() => {
                if let Some(report) = report {
                    phases.report(&report);
                    self.down |= report.is_final() || matches!(report.state(), Some("Shutoff" | "Crashed"));
                }
                Ok(self.down)
            }
            status = self.launcher.wait() => {
                let status = status.map_err(CtlError::Runtime)?;
                if self.down { Ok(true) } else { Err(CtlError::Run(format!("the launcher ended on its own ({status})"))) }
            }
        }
    }

    /// Asks the guest to shut down, ends it after the grace period, and sees the launcher out.
    async fn end(&mut self, phases: &Phases) -> Result<(), CtlError> {
        if self.launcher.try_wait().map_err(CtlError::Runtime)?.is_some() {
            return Ok(());
        }
        if !self.down {
            self.client.act(Action::Shutdown, self.manifest.value()).await?;
            phases.reached("guest is asked to shut down");
            let seconds =
                self.manifest.value().pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(DEFAULT_GRACE);
            if tokio::time::timeout(Duration::from_secs(seconds), self.until_down(phases)).await.is_err() {
                phases.note(&format!("the guest has not obeyed within {seconds} s"));
                self.client.act(Action::Kill, self.manifest.value()).await?;
            }
        }
        phases.reached("guest is down");
        // The launcher leaves once its domain is gone; that it is gone already is no failure.
        let _ = self.client.act(Action::Delete, self.manifest.value()).await;
        match tokio::time::timeout(EXIT, self.launcher.wait()).await {
            Ok(status) => {
                let status = status.map_err(CtlError::Runtime)?;
                phases.reached("launcher has ended");
                if status.success() { Ok(()) } else { Err(CtlError::Run(format!("the launcher ended with {status}"))) }
            }
            Err(_) => Err(CtlError::Run(format!("the launcher has not ended {} s after its domain", EXIT.as_secs()))),
        }
    }

    async fn until_down(&mut self, phases: &Phases) -> Result<(), CtlError> {
        while !self.next_report(phases).await? {}
        Ok(())
    }
}

/// Starts the launcher as a pod would, below the session's root.
fn start_launcher(args: &RunArgs, manifest: &Manifest, session: &Session) -> Result<Child, CtlError> {
    let program = args.launcher.clone().map_or_else(beside_me, Ok)?;
    let log = log_file(session);
    let stderr =
        if args.verbose { Stdio::inherit() } else { Stdio::from(std::fs::File::create(&log).map_err(CtlError::file("make", &log))?) };
    let grace = manifest.value().pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(DEFAULT_GRACE);
    let mut command = Command::new(&program);
    command
        .args(["--name", manifest.text("/metadata/name"), "--namespace", manifest.text("/metadata/namespace")])
        .args(["--uid", manifest.text("/metadata/uid"), "--libvirt", "embed", "--allow-emulation"])
        .args(["--ovmf-path", images::OVMF_PATH, "--grace-period-seconds", &(grace + 15).to_string()])
        .arg("--root")
        .arg(session.root())
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
    Ok(if beside.exists() { beside } else { "virt-launcher".into() })
}

/// Waits for the cmd socket and makes the first call.
async fn ready(launcher: &mut Child, session: &Session) -> Result<Client, CtlError> {
    let socket = session.cmd_socket();
    tokio::select! {
        appeared = fs_events::appears(&socket) => appeared.map_err(CtlError::file("wait for", &socket))?,
        status = launcher.wait() => {
            return Err(CtlError::Run(format!("the launcher ended before it was ready ({})", status.map_err(CtlError::Runtime)?)));
        }
    }
    let client = Client::connect(&socket).await?;
    let versions = client.versions().await?;
    if versions.contains(&1) { Ok(client) } else { Err(CtlError::Run(format!("the launcher speaks cmd versions {versions:?}, not 1"))) }
}

fn log_file(session: &Session) -> PathBuf {
    session.root().join("launcher.log")
}

/// An error of a VM that was run, with the launcher's last words and where the rest is.
fn with_log(error: CtlError, session: &Session) -> CtlError {
    let log = log_file(session);
    let Some(words) = last_error(&log) else { return error };
    CtlError::Run(format!("{}\n  last error in {}: {words}", crate::logging::chain(&error), log.display()))
}

fn last_error(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut errors = lines.filter(|line| matches!(line["level"].as_str(), Some("error" | "fatal")));
    let line = errors.next()?;
    let part = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    Some(if part("reason").is_empty() { part("msg") } else { format!("{}: {}", part("msg"), part("reason")) })
}

/// Looks for a text in a stream that arrives in pieces.
struct Until {
    text: Option<Vec<u8>>,
    tail: Vec<u8>,
}

impl Until {
    fn new(text: Option<&str>) -> Self {
        Self { text: text.map(|text| text.as_bytes().to_vec()), tail: Vec::new() }
    }

    fn is_waiting(&self) -> bool {
        self.text.is_some()
    }

    /// True once, with the piece that completes the text.
    fn seen_in(&mut self, piece: &[u8]) -> bool {
        let Some(text) = &self.text else { return false };
        self.tail.extend_from_slice(piece);
        if self.tail.windows(text.len().max(1)).any(|window| window == text) {
            self.text = None;
            return true;
        }
        let keep = self.tail.len().saturating_sub(text.len());
        self.tail.drain(..keep);
        false
    }
}

/// Tells how far the start has come, and after how long.
struct Phases {
    started: Instant,
    output: Output,
}

impl Phases {
    fn reached(&self, phase: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        match self.output {
            Output::Json => println!("{}", json!({"phase": phase, "seconds": seconds})),
            Output::Text => eprint!("[{seconds:7.2} s] {phase}\r\n"),
        }
    }

    fn note(&self, text: &str) {
        match self.output {
            Output::Json => println!("{}", json!({"note": text})),
            Output::Text => eprint!("            {text}\r\n"),
        }
    }

    fn report(&self, report: &Report) {
        if let (Output::Json, Report::Domain { kind, .. }) = (self.output, report) {
            println!("{}", json!({"eventType": kind, "status": report.state(), "seconds": self.started.elapsed().as_secs_f64()}));
        }
        if let Report::Event(event) = report {
            self.note(event["message"].as_str().unwrap_or_default());
        }
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
