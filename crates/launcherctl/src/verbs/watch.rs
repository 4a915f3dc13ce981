//! `watch`: prints the events of a launcher, or of all launchers below a directory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::node;
use super::target::Target;
use super::target_error::TargetError;
use crate::error::{CtlError, RuntimeError};
use crate::host::failure::Failure;
use crate::host::registry;
use crate::reports::events::{LauncherEvent, MAX_QUEUED};
use crate::reports::notify_server::{notify_socket, serve};
use crate::reports::relay::{RELAY_SOCKET, read_events};
use crate::view::output::{Format, print};
use os::signals::EndSignals;

/// Another program serves the notify socket.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is served by another program already, such as virt-handler, which would lose the events printed here; launcherctl domain shows the state"
)]
struct NotifySocketInUse(String);

/// Between two searches of a directory, unless `--resync` says otherwise.
const RESYNC_INTERVAL: Duration = Duration::from_secs(5);

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The VM's name; may be left out if there is only one. Or a directory, such as /var/lib/kubelet/pods: all launchers
    /// whose sockets are below it are watched, as virt-handler does. A word without / is a directory only if no VM has that name
    #[arg(value_name = "VM|DIR", conflicts_with_all = ["name", "root", "socket", "listen"])]
    vm_or_directory: Option<String>,
    #[command(flatten)]
    target: Target,
    /// With DIR: how often it is searched for new sockets and for stale ones; every 5 seconds by default
    #[arg(long, value_name = "SECONDS", requires = "vm_or_directory")]
    resync: Option<u64>,
    /// Serve a notify socket here
    #[arg(long, conflicts_with_all = ["name", "root", "socket"])]
    listen: Option<PathBuf>,
    /// End after so many events
    #[arg(long)]
    count: Option<usize>,
}

/// What is watched.
#[derive(Debug)]
enum Watched {
    Vm(Target),
    Directory(PathBuf),
}

impl WatchArgs {
    fn watched(&self) -> Watched {
        let Some(given) = &self.vm_or_directory else {
            return Watched::Vm(self.target.clone());
        };
        let path = Path::new(given);
        if given.contains('/') || (path.is_dir() && registry::find(given).is_err()) {
            return Watched::Directory(path.to_owned());
        }
        Watched::Vm(Target {
            name: Some(given.clone()),
            ..self.target.clone()
        })
    }
}

/// `watch`: prints the events of a launcher.
///
/// # Errors
/// If there is no such VM, it does not run any more, or the notify socket cannot be served.
pub async fn watch(args: &WatchArgs, format: Format) -> Result<ExitCode, CtlError> {
    let target = match args.watched() {
        Watched::Vm(_) if args.resync.is_some() => return Err(TargetError::ResyncOfVm.into()),
        Watched::Vm(target) => target,
        Watched::Directory(directory) => {
            let resync = args.resync.map_or(RESYNC_INTERVAL, Duration::from_secs);
            return node::watch(&directory, resync, args.count, format).await;
        }
    };
    let mut stop = EndSignals::listen().map_err(RuntimeError)?;
    let (sender, mut events) = mpsc::channel(MAX_QUEUED);
    let served = listen(&target, args.listen.as_deref(), sender).await?;
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
///
/// # Errors
/// If there is no such VM, it does not run any more, or the socket cannot be served.
async fn listen(
    target: &Target,
    socket: Option<&Path>,
    events: mpsc::Sender<LauncherEvent>,
) -> Result<Option<PathBuf>, CtlError> {
    let path = match socket {
        // The parser sees only those that stand on the same side of the verb.
        Some(_) if target.is_given() => return Err(TargetError::ListensOnItsOwn.into()),
        Some(path) => path.to_owned(),
        None => {
            let launcher = target.resolve()?;
            match &launcher.dir {
                Some(dir) => {
                    if let Ok(stream) = UnixStream::connect(dir.path(RELAY_SOCKET)).await {
                        tokio::spawn(read_events(stream, events));
                        return Ok(None);
                    }
                    // A launcher that is not of run may be started later.
                    if dir.is_of_run() || Failure::load(dir).is_some() {
                        launcher.connect().await?;
                    }
                    dir.path(&notify_socket())
                }
                None => PathBuf::from(notify_socket()),
            }
        }
    };
    if UnixStream::connect(&path).await.is_ok() {
        return Err(NotifySocketInUse(path.display().to_string()).into());
    }
    serve(&path, events)?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: WatchArgs,
    }

    #[test]
    fn a_word_is_the_name_of_a_vm_and_a_path_a_directory() {
        let watched = |words: &[&str]| {
            let line = [&["watch"], words].concat();
            Line::try_parse_from(line).unwrap().args.watched()
        };
        for words in [&["web"][..], &["--name", "web"]] {
            let Watched::Vm(target) = watched(words) else {
                panic!("{words:?}")
            };
            assert_eq!(target.name.as_deref(), Some("web"));
        }
        assert!(matches!(watched(&[]), Watched::Vm(target) if target.name.is_none()));
        for directory in [".", "/nonexistent", "src"] {
            let is_it =
                |watched| matches!(watched, Watched::Directory(it) if it == Path::new(directory));
            assert!(is_it(watched(&[directory])), "{directory}");
        }
        for other in ["--name", "--root", "--socket", "--listen"] {
            assert!(Line::try_parse_from(["watch", "web", other, "x"]).is_err());
        }
    }

    #[tokio::test]
    async fn a_vm_has_no_resync() {
        let line = ["watch", "no-such-vm", "--resync", "1"];
        let args = Line::try_parse_from(line).unwrap().args;
        let refused = watch(&args, Format::Text).await.unwrap_err();
        assert!(refused.to_string().contains("--resync is for a directory"));
    }

    #[tokio::test]
    async fn nothing_is_made_for_a_directory_that_is_not_there() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("nope");
        let target = Target {
            root: Some(root.clone()),
            ..Target::default()
        };
        let refusal = async |socket: Option<&Path>| {
            let (sender, _events) = mpsc::channel(1);
            let refused = listen(&target, socket, sender).await;
            refused.err().unwrap().to_string()
        };
        assert!(refusal(None).await.contains("there is no such directory"));
        let socket = parent.path().join("notify.sock");
        assert!(refusal(Some(&socket)).await.contains("--listen"));
        assert!(!root.exists() && !socket.exists());
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
            let refused = listen(&target, None, sender).await;
            refused.err().unwrap().to_string()
        };
        let dir = registry::VmDir::at(root.path().to_owned());
        let vmi = serde_json::json!({"metadata": {"name": "web"}});
        dir.store_vmi(&vmi).unwrap();
        assert!(refusal().await.contains("no launcher any more"));
        let failure =
            serde_json::json!({"reason": "a crash", "name": "web", "namespace": "", "uid": ""});
        std::fs::write(root.path().join("failure.json"), failure.to_string()).unwrap();
        assert!(refusal().await.contains("has failed: a crash"));
    }
}
