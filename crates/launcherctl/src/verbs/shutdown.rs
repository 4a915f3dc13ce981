//! `shutdown`: asks the guest to shut down, and waits: a pod's preStop handler.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::target::{NoLauncher, RunningVm, VmArgs, vm_name};
use crate::error::{CtlError, fail, text_error};
use crate::host::control::ControlClient;
use crate::host::launcher::{REQUEST_INTERVAL, grace};
use crate::host::processes;
use crate::host::vm_dir::VmDir;
use crate::json::text_at;
use crate::view::output::{Format, answer};
use api::Action;
use client::running::check_runs;
use client::{CallError, Client, is_down, is_starting};

/// Also a guest whose grace period is 0 is asked.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// Limit for a VM of `run` to disappear from the list once its guest is down.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Arguments of `shutdown`.
#[derive(Debug, Args)]
pub struct ShutdownArgs {
    #[command(flatten)]
    target: VmArgs,
    /// Fail if the guest is not down after this many seconds; without it, the VMI's grace period
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// `shutdown`.
///
/// # Errors
/// The launcher refuses, or the guest is not down in time.
pub async fn shutdown(args: &ShutdownArgs, format: Format) -> Result<ExitCode, CtlError> {
    let limit = args.timeout.map(Duration::from_secs);
    let done = async { shut_down_in(args.target.target().resolve()?, limit).await };
    let text = match done.await {
        // It has ended, or does not serve yet: the SIGTERM that follows ends what it has begun.
        Err(error) if has_no_launcher(&error) => "no launcher runs".to_owned(),
        done => done?,
    };
    let json = json!({"success": true, "message": text});
    answer(format, &json, || [text])
}

fn has_no_launcher(error: &CtlError) -> bool {
    error.of::<NoLauncher>().is_some() || error.of().is_some_and(CallError::has_no_server)
}

/// Shuts down the guest of the VM in `dir`, if one runs. Returns what is so then.
async fn shut_down_in(dir: VmDir, limit: Option<Duration>) -> Result<String, CtlError> {
    let connected = RunningVm::connect(dir.clone()).await;
    if connected.as_ref().is_err_and(has_no_launcher)
        && let Some(pid) = processes::guest(dir.root())
    {
        fail!(
            "the guest has lost its launcher, and still runs (QEMU is process {pid}); launcherctl stop forces it off"
        );
    }
    let vm = connected?;
    let Some(vmi) = vm.known_vmi().await? else {
        return Ok("no guest runs".to_owned());
    };
    shut_down(&vm.client, &vmi, limit).await?;
    ControlClient::wait_for_end(&dir, SUPERVISOR_TIMEOUT).await;
    Ok(format!("the guest of {} is down", vm_name(&vmi)))
}

/// Asks the guest until it is down, also one that is starting.
///
/// # Errors
/// It is paused, or not down after `limit`; without one, after its grace period.
pub async fn shut_down(
    client: &Client,
    vmi: &Value,
    limit: Option<Duration>,
) -> Result<(), CtlError> {
    let limit = limit.unwrap_or_else(|| grace(vmi)).max(SHORTEST_WAIT);
    let (mut request_at, mut failure) = (Instant::now(), None);
    // A paused guest would obey once it runs again: it is asked after its state is known.
    let mut may_be_asked = false;
    let asked = async {
        let mut changes = client.domain_changes().await?;
        loop {
            tokio::select! {
                biased;
                change = changes.next() => {
                    match change? {
                        Some(None) if is_starting(client).await => {}
                        Some(domain) if !is_down(domain.as_ref()) => check_runs(domain.as_ref())?,
                        _ => return Ok::<(), CtlError>(()),
                    }
                    may_be_asked = true;
                }
                () = sleep_until(request_at), if may_be_asked => {
                    failure = client.act(Action::Shutdown, vmi).await.err();
                    request_at = os::time::deadline(REQUEST_INTERVAL);
                }
            }
        }
    };
    if let Ok(down) = timeout(limit, asked).await {
        return down;
    }
    let text = text_error!(
        "the guest has not shut down within {} s; --timeout SECONDS waits longer, launcherctl stop {} --force forces it off",
        limit.as_secs(),
        text_at(vmi, "/metadata/name")
    );
    Err(match failure {
        Some(failure) => text.caused_by(failure).into(),
        None => text.into(),
    })
}
