//! Watching directories from tokio tasks.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::POLL_INTERVAL;
use super::shared::{Interest, Shared};

/// The first pause where a directory is polled; each one is twice as long as the one before, up to
/// [`POLL_INTERVAL`].
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Wakes up when something appears, goes, is renamed or closed after writing in one of the watched
/// directories.
///
/// Where a directory cannot be watched, it wakes up from time to time.
#[derive(Debug)]
pub struct DirWatch {
    notify: Arc<Notify>,
    shared: Option<Arc<Shared>>,
    /// Some directory is not watched.
    polls: AtomicBool,
    polled: AtomicU32,
}

impl DirWatch {
    /// A watch on nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Shared::get().ok())
    }

    fn with(shared: Option<Arc<Shared>>) -> Self {
        Self {
            notify: Arc::default(),
            shared,
            polls: AtomicBool::new(false),
            polled: AtomicU32::new(0),
        }
    }

    /// Watches one more directory; one that is watched already is not watched twice.
    ///
    /// # Errors
    /// If it is not there.
    pub fn add(&self, directory: &Path) -> io::Result<()> {
        self.watch(directory, Interest::Files)
    }

    /// As [`Self::add`], and wakes up at each write to a file there too.
    ///
    /// # Errors
    /// If it is not there.
    pub fn add_with_writes(&self, directory: &Path) -> io::Result<()> {
        self.watch(directory, Interest::Writes)
    }

    fn watch(&self, directory: &Path, interest: Interest) -> io::Result<()> {
        let watched = match &self.shared {
            Some(shared) => shared.add(directory, interest, &self.notify),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        };
        if watched.is_ok() {
            return Ok(());
        }
        // Whatever the kernel lacks, the directory can still be polled if it is there.
        if !std::fs::metadata(directory)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        self.polls.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether some directory cannot be watched and is polled, so that [`Self::changed`] also
    /// returns without a change.
    #[must_use]
    pub fn polls(&self) -> bool {
        self.polls.load(Ordering::Relaxed)
    }

    /// Waits for the next change; several at once count as one. To be called after a check of what
    /// is waited for: what has changed since the directory was added, or since the last call,
    /// counts.
    pub async fn changed(&self) {
        tokio::select! {
            () = self.notify.notified() => {}
            () = self.next_poll(), if self.polls() => {}
        }
    }

    async fn next_poll(&self) {
        let polled = self.polled.load(Ordering::Relaxed);
        sleep(pause(polled)).await;
        self.polled
            .store(polled.saturating_add(1), Ordering::Relaxed);
    }
}

/// The pause before the next poll, after so many.
fn pause(polled: u32) -> Duration {
    FIRST_POLL_INTERVAL
        .saturating_mul(2_u32.saturating_pow(polled))
        .min(POLL_INTERVAL)
}

impl Default for DirWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for DirWatch {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.remove(&self.notify);
        }
    }
}

/// Waits until `path` exists. Directories on the way may be missing too.
pub async fn appears(path: &Path) {
    wait_for(path, DirWatch::new).await;
}

async fn wait_for(path: &Path, watch: impl Fn() -> DirWatch) {
    while !path.exists() {
        // The nearest ancestor that is there.
        let nearest = || path.ancestors().skip(1).find(|dir| dir.is_dir());
        let watched = nearest().unwrap_or(Path::new("/"));
        let watch = watch();
        if watch.add(watched).is_err() {
            // It went meanwhile.
            continue;
        }
        while !path.exists() && nearest() == Some(watched) {
            watch.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With inotify, and where the kernel has no instance left.
    const WAYS: [fn() -> DirWatch; 2] = [DirWatch::new, || DirWatch::with(None)];

    #[tokio::test]
    async fn a_file_that_is_there_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        appears(dir.path()).await;
    }

    #[tokio::test]
    async fn a_file_in_directories_that_are_still_missing_is_waited_for() {
        for watch in WAYS {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("a/b/c");
            let maker = file.clone();
            let work = tokio::spawn(async move {
                tokio::task::yield_now().await;
                std::fs::create_dir_all(maker.parent().unwrap()).unwrap();
                tokio::task::yield_now().await;
                std::fs::write(&maker, "").unwrap();
            });
            wait_for(&file, watch).await;
            work.await.unwrap();
            assert!(file.exists());
        }
    }

    #[test]
    fn a_directory_that_is_missing_cannot_be_watched() {
        for watch in WAYS {
            let error = watch().add(Path::new("/nonexistent/dir")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            let file = tempfile::NamedTempFile::new().unwrap();
            let error = watch().add(file.path()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        }
    }

    #[tokio::test]
    async fn a_change_before_the_wait_counts_and_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let watch = DirWatch::new();
        watch.add(dir.path()).unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        watch.changed().await;
        // Made and closed are two events, which may come one after the other.
        let quiet = tokio::time::timeout(Duration::from_millis(50), async {
            watch.changed().await;
            watch.changed().await;
        });
        assert!(quiet.await.is_err());
    }

    #[tokio::test]
    async fn writes_wake_only_those_who_watch_for_writes() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let mut file = std::fs::File::create(dir.path().join("log")).unwrap();
        let (names, writes) = (DirWatch::new(), DirWatch::new());
        names.add(dir.path()).unwrap();
        writes.add_with_writes(dir.path()).unwrap();
        file.write_all(b"line\n").unwrap();
        writes.changed().await;
        let quiet = tokio::time::timeout(Duration::from_millis(20), names.changed());
        assert!(quiet.await.is_err());
        drop(file);
        names.changed().await;
    }

    #[tokio::test]
    async fn a_directory_that_went_and_came_again_can_be_watched_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        let watch = DirWatch::new();
        for _ in 0..3 {
            std::fs::create_dir(&place).unwrap();
            watch.add(&place).unwrap();
            std::fs::write(place.join("a"), "").unwrap();
            watch.changed().await;
            std::fs::remove_dir_all(&place).unwrap();
            watch.changed().await;
        }
    }

    #[test]
    fn a_watch_that_is_dropped_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::get().unwrap();
        let watch = DirWatch::new();
        watch.add(dir.path()).unwrap();
        watch.add(dir.path()).unwrap();
        let other = DirWatch::new();
        other.add(dir.path()).unwrap();
        let notify = watch.notify.clone();
        assert_eq!(shared.watches_of(&notify), 1);
        drop(watch);
        assert_eq!(shared.watches_of(&notify), 0);
        assert_eq!(shared.watches_of(&other.notify), 1);
    }

    #[test]
    fn where_directories_are_polled_pauses_grow_to_a_second() {
        let pauses: Vec<u128> = (0..9).map(|polled| pause(polled).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(pause(u32::MAX), POLL_INTERVAL);
    }

    /// Once more where the kernel has no inotify instance left for this user.
    #[tokio::test]
    async fn all_of_this_works_when_the_inotify_instances_are_used_up() {
        const INSIDE: &str = "TEST_WITHOUT_INOTIFY";
        if std::env::var_os(INSIDE).is_some() {
            assert!(Shared::get().is_err());
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("a/b");
            let work = async {
                tokio::task::yield_now().await;
                std::fs::create_dir_all(&file).unwrap();
            };
            tokio::join!(appears(&file), work);
            return;
        }
        let script = "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$0\" --exact \"$1\"";
        let name =
            "inotify::dir_watch::tests::all_of_this_works_when_the_inotify_instances_are_used_up";
        let this = std::env::current_exe().unwrap();
        let output = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "sh", "-c", script])
            .arg(this)
            .arg(name)
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        if text.is_empty() {
            let reason = String::from_utf8_lossy(&output.stderr);
            return eprintln!("skipped: no user namespaces here: {reason}");
        }
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }
}
