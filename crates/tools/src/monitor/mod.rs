//! `virt-launcher-monitor`: process 1 of the pod's compute container, and the last to leave it.
//!
//! ```text
//!  start virt-launcher ─► forward signals, reap ─► it has ended ─► logs ─► QEMU ends ─► proxy ─► container disks ─► its status
//! ```
//! virt-handler looks for QEMU among this process's children. No async runtime, to save memory in
//! each pod.

mod error;
mod istio;
mod launcher;
mod logs;
mod options;
mod privileges;
mod qemu;
mod socket_owner;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

pub use error::MonitorError;
use launcher::LauncherProcess;
use options::Options;
use os::logging;
use os::process::adopt_orphans;
use os::signals::SignalQueue;

/// Limit for QEMU to exit after SIGTERM, if it outlives the launcher.
const QEMU_GRACE: Duration = Duration::from_secs(10);

/// Entry point; `arguments` follow the program's name and include the launcher's.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    if socket_owner::is_meant(&arguments) {
        return socket_owner::main();
    }
    // First of all: the kernel drops signals to a process 1 that neither blocks nor handles them.
    let signals = SignalQueue::block(&[
        Signal::SIGCHLD,
        Signal::SIGUSR1,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGQUIT,
    ]);
    logging::init("virt-launcher-monitor");
    logging::queue_lines();
    let options = Options::of(&arguments);
    options.set_verbosity();
    tracing::info!("virt-launcher-monitor {}", os::version::get());
    let result = signals.map_err(MonitorError::Signals).and_then(|signals| {
        let result = run(&options, options::for_launcher(arguments), &signals);
        if options.keep_after_failure && !matches!(result, Ok(0)) {
            keep_container(&signals);
        }
        result
    });
    let status = match result {
        Ok(status) => {
            tracing::info!("virt-launcher-monitor: Exiting...");
            ExitCode::from(status)
        }
        Err(error) => {
            tracing::error!(reason = %logging::chain(&error), "monitoring virt-launcher failed");
            ExitCode::FAILURE
        }
    };
    logging::flush();
    status
}

/// Runs from the launcher's start until nothing of the VM is left. Returns the launcher's exit
/// code, which becomes the container's.
fn run(
    options: &Options,
    arguments: Vec<OsString>,
    signals: &SignalQueue,
) -> Result<u8, MonitorError> {
    let result = run_launcher(options, arguments, signals);
    istio::end_proxy(istio::PORTS);
    remove_sockets(&options.container_disk_dir);
    result
}

fn run_launcher(
    options: &Options,
    arguments: Vec<OsString>,
    signals: &SignalQueue,
) -> Result<u8, MonitorError> {
    // Process 1 gets orphans anyway, but with shareProcessNamespace another process is PID 1.
    if let Err(error) = adopt_orphans() {
        tracing::warn!(reason = %error, "Orphaned processes do not become children of this one");
    }
    privileges::raise_ambient();
    let status = LauncherProcess::new(options, arguments, signals)?.run()?;
    if status != 0 {
        tracing::error!("dirty virt-launcher shutdown: exit-code {status}");
    }
    logs::dump(&options.root);
    qemu::end(signals, QEMU_GRACE)?;
    Ok(status)
}

/// Reaps all children that have exited, in any process group (`waitpid(-1)`): QEMU and libvirt's
/// probes start their own sessions. One SIGCHLD may stand for many.
fn reap() -> Vec<(Pid, WaitStatus)> {
    let mut ended = Vec::new();
    // An error means that there are no children.
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        tracing::debug!(
            "Reaped pid {} with status {}",
            pid.as_raw_nonzero(),
            status.as_raw()
        );
        ended.push((pid, status));
    }
    ended
}

/// Ends the container disks' containers by removing their sockets.
fn remove_sockets(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for socket in entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
    {
        if let Err(error) = std::fs::remove_file(&socket) {
            tracing::error!(reason = %error, "could not clean up ephemeral disk directory: {}", socket.display());
        }
    }
}

/// Keeps the container for inspection until the kubelet ends it.
// D-sup-11 (docs/differences.md).
fn keep_container(signals: &SignalQueue) {
    tracing::info!(
        "keeping virt-launcher container alive since --keep-after-failure is set to true"
    );
    while let Ok(Some(Signal::SIGCHLD | Signal::SIGUSR1)) = signals.next(None) {
        reap();
    }
}
