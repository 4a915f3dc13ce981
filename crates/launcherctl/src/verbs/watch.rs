//! `watch`: prints the events of a launcher.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::target::Target;
use super::vm_args::VmArgs;
use crate::error::{CtlError, RuntimeError, fail};
use crate::host::control::{ControlClient, Update};
use crate::host::failure::Failure;
use crate::host::registry::CONTROL_SOCKET;
use crate::reports::events::{LauncherEvent, MAX_QUEUED};
use crate::reports::notify_server::{notify_socket, serve};
use crate::view::output::{Format, print};
use os::signals::EndSignals;

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// End after so many events
    #[arg(long)]
    count: Option<usize>,
}

/// `watch`: prints the events of a launcher.
///
/// # Errors
/// There is no such VM, it no longer runs, or the notify socket cannot be served.
pub async fn watch(args: &WatchArgs, format: Format) -> Result<ExitCode, CtlError> {
    let mut stop = EndSignals::listen().map_err(RuntimeError)?;
    let (sender, mut events) = mpsc::channel(MAX_QUEUED);
    let served = listen(&args.vm.target(), sender).await?;
    let mut remaining = args.count.unwrap_or(usize::MAX);
    while remaining > 0 {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = stop.next() => None,
        };
        let Some(event) = event else { break };
        print(format, &json!(event), || [event.to_text()]);
        remaining -= 1;
    }
    if let Some(path) = served {
        let _ = std::fs::remove_file(&path);
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to the supervisor of a VM of `run`, which serves the notify socket; else serves the
/// notify socket and returns its path.
///
/// # Errors
/// If there is no such VM, it does not run any more, or the socket cannot be served.
async fn listen(
    target: &Target,
    events: mpsc::Sender<LauncherEvent>,
) -> Result<Option<PathBuf>, CtlError> {
    let launcher = target.resolve()?;
    let path = match &launcher.dir {
        Some(dir) => {
            if let Ok(stream) = UnixStream::connect(dir.path(CONTROL_SOCKET)).await {
                tokio::spawn(forward_events(ControlClient::new(stream), events));
                return Ok(None);
            }
            // A launcher that `run` did not start may be started later.
            if dir.is_of_run() || Failure::load(dir).is_some() {
                launcher.connect().await?;
            }
            dir.path(&notify_socket())
        }
        None => PathBuf::from(notify_socket()),
    };
    if UnixStream::connect(&path).await.is_ok() {
        fail!(
            "{} is served by another program already, such as virt-handler, which would lose the events printed here; launcherctl domain shows the state",
            path.display()
        );
    }
    serve(&path, events)?;
    Ok(Some(path))
}

async fn forward_events(mut control: ControlClient, events: mpsc::Sender<LauncherEvent>) {
    while let Some(update) = control.next().await {
        if let Update::Event { event, .. } = update
            && events.send(event).await.is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[tokio::test]
    async fn nothing_is_made_for_a_directory_that_is_not_there() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("nope");
        let target = Target {
            root: Some(root.clone()),
            ..Target::default()
        };
        let (sender, _events) = mpsc::channel(1);
        let refused = listen(&target, sender).await.unwrap_err();
        assert!(refused.to_string().contains("there is no such directory"));
        assert!(!root.exists());
        // virt-handler's socket is left to it.
        let notify = parent.path().join(notify_socket().trim_start_matches('/'));
        std::fs::create_dir_all(notify.parent().unwrap()).unwrap();
        let _handler = tokio::net::UnixListener::bind(&notify).unwrap();
        let target = Target {
            root: Some(parent.path().to_owned()),
            ..Target::default()
        };
        let (sender, _events) = mpsc::channel(1);
        let refused = listen(&target, sender).await.unwrap_err();
        assert!(refused.to_string().contains("served by another program"));
    }

    #[tokio::test]
    async fn the_events_of_a_vm_that_does_not_run_any_more_are_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let target = Target {
            root: Some(root.path().to_owned()),
            ..Target::default()
        };
        let refusal = async || {
            let (sender, _events) = mpsc::channel(1);
            let refused = listen(&target, sender).await;
            refused.err().unwrap().to_string()
        };
        let dir = crate::host::registry::VmDir::at(root.path().to_owned());
        let vmi = serde_json::json!({"metadata": {"name": "web"}});
        dir.store_vmi(&vmi).unwrap();
        assert!(refusal().await.contains("no launcher any more"));
        let failure =
            serde_json::json!({"reason": "a crash", "name": "web", "namespace": "", "uid": ""});
        std::fs::write(root.path().join("failure.json"), failure.to_string()).unwrap();
        assert!(refusal().await.contains("has failed: a crash"));
    }
}
