//! `console`: the guest's serial console.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::screen::Screen;

use super::target::VmArgs;
use crate::error::{CtlError, RuntimeError, TextError, fail};
use crate::host::console::{Console, ConsoleEvent, Terminal, is_terminal};
use crate::host::console_hub::{CONSOLE_SOCKET, NEW_OUTPUT_SOCKET};
use crate::host::error::RunError;
use crate::host::vm_dir::VmDir;
use crate::view::output::Format;
use api::pod_paths::PodPaths;
use client::Until;
use domain::Domain;
use os::signals::EndSignals;

/// After the end of the input, a guest silent for so long has answered.
const SILENCE: Duration = Duration::from_secs(1);
/// Limit of a guest's answer: the console is then left while it still writes.
const MAX_ANSWER: Duration = Duration::from_secs(10);

/// Arguments of `console`.
#[derive(Debug, Args)]
pub struct ConsoleArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Leave when the guest writes TEXT, its echo of what is typed included. What it has written
    /// before is not shown, and does not count. Without it, the console is left a second after the
    /// guest's last answer to what is piped in
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    until: Option<String>,
    /// With --until: fail if TEXT has not appeared after this many seconds
    #[arg(long, value_name = "SECONDS", requires = "until")]
    #[arg(default_value_t = 300)]
    timeout: u64,
}

/// Why the console is left.
enum End {
    /// The text of `--until` has appeared, or standard input has ended and nothing is awaited.
    Done,
    /// Ctrl-], or a signal.
    Left,
    /// The guest's side was closed.
    Closed,
    /// The text of `--until` did not appear in time.
    TimedOut,
}

/// `console`: runs until Ctrl-], a signal, the guest's end, or the text of `--until`. Without a
/// terminal, types standard input into the guest; without `--until`, leaves the console once the
/// input has ended and the guest is silent.
///
/// # Errors
/// There is no such VM, it has no console, or the text of `--until` does not appear.
pub async fn console(args: &ConsoleArgs) -> Result<ExitCode, CtlError> {
    let vm = args.vm.target().connect().await?;
    let domain = vm.guest().await?;
    let name = &domain.meta.name;
    let mut signals = EndSignals::listen().map_err(RuntimeError)?;
    let output = Box::new(tokio::io::stdout());
    let shared = match args.until {
        Some(_) => NEW_OUTPUT_SOCKET,
        None => CONSOLE_SOCKET,
    };
    let mut console = Console::connect(&socket(&vm.dir, &domain, shared).await?, output).await?;
    let screen = Screen::new(Format::Text);
    if is_terminal() {
        screen.note(&format!("connected to {name}; Ctrl-] leaves"));
    }
    let mut terminal = Terminal::enter();
    if terminal.is_some() || !is_terminal() {
        console.read_input();
    }
    let mut until = Until::new(args.until.as_deref());
    let deadline = tokio::time::sleep(Duration::from_secs(args.timeout));
    tokio::pin!(deadline);
    // After the end of the input: when the guest counts as having answered.
    let answered = tokio::time::sleep(Duration::MAX);
    tokio::pin!(answered);
    // The latest time to leave.
    let mut latest: Option<Instant> = None;
    let end = loop {
        tokio::select! {
            event = console.next() => match event {
                ConsoleEvent::Output(bytes) => {
                    screen.guest_wrote(&bytes);
                    if let Some(latest) = latest {
                        answered.as_mut().reset(os::time::deadline(SILENCE).min(latest));
                    }
                    if until.seen_in(&bytes) { break End::Done; }
                }
                ConsoleEvent::Escape => break End::Left,
                ConsoleEvent::Closed => break End::Closed,
                ConsoleEvent::InputEnded if until.is_waiting() => {}
                ConsoleEvent::InputEnded => {
                    latest = Some(os::time::deadline(MAX_ANSWER));
                    answered.as_mut().reset(os::time::deadline(SILENCE));
                }
            },
            () = &mut answered => break End::Done,
            _ = signals.next() => break End::Left,
            () = &mut deadline, if until.is_waiting() => break End::TimedOut,
        }
    };
    if terminal.take().is_some() {
        screen.note(&match end {
            End::Closed => format!("{name} has closed its console"),
            _ => format!("{name} runs on"),
        });
    }
    let (text, limit) = (args.until.clone(), Duration::from_secs(args.timeout));
    match (end, text) {
        (End::Done, _) | (End::Left | End::Closed, None) => Ok(ExitCode::SUCCESS),
        (End::Left, Some(_)) => Ok(ExitCode::FAILURE),
        (End::Closed, Some(text)) => {
            fail!("the guest's console was closed before {text:?} appeared on it")
        }
        (End::TimedOut, text) => Err(RunError::NotUp(text.unwrap_or_default(), limit, None).into()),
    }
}

/// The console's socket: `shared`, which the VM's supervisor serves. In a pod, or if that was
/// killed, it is QEMU's own, which serves one client at a time.
async fn socket(dir: &VmDir, domain: &Domain, shared: &str) -> Result<PathBuf, TextError> {
    let shared = dir.path(shared);
    if UnixStream::connect(&shared).await.is_ok() {
        return Ok(shared);
    }
    let of_qemu = dir.path(&PodPaths::default().serial_socket(&domain.meta.uid));
    if of_qemu.exists() {
        return Ok(of_qemu);
    }
    fail!(
        "{} has no serial console: its VMI says autoattachSerialConsole: false, or it has ended; launcherctl vnc shows its screen",
        domain.meta.name
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn the_console_is_the_supervisors_else_qemus_if_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let (dir, mut vm) = (VmDir::at(dir.path().to_owned()), Domain::default());
        (vm.meta.name, vm.meta.uid) = ("web".to_owned(), "u".to_owned());
        let none = socket(&dir, &vm, CONSOLE_SOCKET).await.unwrap_err();
        let none = none.to_string();
        assert!(none.starts_with("web has no serial console"), "{none}");
        let of_qemu = dir.path(&PodPaths::default().serial_socket("u"));
        std::fs::create_dir_all(of_qemu.parent().unwrap()).unwrap();
        let _qemu = UnixListener::bind(&of_qemu).unwrap();
        assert_eq!(socket(&dir, &vm, NEW_OUTPUT_SOCKET).await.unwrap(), of_qemu);
        let shared = [CONSOLE_SOCKET, NEW_OUTPUT_SOCKET];
        let _supervisor = shared.map(|path| UnixListener::bind(dir.path(path)).unwrap());
        for path in shared {
            assert_eq!(socket(&dir, &vm, path).await.unwrap(), dir.path(path));
        }
    }
}
