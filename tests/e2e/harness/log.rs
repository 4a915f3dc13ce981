//! What the launchers of a pod have written to their log.

use std::io::{BufRead, BufReader};
use std::process::ChildStderr;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;

/// The lines of all launchers, in their order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    lines: Vec<String>,
    /// Each launcher's, with the beginning of a line that has not ended yet.
    pipes: Vec<(BufReader<ChildStderr>, Vec<u8>)>,
}

impl Log {
    /// Reads a launcher's log from now on, so that the launcher never waits for a reader.
    pub fn follow(&self, stderr: ChildStderr) {
        ioctl_fionbio(&stderr, true).unwrap();
        // Not for the programs of other pods.
        let end = rustix::io::fcntl_dupfd_cloexec(&stderr, 0).unwrap();
        self.0
            .lock()
            .unwrap()
            .pipes
            .push((BufReader::new(stderr), Vec::new()));
        let log = self.clone();
        std::thread::spawn(move || {
            let mut more = [PollFd::new(&end, PollFlags::IN)];
            while poll(&mut more, None).is_ok() && more[0].revents().contains(PollFlags::IN) {
                drop(log.read());
            }
        });
    }

    /// All that is written: also what the thread that follows has not seen yet.
    pub fn lines(&self) -> Vec<String> {
        self.read().lines.clone()
    }

    pub fn count(&self, text: &str) -> usize {
        let content = self.read();
        content
            .lines
            .iter()
            .filter(|line| line.contains(text))
            .count()
    }

    fn read(&self) -> MutexGuard<'_, Content> {
        let mut content = self.0.lock().unwrap();
        let Content { lines, pipes } = &mut *content;
        for (pipe, line) in pipes {
            while pipe.read_until(b'\n', line).is_ok_and(|read| read > 0) {
                lines.push(String::from_utf8_lossy(line).trim_end().to_owned());
                line.clear();
            }
        }
        content
    }
}
