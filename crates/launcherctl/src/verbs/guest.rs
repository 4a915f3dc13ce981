//! `guest …`: the guest agent's information and commands, as virtctl has them
//! in a cluster.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio::time::Instant;

use super::target::VmArgs;
use crate::error::{CtlError, fail};
use crate::view::output::{Format, answer, answer_json, print_bytes, print_json};
use api::proto::cmd::v1::{ExecRequest, GuestPingRequest};
use client::refusal::NO_AGENT;
use client::running::check_runs;
use client::{Client, exit_code};
use domain::guest_agent::GuestDocument;

/// Interval of asking whether the agent answers: the cmd socket has no event for that.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// What the guest is asked for.
#[derive(Debug, Subcommand)]
pub enum GuestVerb {
    /// Print what the guest agent knows: operating system, host name, agent, users, file systems
    Info(VmArgs),
    /// Run a command in the guest; its output, errors and exit status are the command's
    ///
    /// The call is KubeVirt's. It has no standard input, so what is piped to launcherctl does not
    /// reach the command, and both streams come once the command has ended. They are text: a byte
    /// that is not UTF-8 comes back as U+FFFD, so let base64 print other files. KubeVirt's own
    /// launcher gives back standard output only.
    Exec(ExecArgs),
    /// Check that the guest agent answers
    Ping(GuestPingArgs),
}

/// Arguments of `guest exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Seconds that the command may take
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(i32).range(1..))]
    timeout: i32,
    /// The program, as a path in the guest, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Arguments of `guest ping`.
#[derive(Debug, Args)]
pub struct GuestPingArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Wait for so many seconds until the agent answers, which starts after the guest is up
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
}

/// `guest …`.
///
/// # Errors
/// There is no launcher, or the guest agent refuses.
pub async fn guest(verb: &GuestVerb, format: Format) -> Result<ExitCode, CtlError> {
    match verb {
        GuestVerb::Info(args) => {
            let client = args.target().connect().await?.client;
            let info = agent_info(&client).await?;
            answer_json(format, &json!(info))
        }
        GuestVerb::Exec(args) => exec(args, format).await,
        GuestVerb::Ping(args) => {
            let client = args.vm.target().connect().await?.client;
            let end = os::time::deadline(Duration::from_secs(args.wait.unwrap_or(0)));
            while let Err(error) = ping(&client).await {
                if Instant::now() >= end {
                    return Err(error);
                }
                tokio::time::sleep(PING_INTERVAL).await;
            }
            answer(format, &json!({"success": true}), || ["ok".to_owned()])
        }
    }
}

/// The information of a guest's agent, which has answered at least once.
///
/// # Errors
/// There is no guest, or its agent has not answered.
async fn agent_info(client: &Client) -> Result<GuestDocument, CtlError> {
    let info = client.guest_info().await?;
    if info.guest_agent_version.is_empty() {
        fail!("the guest agent has not answered yet: {NO_AGENT}");
    }
    Ok(info)
}

/// The domain's name, which the reference's launcher requires.
///
/// # Errors
/// Its guest cannot answer.
async fn running_domain(client: &Client) -> Result<String, CtlError> {
    let domain = client.domain().await?;
    check_runs(domain.as_ref())?;
    Ok(domain.unwrap_or_default().spec.name)
}

/// Checks that the agent answers. For a paused guest, whose agent cannot, the launcher reports
/// success: a probe must not kill it.
async fn ping(client: &Client) -> Result<(), CtlError> {
    let ping = GuestPingRequest {
        domain_name: running_domain(client).await?,
        // An agent answers within milliseconds, or not at all.
        timeout_seconds: 5,
    };
    Ok(client.guest_ping(ping).await?)
}

async fn exec(args: &ExecArgs, format: Format) -> Result<ExitCode, CtlError> {
    let client = args.vm.target().connect().await?.client;
    let mut words = args.command.iter().cloned();
    let request = ExecRequest {
        domain_name: running_domain(&client).await?,
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        timeout_seconds: args.timeout,
    };
    let done = client.exec(request).await?;
    let (code, stdout, stderr) = (done.exit_code, done.std_out, done.std_err);
    match format {
        Format::Json => {
            print_json(&json!({"exitCode": code, "stdout": stdout, "stderr": stderr}));
        }
        _ => {
            // Unchanged: they need not end with a newline. A reader that has left needs no more.
            let _ = print_bytes(stdout.as_bytes());
            let _ = std::io::stderr().write_all(stderr.as_bytes());
        }
    }
    Ok(exit_code(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_stays_a_failure() {
        let as_text = |code| format!("{:?}", exit_code(code));
        assert_eq!(as_text(0), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(as_text(3), format!("{:?}", ExitCode::from(3)));
        assert_eq!(as_text(256), format!("{:?}", ExitCode::from(1)));
        assert_eq!(as_text(-1), format!("{:?}", ExitCode::from(255)));
    }
}
