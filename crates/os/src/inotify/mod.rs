//! inotify(7): waiting for changes in directories.
//!
//! A user has few inotify instances (128 by default), and all pods of a node run as the same user.
//! So a process has one instance at most, and where the kernel has none left, or a directory must
//! not be watched, it is polled instead. For the same reason the order is always: check what is
//! waited for, then watch, check again, wait.
//!
//! [`DirWatch`] and [`appears`] are for tokio, [`DirChanges`] is for programs without a runtime
//! ([`crate::poll`]).

mod changes;
mod dir_watch;
mod shared;

use std::path::Path;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Result;

pub use changes::DirChanges;
pub use dir_watch::{DirWatch, appears};

/// How often a directory is polled that cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Names that come and go, and the end of the directory itself.
const NAMES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

/// An inotify instance.
#[derive(Debug)]
struct Instance(OwnedFd);

impl Instance {
    fn new(flags: CreateFlags) -> Result<Self> {
        Ok(Self(inotify::init(flags | CreateFlags::CLOEXEC)?))
    }

    /// Watches a directory; one that is watched already keeps its number.
    fn add(&self, directory: &Path, events: WatchFlags) -> Result<i32> {
        inotify::add_watch(&self.0, directory, events | WatchFlags::ONLYDIR)
    }

    /// Ends a watch. The kernel has ended the watch of a directory that is gone.
    fn remove(&self, watch: i32) {
        let _ = inotify::remove_watch(&self.0, watch);
    }
}
