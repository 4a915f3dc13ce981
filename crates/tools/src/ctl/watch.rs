//! `watch`: prints the events of a launcher, or of all launchers below a directory.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::error::CtlError;
use super::events::{LauncherEvent, MAX_QUEUED};
use super::node;
use super::notify_server::{notify_socket, serve};
use super::output::{Format, print};
use super::relay::{RELAY_SOCKET, read_events};
use super::target::Target;
use os::signals::EndSignals;

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Watch all launchers whose sockets are below this directory, such as /var/lib/kubelet/pods, as virt-handler does
    #[arg(value_name = "DIR", conflicts_with_all = ["name", "root", "socket", "listen"])]
    directory: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    /// With DIR: how often it is searched for new sockets and for stale ones
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        requires = "directory"
    )]
    resync: u64,
    /// Serve a notify socket here
    #[arg(long)]
    listen: Option<PathBuf>,
    /// End after so many events
    #[arg(long)]
    count: Option<usize>,
}

/// `watch`: prints the events of a launcher.
///
/// # Errors
/// If the notify socket cannot be served.
pub async fn watch(args: &WatchArgs, format: Format) -> Result<ExitCode, CtlError> {
    if let Some(directory) = &args.directory {
        let resync = Duration::from_secs(args.resync);
        return node::watch(directory, resync, args.count, format).await;
    }
    let mut stop = EndSignals::listen().map_err(CtlError::Runtime)?;
    let (sender, mut events) = mpsc::channel(MAX_QUEUED);
    let served = listen(args, sender).await?;
    let mut remaining = args.count.unwrap_or(usize::MAX);
    while remaining > 0 {
        let event = tokio::select! {
            event = events.recv() => event,
            _ = stop.next() => None,
        };
        let Some(event) = event else { break };
        print(format, &event.to_json(), || event.to_text());
        remaining -= 1;
    }
    if let Some(path) = served {
        let _ = std::fs::remove_file(&path);
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to the relay of the `run` that has started the launcher; else serves the notify socket and returns its path.
async fn listen(
    args: &WatchArgs,
    events: mpsc::Sender<LauncherEvent>,
) -> Result<Option<PathBuf>, CtlError> {
    let path = match &args.listen {
        Some(path) => path.clone(),
        None => match args.target.resolve()?.dir {
            Some(dir) => {
                if let Ok(stream) = UnixStream::connect(dir.path(RELAY_SOCKET)).await {
                    tokio::spawn(read_events(stream, events));
                    return Ok(None);
                }
                dir.path(&notify_socket())
            }
            None => PathBuf::from(notify_socket()),
        },
    };
    if UnixStream::connect(&path).await.is_ok() {
        return Err(CtlError::NotifySocketInUse(path.display().to_string()));
    }
    serve(&path, events)?;
    Ok(Some(path))
}
