//! Finding the sidecars of a pod. Each is looked for by events and asked in parallel:
//!
//! ```text
//!             socket appears            Info answers
//!  directory ───────────────► probing ───────────────► there      until as many are there
//!                              ▲    │ not serving yet              as were asked for
//!                              └────┘ (again, a little later)
//! ```
//!
//! A sub-directory is one sidecar, whose container has it mounted as `/var/run/kubevirt-hooks`;
//! a socket directly in the directory is one too, as older releases lay them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::call;
use super::error::{CallError, HookError};
use super::sidecar::{Point, Sidecar, Version, natural};
use api::proto::hooks::info::InfoResult;
use os::fs_events::DirWatch;

/// First and longest time between two attempts at a socket that does not serve yet.
const AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(300));
/// First and longest time that `Info` has; one that hangs may be one that starts slowly.
const INFO: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// The directory is read again after this time even without an event: some file systems give none.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Longest name that is taken over from a sidecar.
const NAME: usize = 128;

/// Waits for `count` sidecars below `dir`.
///
/// # Errors
/// When they are not all there at the deadline, or one can never be used.
pub async fn collect(
    dir: &Path,
    count: usize,
    deadline: Instant,
) -> Result<Vec<Sidecar>, HookError> {
    let mut search = Search::new(dir);
    while search.sidecars() < count {
        search.look()?;
        tokio::select! {
            biased;
            Some(tried) = search.probes.join_next() => search.note(tried)?,
            () = changed(search.watch.as_ref()) => {}
            () = sleep_until(deadline) => return Err(search.missing(count)),
        }
    }
    Ok(search.done())
}

/// Ends at a change below the directory, or when it is time to look without one.
async fn changed(watch: Option<&DirWatch>) {
    let tick = sleep(LOOK_AGAIN);
    match watch {
        // A watch that fails is one that says nothing: the tick remains.
        Some(watch) => tokio::select! { Ok(()) = watch.changed() => {} () = tick => {} },
        None => tick.await,
    }
}

/// What is known of a socket.
#[derive(Debug)]
enum Seen {
    /// It does not answer yet; why, once that is known.
    Probing(Option<String>),
    There(Sidecar),
}

/// One attempt at a socket.
#[derive(Debug)]
struct Tried {
    socket: PathBuf,
    attempt: u32,
    outcome: Result<InfoResult, CallError>,
}

struct Search<'a> {
    dir: &'a Path,
    watch: Option<DirWatch>,
    sockets: BTreeMap<PathBuf, Seen>,
    /// Entries that are no sockets, and directories without one.
    others: BTreeSet<String>,
    probes: JoinSet<Tried>,
}

impl<'a> Search<'a> {
    fn new(dir: &'a Path) -> Self {
        let watch = DirWatch::new()
            .inspect_err(|error| tracing::warn!(reason = %error, "no inotify: hook sidecars are looked for every second"))
            .ok();
        Self {
            dir,
            watch,
            sockets: BTreeMap::new(),
            others: BTreeSet::new(),
            probes: JoinSet::new(),
        }
    }

    /// Starts a probe of every socket that is new.
    fn look(&mut self) -> Result<(), HookError> {
        self.others.clear();
        let failed = |source| HookError::Directory {
            dir: self.dir.to_path_buf(),
            source,
        };
        // Watched before it is read, so that nothing is missed in between.
        let entries = match self.list(self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.watch_above();
                return Ok(());
            }
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            if !entry.is_dir() {
                self.found(entry);
                continue;
            }
            // It may be gone again, or not for us to read: the rest goes on.
            match self.list(&entry) {
                Ok(inside) if inside.is_empty() => drop(
                    self.others
                        .insert(format!("{} (no socket in it)", self.place(&entry))),
                ),
                Ok(inside) => inside.into_iter().for_each(|file| self.found(file)),
                Err(error) => drop(
                    self.others
                        .insert(format!("{} ({error})", self.place(&entry))),
                ),
            }
        }
        Ok(())
    }

    /// Watches and reads a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        if let Some(watch) = &self.watch {
            watch.add(dir)?;
        }
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    }

    /// The directory itself is still missing: waits for a change of what will hold it.
    fn watch_above(&self) {
        let above = self
            .dir
            .ancestors()
            .skip(1)
            .find(|ancestor| ancestor.is_dir());
        if let (Some(watch), Some(above)) = (&self.watch, above) {
            // Where that fails too there is still the tick.
            let _ = watch.add(above);
        }
    }

    fn found(&mut self, file: PathBuf) {
        if self.sockets.contains_key(&file) {
            return;
        }
        match fs::metadata(&file) {
            Ok(meta) if meta.file_type().is_socket() => {
                self.probe(file.clone(), 0);
                self.sockets.insert(file, Seen::Probing(None));
            }
            Ok(_) => drop(
                self.others
                    .insert(format!("{} (not a socket)", self.place(&file))),
            ),
            Err(error) => drop(
                self.others
                    .insert(format!("{} ({error})", self.place(&file))),
            ),
        }
    }

    fn probe(&mut self, socket: PathBuf, attempt: u32) {
        let doubled = |(first, most): (Duration, Duration), times: u32| {
            (first * (1 << times.min(10))).min(most)
        };
        self.probes.spawn(async move {
            if let Some(before) = attempt.checked_sub(1) {
                sleep(doubled(AGAIN, before)).await;
            }
            let outcome = call::info(&socket, os::time::deadline(doubled(INFO, attempt))).await;
            Tried {
                socket,
                attempt,
                outcome,
            }
        });
    }

    /// Takes note of an attempt; one that may yet succeed is made again.
    fn note(&mut self, tried: Result<Tried, tokio::task::JoinError>) -> Result<(), HookError> {
        // A probe is never cancelled while it is waited for, and does not panic.
        let Ok(Tried {
            socket,
            attempt,
            outcome,
        }) = tried
        else {
            return Ok(());
        };
        match outcome {
            Ok(info) => {
                let sidecar = identified(socket.clone(), self.place(&socket), info)?;
                tracing::info!(sidecar = %sidecar, version = %sidecar.version, points = ?sidecar.points, "a hook sidecar is there");
                self.sockets.insert(socket, Seen::There(sidecar));
            }
            Err(CallError::Failed { code, message }) if code == "Unimplemented" => {
                let reason = format!("it does not serve kubevirt.hooks.info.Info: {message}");
                return Err(HookError::Unusable {
                    sidecar: self.place(&socket),
                    reason,
                });
            }
            // A sidecar that was started again has another socket; the old one may be gone.
            Err(_) if !socket.exists() => drop(self.sockets.remove(&socket)),
            Err(error) => {
                tracing::debug!(socket = %socket.display(), reason = %error, "a hook sidecar does not answer yet");
                self.probe(socket.clone(), attempt.saturating_add(1));
                self.sockets
                    .insert(socket, Seen::Probing(Some(error.to_string())));
            }
        }
        Ok(())
    }

    /// The path below the directory of the sockets.
    fn place(&self, path: &Path) -> String {
        path.strip_prefix(self.dir)
            .unwrap_or(path)
            .display()
            .to_string()
    }

    /// How many sidecars are there: sub-directories, and sockets directly in the directory.
    fn sidecars(&self) -> usize {
        let there = self
            .sockets
            .iter()
            .filter(|(_, seen)| matches!(seen, Seen::There(_)));
        let container = |socket: &'_ PathBuf| match socket.parent() {
            Some(parent) if parent != self.dir => parent.to_path_buf(),
            _ => socket.clone(),
        };
        there
            .map(|(socket, _)| container(socket))
            .collect::<BTreeSet<_>>()
            .len()
    }

    fn missing(&self, expected: usize) -> HookError {
        let mut there = Vec::new();
        let mut missing: Vec<String> = self.others.iter().cloned().collect();
        for (socket, seen) in &self.sockets {
            match seen {
                Seen::There(sidecar) => there.push(sidecar.to_string()),
                Seen::Probing(why) => missing.push(format!(
                    "{} ({})",
                    self.place(socket),
                    why.as_deref().unwrap_or("no answer yet")
                )),
            }
        }
        if missing.is_empty() {
            let other = if there.is_empty() { "" } else { "other " };
            missing.push(format!(
                "no {other}socket in or below {}",
                self.dir.display()
            ));
        }
        there.sort_by(|a, b| natural(a, b));
        missing.sort_by(|a, b| natural(a, b));
        HookError::Missing {
            expected,
            came: self.sidecars(),
            there,
            missing,
        }
    }

    fn done(self) -> Vec<Sidecar> {
        let mut sidecars: Vec<Sidecar> = Vec::new();
        for (socket, seen) in self.sockets {
            match seen {
                Seen::There(sidecar) => sidecars.push(sidecar),
                Seen::Probing(why) => {
                    tracing::warn!(socket = %socket.display(), reason = ?why, "a socket that no hook sidecar serves is left out")
                }
            }
        }
        sidecars.sort_by(|a, b| natural(&a.place, &b.place));
        sidecars
    }
}

/// The sidecar that gave this answer; `place` is what its socket is called in messages.
///
/// # Errors
/// When it speaks no version of ours.
pub fn identified(socket: PathBuf, place: String, info: InfoResult) -> Result<Sidecar, HookError> {
    let name: String = if info.name.is_empty() {
        place.clone()
    } else {
        info.name.chars().take(NAME).collect()
    };
    let Some(version) = Version::common(&info.versions) else {
        let ours: Vec<_> = Version::ALL.iter().map(|version| version.name()).collect();
        let reason = format!(
            "it speaks {:?}, this launcher speaks {ours:?}",
            info.versions
        );
        return Err(HookError::Unusable {
            sidecar: format!("{name:?} ({place})"),
            reason,
        });
    };
    let mut points: Vec<(Point, i32)> = Vec::new();
    for wanted in info.hook_points {
        match Point::named(&wanted.name) {
            Some(point) if point.since() <= version => {
                match points.iter_mut().find(|(at, _)| *at == point) {
                    Some((_, priority)) => *priority = wanted.priority.max(*priority),
                    None => points.push((point, wanted.priority)),
                }
            }
            _ => {
                tracing::warn!(sidecar = name, %version, point = wanted.name, "a hook point that this version does not have: not called")
            }
        }
    }
    Ok(Sidecar {
        name,
        place,
        socket,
        version,
        points,
    })
}

/// What is said of a socket whose `Info` failed for good.
pub fn unidentified(socket: &Path, reason: &CallError) -> HookError {
    HookError::Unusable {
        sidecar: socket.display().to_string(),
        reason: format!("Info: {reason}"),
    }
}
