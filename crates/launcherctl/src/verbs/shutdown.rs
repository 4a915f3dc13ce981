//! `shutdown`: asks the guest to shut down, and waits: a pod's preStop handler.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::target::{TargetError, VmArgs, check_processes, migrated, vm_name};
use crate::error::{CtlError, fail, text_error};
use crate::host::control::ControlClient;
use crate::host::facts::check_images;
use crate::host::launcher::{REQUEST_INTERVAL, START_POLL_INTERVAL, grace};
use crate::host::registry::{RegistryError, VmDir};
use crate::host::remains;
use crate::json::text_at;
use crate::view::output::{Format, answer};
use api::Action;
use client::running::check_runs;
use client::{CallError, Client, DomainChanges, is_down, is_starting};
use domain::Domain;
use terminal::progress::waiting;

/// Limit for a start in progress, unless another limit is given: a launcher gives the hooks 20 s,
/// and QEMU may be slow.
const START_TIMEOUT: Duration = Duration::from_secs(60);
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
    let target = args.target.target();
    let text = match target.connect_to_vm().await {
        Ok((dir, client, Some(vmi))) => {
            check_images(text_at(&vmi, "/metadata/name"), &dir)?;
            check_processes(&dir)?;
            let down = async {
                shut_down(&client, &vmi, args.timeout.map(Duration::from_secs)).await?;
                ControlClient::wait_for_end(&dir, SUPERVISOR_TIMEOUT).await;
                Ok::<(), CtlError>(())
            };
            let limit = args
                .timeout
                .map_or_else(|| grace(&vmi), Duration::from_secs);
            waiting("the guest to shut down", Some(limit), down).await?;
            if migrated(&vmi, &dir).is_some() {
                fail!(
                    "{} has migrated to another launcher, where its guest runs on; launcherctl shutdown --name {} shuts it down there",
                    vm_name(&vmi),
                    text_at(&vmi, "/metadata/name")
                );
            }
            format!("the guest of {} is down", vm_name(&vmi))
        }
        Ok((.., None)) => "no guest runs".to_owned(),
        // It has ended, or does not serve yet: the SIGTERM that follows ends what it has begun.
        Err(error) if runs_no_launcher(&error) => {
            target.resolve().ok().as_ref().map_or(Ok(()), check_lost)?;
            "no launcher runs".to_owned()
        }
        Err(error) => return Err(error),
    };
    let json = json!({"success": true, "message": text});
    answer(format, &json, || [text])
}

fn runs_no_launcher(error: &CtlError) -> bool {
    matches!(error.of(), Some(TargetError::NotRunning(_)))
        || matches!(error.of(), Some(call @ CallError::Connect { .. }) if !call.is_forbidden())
}

/// Refuses a VM of `run` whose guest has lost its launcher.
fn check_lost(dir: &VmDir) -> Result<(), RegistryError> {
    let Ok(vmi) = dir.load_vmi() else {
        return Ok(());
    };
    match remains::guest(dir.root()) {
        Some(qemu) => {
            let name = text_at(&vmi, "/metadata/name").to_owned();
            Err(RegistryError::GuestRuns(name, qemu))
        }
        None => Ok(()),
    }
}

/// Asks the guest until it is down; a starting one once it has started.
///
/// # Errors
/// It is not down after `limit`; without one, after its grace period.
pub async fn shut_down(
    client: &Client,
    vmi: &Value,
    limit: Option<Duration>,
) -> Result<(), CtlError> {
    let began = Instant::now();
    let start_limit = limit.unwrap_or(START_TIMEOUT).max(SHORTEST_WAIT);
    let started = timeout_at(os::time::deadline(start_limit), started_guest(client));
    let Ok(started) = started.await else {
        fail!(
            "{} is still starting after {} s, and was not shut down; --timeout SECONDS waits longer",
            vm_name(vmi),
            start_limit.as_secs()
        );
    };
    let Some((mut changes, domain)) = started? else {
        return Ok(());
    };
    check_runs(Some(&domain))?;
    // A limit covers the start and the shutdown together.
    let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
    let left = left.unwrap_or_else(|| grace(vmi)).max(SHORTEST_WAIT);
    let (mut request_at, mut failure) = (Instant::now(), None);
    let asked = async {
        loop {
            tokio::select! {
                change = changes.next() => match change? {
                    Some(domain) if !is_down(domain.as_ref()) => {}
                    _ => return Ok::<(), CtlError>(()),
                },
                () = sleep_until(request_at) => {
                    failure = client.act(Action::Shutdown, vmi).await.err();
                    request_at = os::time::deadline(REQUEST_INTERVAL);
                }
            }
        }
    };
    match timeout(left, asked).await {
        Ok(result) => result,
        Err(_) => {
            let seconds = limit.unwrap_or(left).max(left).as_secs();
            let text = text_error!(
                "the guest has not shut down within {seconds} s; --timeout SECONDS waits longer, launcherctl stop {} --force forces it off",
                text_at(vmi, "/metadata/name")
            );
            Err(match failure {
                Some(failure) => text.caused_by(failure).into(),
                None => text.into(),
            })
        }
    }
}

/// The domain of a running guest and its changes; of a starting one, once it has started. `None`
/// without a guest.
async fn started_guest(client: &Client) -> Result<Option<(DomainChanges, Domain)>, CtlError> {
    loop {
        let mut changes = client.domain_changes().await?;
        match changes.next().await? {
            Some(Some(domain)) if is_down(Some(&domain)) => return Ok(None),
            Some(Some(domain)) => return Ok(Some((changes, domain))),
            Some(None) if is_starting(client).await => sleep(START_POLL_INTERVAL).await,
            _ => return Ok(None),
        }
    }
}
