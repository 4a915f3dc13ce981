//! `virt-freezer`: freezes and thaws the guest's file systems. Backup tools run it in the compute
//! container.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::virt_probe::switch;
use client::{CallError, Client};
use domain::Domain;
use domain::guest_agent::GuestDocument;
use domain::status::LifeCycle;
use os::logging;

const USAGE: &str = "Usage: virt-freezer (--freeze | --unfreeze) --name NAME --namespace NAMESPACE [--unfreezeTimeoutSeconds N]

Freezes or thaws the guest's file systems, by its agent. Without an agent, or while the guest does not run, there is nothing to do.";

/// The launcher's socket, as in KubeVirt.
const SOCKET: &str = "/run/kubevirt/sockets/launcher-sock";
/// In the error of an agent that does not answer.
const NO_AGENT: &str = "Guest agent not available for now";
/// In the error of a Windows guest that was frozen longer than it allows.
const FREEZE_LIMIT: &str = "fsfreeze is limited";

/// How long a connected agent may take to report its version, and the interval of asking the
/// launcher.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
const VERSION_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, PartialEq, Eq)]
struct Options {
    socket: PathBuf,
    freeze: bool,
    unfreeze: bool,
    name: String,
    namespace: String,
    thaw_after: i32,
    help: bool,
}

/// Exit status 0 if done or nothing to do, else 1.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    logging::init("freezer");
    let options = match parse(arguments) {
        Ok(options) if options.help => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(options) => options,
        Err(error) => {
            tracing::error!(reason = %error, "Failed to parse flags");
            return ExitCode::FAILURE;
        }
    };
    let done = match crate::block_on(run(&options)) {
        Ok(done) => done,
        Err(error) => {
            tracing::error!(reason = %error, "There is no runtime");
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Logged already.
        Err(_) => ExitCode::FAILURE,
    }
}

async fn run(options: &Options) -> Result<(), CallError> {
    let client = Client::connect(&options.socket)
        .await
        .inspect_err(failed("Failed to connect launcher"))?;
    let Some((info, domain)) = guest_info(&client).await? else {
        tracing::info!("No guest agent, exiting");
        return Ok(());
    };
    if domain.is_none_or(|domain| domain.status.status != LifeCycle::Running) {
        tracing::info!("VM domain not running, no need to freeze/unfreeze");
        return Ok(());
    }
    let vmi = json!({"metadata": {"name": options.name, "namespace": options.namespace}});
    if options.freeze {
        freeze(&client, &vmi, options.thaw_after, &info).await?;
    } else {
        unfreeze(&client, &vmi).await?;
    }
    tracing::info!("Operation completed successfully");
    Ok(())
}

/// The guest agent's report and the domain; `None` without an agent. The launcher learns the
/// agent's version shortly after the agent has connected, and a backup must not skip the freeze for
/// that.
// D-agent-11 (docs/differences.md).
async fn guest_info(client: &Client) -> Result<Option<(GuestDocument, Option<Domain>)>, CallError> {
    let end = os::time::deadline(VERSION_TIMEOUT);
    loop {
        let info = client
            .guest_info()
            .await
            .inspect_err(failed("Failed to get guest info"))?;
        let domain = client
            .domain()
            .await
            .inspect_err(failed("Failed to get domain"))?;
        if !info.guest_agent_version.is_empty() {
            tracing::info!("Guest agent version is {}", info.guest_agent_version);
            return Ok(Some((info, domain)));
        }
        if !domain
            .as_ref()
            .is_some_and(|it| it.spec.devices.has_agent())
            || Instant::now() >= end
        {
            return Ok(None);
        }
        sleep(VERSION_INTERVAL).await;
    }
}

async fn freeze(
    client: &Client,
    vmi: &Value,
    thaw_after: i32,
    info: &GuestDocument,
) -> Result<(), CallError> {
    let Err(error) = client.freeze(vmi, thaw_after).await else {
        return Ok(());
    };
    if logging::chain(&error).contains(NO_AGENT) {
        // The guest may be frozen without having reported it.
        drop(client.unfreeze(vmi).await);
        if info.os.name.to_lowercase().contains("windows") {
            failed(
                "Freezing VMI failed, please make sure guest agent and VSS are running and try again",
            )(&error);
        } else {
            failed("Freezing VMI failed, please make sure guest agent is running and try again")(
                &error,
            );
        }
    } else {
        failed("Freezing VMI failed")(&error);
    }
    Err(error)
}

async fn unfreeze(client: &Client, vmi: &Value) -> Result<(), CallError> {
    client.unfreeze(vmi).await.inspect_err(|error| {
        if logging::chain(error).contains(FREEZE_LIMIT) {
            failed("Unfreezing VMI failed, please try again. If problem continues, stop the VM and backup while down")(error);
        } else {
            failed("Unfreezing VMI failed")(error);
        }
    })
}

fn failed(what: &'static str) -> impl Fn(&CallError) {
    move |error| tracing::error!(reason = %logging::chain(error), "{what}")
}

fn parse(arguments: Vec<OsString>) -> Result<Options, lexopt::Error> {
    let mut options = Options {
        socket: SOCKET.into(),
        freeze: false,
        unfreeze: false,
        name: String::new(),
        namespace: String::new(),
        thaw_after: 300,
        help: false,
    };
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            // Not in KubeVirt.
            Arg::Long("socket") => options.socket = parser.value()?.into(),
            Arg::Long("freeze") => options.freeze = switch(&mut parser)?,
            Arg::Long("unfreeze") => options.unfreeze = switch(&mut parser)?,
            Arg::Long("name") => options.name = parser.value()?.string()?,
            Arg::Long("namespace") => options.namespace = parser.value()?.string()?,
            Arg::Long("unfreezeTimeoutSeconds") => options.thaw_after = parser.value()?.parse()?,
            Arg::Short('h') | Arg::Long("help") => options.help = true,
            // pflag keeps them, but nobody reads them.
            Arg::Value(_) => {}
            other => return Err(other.unexpected()),
        }
    }
    if !options.help && !options.freeze && !options.unfreeze {
        return Err("either --freeze or --unfreeze must be set".into());
    }
    if !options.help && (options.name.is_empty() || options.namespace.is_empty()) {
        return Err("both --name and --namespace must be provided".into());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, lexopt::Error> {
        parse(words.iter().map(OsString::from).collect())
    }

    #[test]
    fn command_lines_of_backup_tools() {
        let freeze = parsed(&["--freeze", "--name", "vm1", "--namespace", "ns1"]).unwrap();
        assert_eq!((freeze.freeze, freeze.thaw_after), (true, 300));
        assert_eq!(freeze.socket, PathBuf::from(SOCKET));
        let thaw = parsed(&["--unfreeze", "--name=vm1", "--namespace=ns1"]).unwrap();
        assert!(thaw.unfreeze && !thaw.freeze);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = |words: &[&str]| parsed(words).unwrap_err().to_string();
        assert!(error(&["--name", "a", "--namespace", "b"]).contains("--freeze or --unfreeze"));
        assert!(error(&["--freeze", "--name", "a"]).contains("--namespace"));
        assert!(error(&["--freeze", "--other"]).contains("--other"));
    }
}
