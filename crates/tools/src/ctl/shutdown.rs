//! `shutdown`: asks the guest to shut down, and waits for it where that is wanted: a preStop handler of a pod.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::client::{CallError, Client};
use super::domain_changes::is_down;
use super::error::{CtlError, TargetError};
use super::lifecycle::act;
use super::output::{Format, print};
use super::target::VmiTarget;
use api::Action;

/// How long a guest has whose VMI does not say: KubeVirt's default.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// Between two requests: some guests only hear the second one, and ACPI follows when the agent has not ended the guest.
const REQUEST_INTERVAL: Duration = Duration::from_secs(5);

/// Arguments of `shutdown`.
#[derive(Debug, Args)]
pub struct ShutdownArgs {
    #[command(flatten)]
    target: VmiTarget,
    /// Wait until the guest is down. Succeeds at once where no guest runs, as a preStop handler has to
    #[arg(long)]
    wait: bool,
    /// Fail if the guest is not down after this many seconds; without it, the VMI's grace period
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,
}

/// `shutdown`.
///
/// # Errors
/// If the launcher refuses, or the guest is not down in time.
pub async fn shutdown(args: &ShutdownArgs, format: Format) -> Result<ExitCode, CtlError> {
    if !args.wait {
        return act(Action::Shutdown, &args.target, format).await;
    }
    let text = match args.target.connect_by_identity().await {
        Ok((client, Some(vmi))) => {
            shut_down(&client, &vmi, args.timeout.map(Duration::from_secs)).await?;
            "the guest is down"
        }
        Ok((_, None)) => "no guest runs",
        // It has ended, or does not serve yet: SIGTERM, which follows, ends what it has begun.
        Err(
            CtlError::Call(CallError::Connect { .. }) | CtlError::Target(TargetError::NoneRunning),
        ) => "no launcher runs",
        Err(error) => return Err(error),
    };
    print(format, &json!({"success": true, "message": text}), || {
        text.to_owned()
    });
    Ok(ExitCode::SUCCESS)
}

/// Asks until the guest is down.
async fn shut_down(client: &Client, vmi: &Value, limit: Option<Duration>) -> Result<(), CtlError> {
    let mut changes = client.domain_changes().await?;
    let Some(first) = changes
        .next()
        .await?
        .filter(|domain| !is_down(domain.as_ref()))
    else {
        return Ok(());
    };
    let limit = limit.unwrap_or_else(|| grace_period(first.as_ref()));
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
    match timeout(limit, asked).await {
        Ok(result) => result,
        Err(_) => Err(CtlError::NotDown {
            timeout: limit,
            source: failure,
        }),
    }
}

/// The VMI's, which the launcher keeps with the domain.
fn grace_period(domain: Option<&Value>) -> Duration {
    let pointer = "/Spec/Metadata/KubeVirt/GracePeriod/DeletionGracePeriodSeconds";
    let seconds = domain.and_then(|domain| domain.pointer(pointer)?.as_u64());
    seconds.map_or(DEFAULT_GRACE, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_vmis_grace_period() {
        let domain = json!({"Spec": {"Metadata": {"KubeVirt": {"GracePeriod": {"DeletionGracePeriodSeconds": 7}}}}});
        assert_eq!(grace_period(Some(&domain)), Duration::from_secs(7));
        assert_eq!(grace_period(Some(&json!({}))), DEFAULT_GRACE);
    }
}
