//! `watch DIR`: the node's view, as virt-handler's domain informer has it: all launchers whose sockets are below a
//! directory, their domains, and each change of them.
//!
//! ```text
//!   rescan every few seconds ─► a new socket ─┬─ refused: STALE, tried again by the next rescan
//!                                             └─ connected ─► DOMAIN ─► CHANGED, with what changed ─► … ─► ENDED
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::error::{CtlError, RuntimeError};
use crate::files::FileError;
use crate::json::text_or_dash;
use crate::reports::events::MAX_QUEUED;
use crate::reports::guest_state::status_text;
use crate::view::json_diff::{Difference, differences};
use crate::view::output::{Format, print, say};
use api::pod_paths::COMMAND_SOCKET;
use client::Client;
use os::signals::EndSignals;

/// Below the kubelet's directory of pods a socket is six directories deep.
const MAX_DEPTH: usize = 10;
/// Directories that one scan visits.
const MAX_DIRECTORIES: usize = 100_000;
/// Launchers that are watched at the same time: a node has some hundred pods.
const MAX_LAUNCHERS: usize = 2_000;
/// Changes of one event that are printed.
const MAX_DIFFERENCES: usize = 20;

/// What happened to a launcher.
#[derive(Debug)]
enum News {
    /// Nothing accepts connections on its socket: a launcher that has ended, or does not serve yet.
    Stale,
    /// Its domain, the first time.
    Domain(Option<Value>),
    /// Its domain after a change.
    Changed(Option<Value>, Vec<Difference>),
    /// It has ended, or its answers cannot be understood.
    Ended,
    /// Its socket is gone.
    Removed,
}

impl News {
    fn name(&self) -> &'static str {
        match self {
            Self::Stale => "STALE",
            Self::Domain(_) => "DOMAIN",
            Self::Changed(..) => "CHANGED",
            Self::Ended => "ENDED",
            Self::Removed => "REMOVED",
        }
    }

    fn domain(&self) -> Option<&Value> {
        match self {
            Self::Domain(domain) | Self::Changed(domain, _) => domain.as_ref(),
            _ => None,
        }
    }

    fn differences(&self) -> &[Difference] {
        match self {
            Self::Changed(_, differences) => differences,
            _ => &[],
        }
    }

    fn to_json(&self, socket: &Path) -> Value {
        json!({"event": self.name(), "socket": socket, "domain": self.domain(), "changes": self.differences()})
    }

    fn to_text(&self, socket: &Path) -> Vec<String> {
        let state = match self {
            Self::Domain(None) | Self::Changed(None, _) => "no domain".to_owned(),
            Self::Domain(Some(domain)) | Self::Changed(Some(domain), _) => format!(
                "{}  {}",
                text_or_dash(domain, "/Spec/Name"),
                status_text(domain)
            ),
            _ => String::new(),
        };
        let mut lines = vec![
            format!("{:<8} {}  {state}", self.name(), socket.display())
                .trim_end()
                .to_owned(),
        ];
        let shown = self.differences().iter().take(MAX_DIFFERENCES);
        lines.extend(shown.map(|difference| format!("         {difference}")));
        let more = self.differences().len().saturating_sub(MAX_DIFFERENCES);
        if more > 0 {
            lines.push(format!("         and {more} more"));
        }
        lines
    }
}

/// Watches all launchers below `directory` until a signal, or until so many events were printed.
///
/// # Errors
/// If the directory cannot be read, or the signals cannot be listened for.
pub async fn watch(
    directory: &Path,
    resync: Duration,
    count: Option<usize>,
    format: Format,
) -> Result<ExitCode, CtlError> {
    // Later, what is gone or is not ours to read has no launchers.
    std::fs::read_dir(directory).map_err(FileError::on("read", directory))?;
    if sockets_below(directory).is_empty() {
        say(&format!(
            "there is no launcher's socket below {} yet; Ctrl-C ends waiting for one",
            directory.display()
        ));
    }
    let mut stop = EndSignals::listen().map_err(RuntimeError)?;
    let (sender, mut news) = mpsc::channel(MAX_QUEUED);
    let mut launchers = Launchers::default();
    let mut rescan = interval(resync.max(Duration::from_millis(100)));
    rescan.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut remaining = count.unwrap_or(usize::MAX);
    while remaining > 0 {
        tokio::select! {
            _ = rescan.tick() => launchers.rescan(directory, &sender),
            Some((socket, event)) = news.recv() => {
                print(format, &event.to_json(&socket), || event.to_text(&socket));
                remaining -= 1;
            }
            _ = stop.next() => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The launchers that are known, each with the task that follows it.
#[derive(Default)]
struct Launchers {
    following: BTreeMap<PathBuf, JoinHandle<()>>,
    /// Their sockets refused the last connection. That is said once.
    stale: BTreeSet<PathBuf>,
}

type Sender = mpsc::Sender<(PathBuf, News)>;

impl Launchers {
    /// Follows what is new, and forgets what is gone.
    fn rescan(&mut self, directory: &Path, sender: &Sender) {
        let found = sockets_below(directory);
        self.following.retain(|_, task| !task.is_finished());
        let known: BTreeSet<PathBuf> = self
            .stale
            .union(&self.following.keys().cloned().collect())
            .cloned()
            .collect();
        for socket in known.difference(&found) {
            self.stale.remove(socket);
            if let Some(task) = self.following.remove(socket) {
                task.abort();
            }
            send_later(sender, socket, News::Removed);
        }
        for socket in found {
            if self.following.len() >= MAX_LAUNCHERS || self.following.contains_key(&socket) {
                continue;
            }
            // The connection itself, so that a socket of the backlog of a hung launcher does not count as stale.
            let is_live = std::os::unix::net::UnixStream::connect(&socket).is_ok();
            if is_live {
                self.stale.remove(&socket);
                let task = tokio::spawn(follow(socket.clone(), sender.clone()));
                self.following.insert(socket, task);
            } else if self.stale.insert(socket.clone()) {
                send_later(sender, &socket, News::Stale);
            }
        }
    }
}

/// A full channel must not keep the scan, which is its reader, waiting.
fn send_later(sender: &Sender, socket: &Path, news: News) {
    let (sender, socket) = (sender.clone(), socket.to_owned());
    tokio::spawn(async move { drop(sender.send((socket, news)).await) });
}

/// Sends the domain of one launcher and its changes until the launcher ends.
async fn follow(socket: PathBuf, sender: Sender) {
    let mut last: Option<Option<Value>> = None;
    if let Ok(client) = Client::connect(&socket).await
        && let Ok(mut changes) = client.domain_changes().await
    {
        while let Ok(Some(domain)) = changes.next().await {
            let news = match &last {
                None => News::Domain(domain.clone()),
                Some(before) => {
                    let null = Value::Null;
                    let changed = differences(
                        before.as_ref().unwrap_or(&null),
                        domain.as_ref().unwrap_or(&null),
                    );
                    if changed.is_empty() {
                        continue;
                    }
                    News::Changed(domain.clone(), changed)
                }
            };
            last = Some(domain);
            if sender.send((socket.clone(), news)).await.is_err() {
                return;
            }
        }
    }
    let _ = sender.send((socket, News::Ended)).await;
}

/// The command sockets below a directory. Links are not followed, so that no directory is seen twice.
fn sockets_below(directory: &Path) -> BTreeSet<PathBuf> {
    let name = Path::new(COMMAND_SOCKET).file_name().unwrap_or_default();
    let mut found = BTreeSet::new();
    let mut waiting = vec![(directory.to_owned(), 0)];
    let mut visited = 0;
    while let Some((directory, depth)) = waiting.pop() {
        visited += 1;
        if visited > MAX_DIRECTORIES {
            break;
        }
        // A directory that is gone, or is not ours to read.
        let entries = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && depth < MAX_DEPTH {
                waiting.push((entry.path(), depth + 1));
            } else if std::os::unix::fs::FileTypeExt::is_socket(&kind) && entry.file_name() == name
            {
                found.insert(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn command_sockets_are_found_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir
            .path()
            .join("uid/volumes/kubernetes.io~empty-dir/sockets");
        std::fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("launcher-sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let _other = UnixListener::bind(deep.join("other-sock")).unwrap();
        std::fs::write(dir.path().join("launcher-sock"), "").unwrap();
        std::os::unix::fs::symlink(dir.path(), deep.join("loop")).unwrap();
        assert_eq!(sockets_below(dir.path()), BTreeSet::from([socket]));
        assert!(sockets_below(&dir.path().join("missing")).is_empty());
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let watched = watch(&missing, Duration::from_secs(1), Some(0), Format::Text);
        let error = runtime.block_on(watched).unwrap_err().to_string();
        assert!(error.contains(&*missing.to_string_lossy()), "{error}");
    }

    #[test]
    fn a_change_is_shown_with_what_changed() {
        let (before, after) = (
            json!({"Spec": {"Name": "a_b"}, "Status": {"Status": "Running"}}),
            json!({"Spec": {"Name": "a_b"}, "Status": {"Status": "Paused", "Reason": "User"}}),
        );
        let changed = differences(&before, &after);
        let text = News::Changed(Some(after), changed)
            .to_text(Path::new("/s"))
            .join("\n");
        let expected = "CHANGED  /s  a_b  Paused (User)\n         /Status/Reason: \"User\" is new\n         \
            /Status/Status: \"Running\" becomes \"Paused\"";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_stale_socket_is_reported_once_and_its_removal_too() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("launcher-sock");
        drop(UnixListener::bind(&socket).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (sender, mut news) = mpsc::channel(8);
            let mut launchers = Launchers::default();
            launchers.rescan(dir.path(), &sender);
            launchers.rescan(dir.path(), &sender);
            assert!(matches!(news.recv().await, Some((_, News::Stale))));
            std::fs::remove_file(&socket).unwrap();
            launchers.rescan(dir.path(), &sender);
            assert!(matches!(news.recv().await, Some((_, News::Removed))));
        });
    }
}
