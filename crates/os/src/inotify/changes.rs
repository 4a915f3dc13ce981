//! Changes in a few directories, for programs without a runtime: their containers get next to no
//! CPU.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, WatchFlags};

use super::{Instance, NAMES, POLL_INTERVAL};

/// The inotify instance of a process without a runtime, and the directories that it watches.
#[derive(Debug)]
pub struct DirChanges {
    instance: Option<Instance>,
    watches: Vec<i32>,
    complete: bool,
}

impl DirChanges {
    /// Watches no directory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Instance::new(CreateFlags::NONBLOCK).ok())
    }

    fn with(instance: Option<Instance>) -> Self {
        Self {
            instance,
            watches: Vec::new(),
            complete: false,
        }
    }

    /// Forgets what has changed until now, and from now on watches `directories` and no others:
    /// names that come and go there, and the events that stand beside each. To be followed by a
    /// check of what is waited for, and that by a wait. The same directories again cost little.
    pub fn watch_only(&mut self, directories: &[(&Path, WatchFlags)]) {
        let Some(instance) = &self.instance else {
            return;
        };
        forget(instance);
        let add = |(directory, events): &(&Path, WatchFlags)| {
            instance.add(directory, NAMES | *events).ok()
        };
        let watches: Vec<i32> = directories.iter().filter_map(add).collect();
        for before in &self.watches {
            if !watches.contains(before) {
                instance.remove(*before);
            }
        }
        self.complete = watches.len() == directories.len();
        self.watches = watches;
    }

    /// How long to wait at most before the next check: without a limit, unless some directory is
    /// not watched.
    #[must_use]
    pub fn poll_interval(&self) -> Option<Duration> {
        (!self.complete).then_some(POLL_INTERVAL)
    }

    /// Readable at a change.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.instance.as_ref().map(|instance| instance.0.as_fd())
    }
}

fn forget(instance: &Instance) {
    let mut buffer = [0_u8; 4096];
    while matches!(rustix::io::read(&instance.0, &mut buffer), Ok(1..)) {}
}

impl Default for DirChanges {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(changes: &DirChanges) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let fd = changes.as_fd().unwrap();
        let at_once = Timespec::default();
        poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&at_once),
        )
        .unwrap()
            > 0
    }

    fn plain(path: &Path) -> [(&Path, WatchFlags); 1] {
        [(path, WatchFlags::empty())]
    }

    #[test]
    fn what_comes_and_goes_in_the_directory_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let mut changes = DirChanges::new();
        changes.watch_only(&plain(dir.path()));
        assert!(changes.poll_interval().is_none() && !is_readable(&changes));
        std::fs::write(dir.path().join("a"), "").unwrap();
        assert!(is_readable(&changes));
        changes.watch_only(&plain(dir.path()));
        assert!(!is_readable(&changes), "forgotten");
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert!(is_readable(&changes));
    }

    #[test]
    fn a_directory_that_took_the_place_of_another_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        let mut changes = DirChanges::new();
        for _ in 0..3 {
            std::fs::create_dir(&place).unwrap();
            changes.watch_only(&plain(&place));
            std::fs::rename(&place, dir.path().join("away")).unwrap();
            std::fs::create_dir(&place).unwrap();
            changes.watch_only(&plain(&place));
            std::fs::write(place.join("a"), "").unwrap();
            assert!(is_readable(&changes));
            std::fs::remove_dir_all(&place).unwrap();
            std::fs::remove_dir_all(dir.path().join("away")).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_watched_is_polled() {
        let mut changes = DirChanges::with(None);
        changes.watch_only(&plain(Path::new("/")));
        assert_eq!(changes.poll_interval(), Some(POLL_INTERVAL));
        let mut changes = DirChanges::new();
        changes.watch_only(&plain(Path::new("/nonexistent")));
        assert_eq!(changes.poll_interval(), Some(POLL_INTERVAL));
    }
}
