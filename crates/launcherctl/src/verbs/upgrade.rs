//! `upgrade`: lets another executable take over from a running launcher; the guest keeps running.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rustix::process::Pid;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::target::Target;
use crate::error::{CtlError, fail};
use crate::files::FileError;
use crate::view::output::{Format, answer};
use client::Client;
use os::grpc::serving_process;

/// Limit for the next launcher to serve: longer than the monitor waits for the new one, and then
/// for the old one.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(90);
/// Interval of checking which launcher serves: a queue of connections has no event.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    #[command(flatten)]
    target: Target,
    /// The virt-launcher that takes over, in the launcher's pod
    executable: PathBuf,
}

/// `upgrade`: hands over, and waits until the next launcher serves.
///
/// # Errors
/// The launcher refuses, or the new one does not serve in time.
// D-sup-17 (docs/differences.md).
pub async fn upgrade(args: &UpgradeArgs, format: Format) -> Result<ExitCode, CtlError> {
    let executable = args.executable.canonicalize();
    let executable = executable.map_err(FileError::on("use", &args.executable))?;
    let (dir, client) = args.target.connect().await?;
    let socket = dir.cmd_socket();
    let before = serving_process(&socket).await;
    client.hand_over(&executable).await?;
    let deadline = os::time::deadline(UPGRADE_TIMEOUT);
    while Instant::now() < deadline {
        let now = serving_process(&socket).await;
        if let Some(pid) = now.filter(|_| now != before)
            && let Ok(client) = Client::connect(&socket).await
            && client.versions().await.is_ok()
        {
            let serving = program(pid);
            if serving != executable {
                fail!(
                    "the new launcher did not come up, and {} is back; see the monitor's log",
                    serving.display()
                );
            }
            let text = || [format!("{} serves (pid {pid})", executable.display())];
            return answer(format, &json!({"executable": executable, "pid": pid}), text);
        }
        sleep(RETRY_DELAY).await;
    }
    let seconds = UPGRADE_TIMEOUT.as_secs();
    fail!("no launcher serves {seconds} s after the hand-over; see the monitor's log");
}

/// A process's program, as the monitor called it. Its `/proc/PID/exe` may be unreadable: the
/// launcher has a capability that `kubectl exec` lacks.
fn program(pid: i32) -> PathBuf {
    let arguments = Pid::from_raw(pid).map(os::procfs::arguments);
    let arguments = arguments.and_then(Result::ok).unwrap_or_default();
    arguments.into_iter().next().unwrap_or_default().into()
}
