//! Detects the first output and the login prompt on the serial console: two steps of the timeline.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::time::{sleep, timeout};

use crate::launcher::timeline::{StartStep, Timeline};
use api::pod_paths::PodPaths;
use os::inotify::{DirWatch, appears};

/// Printed by getty(8) before it waits for a name, without a newline.
const LOGIN_PROMPT: &[u8] = b"login:";
/// How long the log is watched. If a guest takes longer or has no getty on its serial console, its
/// agent shows that it is up.
const WATCH_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Limit of the searched console log.
const MAX_LOG_BYTES: usize = 1 << 20;
/// Delay between reads: a booting guest's output comes in hundreds of pieces.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// Follows the serial console's log of the VM with this UID, which has just started, in the
/// background and for a limited time.
pub(super) fn watch(root: &pod::Root, uid: &str, timeline: Arc<Timeline>) {
    let log = root.path(PodPaths::default().serial_log(uid));
    tokio::spawn(async move {
        // After a timeout the timeline shows the missing steps.
        let _ = timeout(WATCH_TIMEOUT, follow(&log, &timeline)).await;
    });
}

/// Follows the log to the login prompt, or until it is too long or unreadable.
async fn follow(log: &Path, timeline: &Arc<Timeline>) {
    let Some(directory) = log.parent() else {
        return;
    };
    appears(log).await;
    let watch = DirWatch::new();
    let Ok(mut console) = Console::open(log) else {
        return;
    };
    if watch.add_with_writes(directory).is_err() {
        return;
    }
    loop {
        match console.read() {
            Ok(read) if console.read_bytes < MAX_LOG_BYTES => {
                if console.read_bytes > 0 {
                    timeline.mark(StartStep::Console);
                }
                if console.asks_for_login {
                    return timeline.mark(StartStep::Login);
                }
                if !read {
                    watch.changed().await;
                    if console.read_bytes > 0 {
                        sleep(READ_INTERVAL).await;
                    }
                }
            }
            _ => return,
        }
    }
}

/// The log, read so far.
struct Console {
    file: File,
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer from the previous read.
    kept: usize,
    read_bytes: usize,
    asks_for_login: bool,
}

impl Console {
    /// Opens the log, which must be a regular file: a FIFO would block.
    fn open(log: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(log, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            file,
            buffer: vec![0; 8 * 1024],
            kept: 0,
            read_bytes: 0,
            asks_for_login: false,
        })
    }

    /// Reads once. Returns false at the end of the log.
    fn read(&mut self) -> io::Result<bool> {
        let free = self.buffer.get_mut(self.kept..).unwrap_or_default();
        let count = self.file.read(free)?;
        self.read_bytes = self.read_bytes.saturating_add(count);
        let filled = self.kept + count;
        let seen = self.buffer.get(..filled).unwrap_or_default();
        self.asks_for_login |= seen
            .windows(LOGIN_PROMPT.len())
            .any(|part| part == LOGIN_PROMPT);
        // Two reads may each return a part of the prompt.
        self.kept = filled.min(LOGIN_PROMPT.len() - 1);
        self.buffer.copy_within(filled - self.kept..filled, 0);
        Ok(count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(timeline: &Timeline) -> Vec<String> {
        let steps = timeline.to_message().steps;
        steps.into_iter().map(|step| step.name).collect()
    }

    #[tokio::test]
    async fn the_console_speaks_and_then_asks_for_a_login() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("virt-serial0-log");
        let timeline = Timeline::begin();
        let (path, follower) = (log.clone(), timeline.clone());
        let following = tokio::spawn(async move { follow(&path, &follower).await });
        let mut file = File::create(&log).unwrap();
        file.write_all(&[b'.'; 20_000]).unwrap();
        while names(&timeline) != ["console"] {
            tokio::task::yield_now().await;
        }
        file.write_all(b"Debian GNU/Linux 13 vm ttyS0\n\nvm log")
            .unwrap();
        tokio::task::yield_now().await;
        file.write_all(b"in: ").unwrap();
        following.await.unwrap();
        assert_eq!(names(&timeline), ["console", "login"]);
    }

    #[tokio::test]
    async fn a_log_that_is_too_long_is_not_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let text = [vec![b'.'; MAX_LOG_BYTES], LOGIN_PROMPT.to_vec()].concat();
        std::fs::write(&log, text).unwrap();
        let timeline = Timeline::begin();
        follow(&log, &timeline).await;
        assert_eq!(names(&timeline), ["console"]);
    }

    #[tokio::test]
    async fn a_fifo_is_not_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        rustix::fs::mkfifoat(rustix::fs::CWD, &log, Mode::from_raw_mode(0o600)).unwrap();
        let timeline = Timeline::begin();
        follow(&log, &timeline).await;
        assert!(names(&timeline).is_empty());
    }
}
