//! Finds the sidecars of a pod. inotify reports new sockets, and the launcher probes all at once:
//!
//! ```text
//!             socket appears            Info answers
//!  directory ───────────────► probing ───────────────► ready      until `count` sidecars are ready
//!                              ▲    │ not serving yet
//!                              └────┘ after PROBE_RETRY_DELAY
//! ```
//!
//! The hooks directory is [`HOOKS_DIR`](api::pod_paths::HOOKS_DIR). Each sub-directory belongs to
//! one sidecar: its container mounts it at `/var/run/kubevirt-hooks`. A socket directly in the
//! hooks directory is a sidecar too, as in older releases of KubeVirt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use os::logging::chain;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::client;
use super::error::{HookCallError, HookError, UnusableReason, list};
use super::sidecar::{HookPoint, Sidecar, Version, natural_order};
use api::proto::hooks::info::{HookPoint as Subscription, InfoResult};
use domain::excerpt;
use os::inotify::DirWatch;
use tonic::Code;

/// First and longest delay before a socket that does not serve yet is probed again.
const PROBE_RETRY_DELAY: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_millis(300));
/// First and longest timeout of `Info`. A sidecar that hangs may only be slow to start.
const INFO_TIMEOUT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Interval of reading the directory again, as not every file system reports changes by inotify.
const RESCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Shortest time between two reads of the directory, which may change all the time.
const SCAN_PAUSE: Duration = Duration::from_millis(10);
/// Delay before the log first names the missing sidecars, and interval after that.
const FIRST_REPORT: Duration = Duration::from_secs(5);
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Limit of the entries read from a directory. A sidecar needs one, its socket.
const MAX_ENTRIES: usize = 256;
/// Limit of a sidecar's name, in characters.
const MAX_NAME_CHARS: usize = 128;
/// Limit of the subscriptions read from a sidecar. There are three hook points.
const MAX_SUBSCRIPTIONS: usize = 32;
/// Limit of the versions that an error lists.
const MAX_VERSIONS: usize = 32;

/// Waits until `count` sidecars below `dir` are ready.
///
/// # Errors
/// [`HookError::NotReady`] at the deadline, [`HookError::Unusable`], [`HookError::Directory`].
// D-start-1 (docs/differences.md).
pub async fn collect(
    dir: &Path,
    count: usize,
    deadline: Instant,
) -> Result<Vec<Sidecar>, HookError> {
    let mut discovery = Discovery::new(dir);
    let began = Instant::now();
    let mut report_at = os::time::deadline(FIRST_REPORT);
    let mut pause_ends = None;
    while discovery.ready_count() < count {
        tokio::select! {
            biased;
            Some(probe) = discovery.probes.join_next() => discovery.probe_ended(probe)?,
            () = changed(&discovery.watch, pause_ends) => {
                discovery.scan()?;
                pause_ends = Some(os::time::deadline(SCAN_PAUSE));
            }
            () = sleep_until(deadline) => return Err(discovery.not_ready(count)),
            () = sleep_until(report_at) => {
                discovery.report(count, began.elapsed());
                report_at = os::time::deadline(REPORT_INTERVAL);
            }
        }
    }
    Ok(discovery.into_sidecars())
}

/// Waits until the directory is to be read again: at a change below it, but not before `pause_ends`,
/// or after [`RESCAN_INTERVAL`]. `None` is the first read, which waits for nothing.
async fn changed(watch: &DirWatch, pause_ends: Option<Instant>) {
    let Some(pause_ends) = pause_ends else { return };
    sleep_until(pause_ends).await;
    tokio::select! {
        () = watch.changed() => {}
        () = sleep(RESCAN_INTERVAL) => {}
    }
}

#[derive(Debug)]
enum State {
    /// The socket does not answer yet; holds the last error.
    Probing(Option<String>),
    Ready(Sidecar),
}

#[derive(Debug)]
struct Probe {
    socket: PathBuf,
    attempt: u32,
    result: Result<InfoResult, HookCallError>,
}

struct Discovery<'a> {
    dir: &'a Path,
    watch: DirWatch,
    sockets: BTreeMap<PathBuf, State>,
    /// Files other than sockets, and directories without a socket.
    others: BTreeSet<String>,
    probes: JoinSet<Probe>,
}

impl<'a> Discovery<'a> {
    fn new(dir: &'a Path) -> Self {
        Self {
            dir,
            watch: DirWatch::new(),
            sockets: BTreeMap::new(),
            others: BTreeSet::new(),
            probes: JoinSet::new(),
        }
    }

    /// Reads the directory, and starts a probe of every new socket.
    fn scan(&mut self) -> Result<(), HookError> {
        self.others.clear();
        let entries = match self.list(self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.watch_ancestor();
                return Ok(());
            }
            Err(source) => {
                return Err(HookError::Directory {
                    dir: self.dir.to_path_buf(),
                    source,
                });
            }
        };
        for entry in entries {
            if !entry.is_dir() {
                self.add(entry);
                continue;
            }
            // A sub-directory may be removed or unreadable; the scan then continues.
            match self.list(&entry) {
                Ok(files) if files.is_empty() => self.add_other(&entry, "no socket in it"),
                Ok(files) => files.into_iter().for_each(|file| self.add(file)),
                Err(error) => self.add_other(&entry, error),
            }
        }
        Ok(())
    }

    /// Watches a directory and reads it, in this order, so that no change is missed in between.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        // If the directory is gone, reading it fails too.
        let _ = self.watch.add(dir);
        fs::read_dir(dir)?
            .take(MAX_ENTRIES)
            .map(|entry| Ok(entry?.path()))
            .collect()
    }

    /// Watches the nearest existing parent of the missing hooks directory.
    fn watch_ancestor(&self) {
        let ancestor = self.dir.ancestors().skip(1).find(|path| path.is_dir());
        if let Some(ancestor) = ancestor {
            // If the parent is gone by now, the scan runs again after RESCAN_INTERVAL.
            let _ = self.watch.add(ancestor);
        }
    }

    fn add(&mut self, file: PathBuf) {
        if self.sockets.contains_key(&file) {
            return;
        }
        match fs::metadata(&file) {
            Ok(metadata) if metadata.file_type().is_socket() => {
                self.probe(file.clone(), 0);
                self.sockets.insert(file, State::Probing(None));
            }
            Ok(_) => self.add_other(&file, "not a socket"),
            Err(error) => self.add_other(&file, error),
        }
    }

    fn add_other(&mut self, path: &Path, reason: impl std::fmt::Display) {
        self.others.insert(format!("{} ({reason})", self.id(path)));
    }

    /// Starts a probe, with a delay from the second attempt on.
    fn probe(&mut self, socket: PathBuf, attempt: u32) {
        self.probes.spawn(async move {
            if let Some(retry) = attempt.checked_sub(1) {
                sleep(backoff(PROBE_RETRY_DELAY, retry)).await;
            }
            let deadline = os::time::deadline(backoff(INFO_TIMEOUT, attempt));
            let result = client::info(&socket, deadline).await;
            Probe {
                socket,
                attempt,
                result,
            }
        });
    }

    fn probe_ended(
        &mut self,
        probe: Result<Probe, tokio::task::JoinError>,
    ) -> Result<(), HookError> {
        // Probes are not cancelled before the discovery ends, and do not panic.
        let Ok(Probe {
            socket,
            attempt,
            result,
        }) = probe
        else {
            return Ok(());
        };
        match result {
            Ok(info) => {
                let sidecar = from_info(socket.clone(), self.id(&socket), info)?;
                tracing::info!(sidecar = %sidecar, version = %sidecar.version, points = ?sidecar.points, "A hook sidecar is ready");
                self.sockets.insert(socket, State::Ready(sidecar));
            }
            Err(HookCallError::Failed {
                code: Code::Unimplemented,
                message,
            }) => {
                return Err(HookError::Unusable {
                    sidecar: self.id(&socket),
                    reason: UnusableReason::NoInfoService { message },
                });
            }
            // A restarted sidecar has a new socket; the old one may be gone.
            Err(_) if !socket.exists() => {
                self.sockets.remove(&socket);
            }
            Err(error) => {
                let reason = chain(&error);
                tracing::debug!(socket = %socket.display(), reason, "A hook sidecar does not answer yet");
                self.probe(socket.clone(), attempt.saturating_add(1));
                self.sockets.insert(socket, State::Probing(Some(reason)));
            }
        }
        Ok(())
    }

    fn id(&self, path: &Path) -> String {
        let below = path.strip_prefix(self.dir).unwrap_or(path);
        below.display().to_string()
    }

    /// The number of ready sidecars. All sockets of a sub-directory count as one.
    fn ready_count(&self) -> usize {
        let ready = self.sockets.iter().filter_map(|(socket, state)| {
            let parent = socket.parent().filter(|parent| *parent != self.dir);
            matches!(state, State::Ready(_)).then_some(parent.unwrap_or(socket))
        });
        ready.collect::<BTreeSet<_>>().len()
    }

    /// Logs which sidecars are missing. Otherwise a dead sidecar would show only at the deadline.
    fn report(&self, expected: usize, waited: Duration) {
        let (seconds, count) = (waited.as_secs(), self.ready_count());
        let (ready, not_ready) = self.by_readiness();
        let (ready, not_ready) = (list(&ready), list(&not_ready));
        tracing::warn!(
            seconds,
            expected,
            count,
            ready,
            not_ready,
            "Still waiting for hook sidecars"
        );
    }

    fn not_ready(&self, expected: usize) -> HookError {
        let (ready, not_ready) = self.by_readiness();
        HookError::NotReady {
            expected,
            count: self.ready_count(),
            ready,
            not_ready,
        }
    }

    /// The ready sidecars, and all other files with the reason why they are not ready, in natural
    /// order.
    fn by_readiness(&self) -> (Vec<String>, Vec<String>) {
        let mut ready = Vec::new();
        let mut not_ready: Vec<String> = self.others.iter().cloned().collect();
        for (socket, state) in &self.sockets {
            match state {
                State::Ready(sidecar) => ready.push(sidecar.to_string()),
                State::Probing(error) => {
                    let reason = error.as_deref().unwrap_or("no answer yet");
                    not_ready.push(format!("{} ({reason})", self.id(socket)));
                }
            }
        }
        if not_ready.is_empty() {
            let other = if ready.is_empty() { "" } else { "other " };
            not_ready.push(format!(
                "no {other}socket in or below {}",
                self.dir.display()
            ));
        }
        ready.sort_by(|a, b| natural_order(a, b));
        not_ready.sort_by(|a, b| natural_order(a, b));
        (ready, not_ready)
    }

    fn into_sidecars(self) -> Vec<Sidecar> {
        let mut sidecars: Vec<Sidecar> = Vec::new();
        for (socket, state) in self.sockets {
            match state {
                State::Ready(sidecar) => sidecars.push(sidecar),
                State::Probing(error) => {
                    let reason = error.as_deref().unwrap_or("no answer yet");
                    tracing::warn!(socket = %socket.display(), reason, "A socket in the hooks directory does not answer and is ignored");
                }
            }
        }
        sidecars.sort_by(|a, b| natural_order(&a.id, &b.id));
        sidecars
    }
}

/// Doubles `first` with every attempt, up to `longest`.
fn backoff((first, longest): (Duration, Duration), attempt: u32) -> Duration {
    first
        .saturating_mul(2_u32.saturating_pow(attempt))
        .min(longest)
}

/// Builds the sidecar from its answer to `Info`. `id` names its socket in messages.
///
/// # Errors
/// [`HookError::Unusable`] without a common protocol version.
fn from_info(socket: PathBuf, id: String, info: InfoResult) -> Result<Sidecar, HookError> {
    let name: String = if info.name.is_empty() {
        id.clone()
    } else {
        excerpt(&info.name, MAX_NAME_CHARS)
    };
    let Some(version) = Version::newest_common(&info.versions) else {
        return Err(HookError::Unusable {
            sidecar: format!("{name:?} ({id})"),
            reason: UnusableReason::Versions {
                offered: info
                    .versions
                    .iter()
                    .take(MAX_VERSIONS)
                    .map(|version| format!("{:?}", excerpt(version, MAX_NAME_CHARS)))
                    .collect(),
            },
        });
    };
    let points = subscriptions(&name, version, &info.hook_points);
    Ok(Sidecar {
        name,
        id,
        socket,
        version,
        points,
    })
}

/// The hook points of a sidecar that `version` has, each with its highest priority.
fn subscriptions(
    sidecar: &str,
    version: Version,
    subscriptions: &[Subscription],
) -> Vec<(HookPoint, i32)> {
    let mut points: Vec<(HookPoint, i32)> = Vec::new();
    for Subscription { name, priority } in subscriptions.iter().take(MAX_SUBSCRIPTIONS) {
        let Some(point) = HookPoint::from_name(name).filter(|point| point.since() <= version)
        else {
            tracing::warn!(sidecar, %version, point = excerpt(name, MAX_NAME_CHARS), "A hook sidecar subscribes to a hook point that its protocol version does not have");
            continue;
        };
        match points.iter_mut().find(|(known, _)| *known == point) {
            Some((_, highest)) => *highest = (*highest).max(*priority),
            None => points.push((point, *priority)),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_that_changes_all_the_time_is_read_at_intervals() {
        let dir = tempfile::tempdir().unwrap();
        let watch = DirWatch::new();
        watch.add(dir.path()).unwrap();
        fs::write(dir.path().join("one"), "").unwrap();
        let pause_ends = os::time::deadline(SCAN_PAUSE);
        changed(&watch, Some(pause_ends)).await;
        assert!(Instant::now() >= pause_ends);
    }

    #[test]
    fn what_is_kept_of_an_answer_of_info_is_bounded() {
        let subscription = |name: String| Subscription { name, priority: 1 };
        let long = "n".repeat(10_000);
        let mut info = InfoResult {
            name: long.clone(),
            versions: vec!["v1alpha3".to_owned()],
            hook_points: vec![subscription(long.clone()); 100],
        };
        info.hook_points
            .push(subscription("OnDefineDomain".to_owned()));
        let of = |info| from_info(PathBuf::new(), "id".to_owned(), info);
        let sidecar = of(info.clone()).unwrap();
        assert_eq!(sidecar.name.chars().count(), MAX_NAME_CHARS + 1);
        assert_eq!(sidecar.points, [], "those after the first 32 do not count");

        info.versions = vec![long; 100];
        let error = chain(&of(info).unwrap_err());
        assert!(error.len() < 6_000, "{} bytes", error.len());
    }
}
