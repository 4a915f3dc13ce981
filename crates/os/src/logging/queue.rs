//! A thread of its own writes the log, so that a log that nobody reads (a full pipe, a file system
//! that hangs) stops nothing else.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::LogLine;
use crate::lock::lock;

/// Limit of the lines that wait, in bytes: some thousand. Further ones are counted only.
const MAX_BYTES: usize = 1 << 20;
const THREAD_STACK: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<String>,
    bytes: usize,
    lost: u64,
    is_writing: bool,
}

impl Queue {
    /// A queue whose lines a thread writes to `out`.
    ///
    /// # Errors
    /// There is no further thread.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self::default());
        let reader = queue.clone();
        let thread = thread::Builder::new().name("log".to_owned());
        thread
            .stack_size(THREAD_STACK)
            .spawn(move || reader.write_to(out))?;
        Ok(queue)
    }

    /// Returns at once.
    pub fn push(&self, line: String) {
        let mut state = lock(&self.state);
        if state.bytes > 0 && state.bytes.saturating_add(line.len()) > MAX_BYTES {
            state.lost = state.lost.saturating_add(1);
        } else {
            state.bytes = state.bytes.saturating_add(line.len());
            state.waiting.push_back(line);
        }
        self.changed.notify_all();
    }

    /// Waits up to `limit` and returns whether all lines are written.
    pub fn flush(&self, limit: Duration) -> bool {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, limit, is_busy);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        !waited.timed_out()
    }

    fn write_to(&self, mut out: impl Write) {
        loop {
            let is_empty = |state: &mut State| state.waiting.is_empty();
            let state = self.changed.wait_while(lock(&self.state), is_empty);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            let Some(line) = state.waiting.pop_front() else {
                continue;
            };
            state.is_writing = true;
            drop(state);
            // That the log is closed is nothing that could be reported.
            let _ = out.write_all(line.as_bytes());
            let mut state = lock(&self.state);
            state.is_writing = false;
            state.bytes = state.bytes.saturating_sub(line.len());
            if state.waiting.is_empty() && state.lost > 0 {
                let lost = std::mem::take(&mut state.lost);
                let text = format!("{lost} lines are missing here: nobody has read the log");
                let line = LogLine::now("warning").with("msg", &text);
                state.waiting.push_back(line.render(super::component()));
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up_and_says_later_what_is_missing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::start(writer).unwrap();
        let line = |number: usize| format!("{number} {}\n", "x".repeat(1 << 10));
        let pushed = 2 * MAX_BYTES / line(0).len();
        for number in 0..pushed {
            queue.push(line(number));
        }
        assert!(!queue.flush(Duration::from_millis(1)));
        let mut text = Vec::new();
        while !String::from_utf8_lossy(&text).contains("are missing here") {
            let mut part = [0; 1 << 16];
            let length = reader.read(&mut part).unwrap();
            text.extend_from_slice(&part[..length]);
        }
        let text = String::from_utf8(text).unwrap();
        let (last, lines): (&str, Vec<_>) = {
            let mut lines: Vec<_> = text.lines().collect();
            (lines.pop().unwrap(), lines)
        };
        for (number, line) in lines.iter().enumerate() {
            assert!(line.starts_with(&format!("{number} x")), "{line}");
        }
        let lost = pushed - lines.len();
        assert!(lost > pushed / 3, "{lost}");
        assert!(
            last.contains(&format!("{lost} lines are missing here")),
            "{last}"
        );
        // Once it is read, each line arrives.
        queue.push("after\n".to_owned());
        assert!(queue.flush(Duration::from_secs(60)));
        let mut after = [0; 6];
        reader.read_exact(&mut after).unwrap();
        assert_eq!(&after, b"after\n");
    }
}
