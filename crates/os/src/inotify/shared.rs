//! The one inotify instance of this process, for all tasks of all runtimes. A thread reads it and
//! wakes those who watch the directory of an event.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::sync::Notify;

use super::{Instance, NAMES};
use crate::lock::lock;

/// The thread only reads and wakes.
const THREAD_STACK: usize = 64 * 1024;

static SHARED: Mutex<Option<Arc<Shared>>> = Mutex::new(None);

/// Which changes in a directory count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// Names that come and go, files that are closed after writing, and changed attributes.
    Files,
    /// Also each write.
    Writes,
}

/// Who watches a directory.
#[derive(Debug)]
struct Watcher {
    notify: Arc<Notify>,
    interest: Interest,
}

/// The instance, and who watches what, by the kernel's number of the watch.
#[derive(Debug)]
pub(super) struct Shared {
    instance: Instance,
    watchers: Mutex<HashMap<i32, Vec<Watcher>>>,
}

impl Shared {
    /// The process's instance. Made when it is first needed; where the kernel has none left, the
    /// next caller tries again.
    pub fn get() -> io::Result<Arc<Self>> {
        let mut shared = lock(&SHARED);
        if let Some(shared) = &*shared {
            return Ok(shared.clone());
        }
        let new = Arc::new(Self {
            instance: Instance::new(CreateFlags::empty())?,
            watchers: Mutex::default(),
        });
        let reader = new.clone();
        std::thread::Builder::new()
            .name("inotify".to_owned())
            .stack_size(THREAD_STACK)
            .spawn(move || reader.wake_for_ever())?;
        *shared = Some(new.clone());
        Ok(new)
    }

    /// Wakes `notify` at changes in `directory` from now on.
    pub fn add(
        &self,
        directory: &Path,
        interest: Interest,
        notify: &Arc<Notify>,
    ) -> io::Result<()> {
        let events = NAMES | WatchFlags::ATTRIB | WatchFlags::CLOSE_WRITE;
        let events = match interest {
            Interest::Files => events,
            Interest::Writes => events | WatchFlags::MODIFY,
        };
        // Held meanwhile, so that the thread finds the watcher of the first event.
        let mut watchers = self.watchers();
        let watch = self
            .instance
            .add(directory, events | WatchFlags::MASK_ADD)?;
        let of_directory = watchers.entry(watch).or_default();
        match of_directory
            .iter_mut()
            .find(|one| Arc::ptr_eq(&one.notify, notify))
        {
            Some(known) => known.interest = interest,
            None => of_directory.push(Watcher {
                notify: notify.clone(),
                interest,
            }),
        }
        Ok(())
    }

    /// `notify` is not woken any more.
    pub fn remove(&self, notify: &Arc<Notify>) {
        self.watchers().retain(|watch, of_directory| {
            of_directory.retain(|one| !Arc::ptr_eq(&one.notify, notify));
            if of_directory.is_empty() {
                self.instance.remove(*watch);
            }
            !of_directory.is_empty()
        });
    }

    #[cfg(test)]
    pub fn watches_of(&self, notify: &Arc<Notify>) -> usize {
        let watchers = self.watchers();
        let of_it = watchers.values().flatten();
        of_it.filter(|one| Arc::ptr_eq(&one.notify, notify)).count()
    }

    fn watchers(&self) -> MutexGuard<'_, HashMap<i32, Vec<Watcher>>> {
        lock(&self.watchers)
    }

    fn wake_for_ever(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.instance.0, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => self.wake(event.wd(), event.events()),
                Err(rustix::io::Errno::INTR) => {}
                // An inotify descriptor that is open can be read; if not, those who wait poll.
                Err(_) => return,
            }
        }
    }

    fn wake(&self, watch: i32, event: ReadFlags) {
        let mut watchers = self.watchers();
        // Events were lost, of unknown directories.
        if event.contains(ReadFlags::QUEUE_OVERFLOW) {
            let all = watchers.values().flatten();
            return all.for_each(|watcher| watcher.notify.notify_one());
        }
        let is_write = event == ReadFlags::MODIFY;
        for watcher in watchers.get(&watch).into_iter().flatten() {
            if !is_write || watcher.interest == Interest::Writes {
                watcher.notify.notify_one();
            }
        }
        // The directory is gone, and its watch with it.
        if event.contains(ReadFlags::IGNORED) {
            watchers.remove(&watch);
        }
    }
}
