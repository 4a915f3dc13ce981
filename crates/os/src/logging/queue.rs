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

impl State {
    fn add(&mut self, line: String) {
        self.bytes = self.bytes.saturating_add(line.len());
        self.waiting.push_back(line);
    }

    fn add_after_lost(&mut self, line: String) {
        self.tell_lost();
        self.add(line);
    }

    fn tell_lost(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let text = format!("{lost} lines are missing here: nobody has read the log");
            let line = LogLine::now("warning").with("msg", &text);
            self.add(line.render(super::component()));
        }
    }
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
            state.add_after_lost(line);
        }
        self.changed.notify_all();
    }

    /// Adds one of the last lines of a process, even beyond [`MAX_BYTES`].
    pub fn push_in_any_case(&self, line: String) {
        lock(&self.state).add_after_lost(line);
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
            if state.waiting.is_empty() {
                state.tell_lost();
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up_and_says_later_what_is_missing() {
        let (reader, writer) = io::pipe().unwrap();
        let queue = Queue::start(writer).unwrap();
        let line = |number: usize| format!("{number} {}\n", "x".repeat(1 << 10));
        let pushed = 2 * MAX_BYTES / line(0).len();
        for number in 0..pushed {
            queue.push(line(number));
        }
        assert!(!queue.flush(Duration::from_millis(1)));
        // Numbered lines, and where some are missing how many.
        let (mut next, mut lost) = (0, 0);
        let mut lines = BufReader::new(reader);
        while next < pushed {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            match line.split_once("\"msg\":\"") {
                Some((_, notice)) => {
                    let missing: usize = notice.split(' ').next().unwrap().parse().unwrap();
                    (next, lost) = (next + missing, lost + missing);
                }
                None => {
                    assert!(line.starts_with(&format!("{next} x")), "{line}");
                    next += 1;
                }
            }
        }
        assert!(lost > pushed / 3, "{lost}");
        // Once it is read, each line arrives.
        queue.push("after\n".to_owned());
        assert!(queue.flush(Duration::from_secs(60)));
        let mut after = String::new();
        lines.read_line(&mut after).unwrap();
        assert_eq!(after, "after\n");
    }

    #[test]
    fn the_last_line_comes_after_the_word_on_those_that_are_missing() {
        // No thread writes, so the queue stays full.
        let queue = Queue::default();
        for _ in 0..2 * MAX_BYTES / 1000 {
            queue.push(format!("{}\n", "x".repeat(999)));
        }
        queue.push_in_any_case("the end\n".to_owned());
        let state = lock(&queue.state);
        let mut from_last = state.waiting.iter().rev();
        assert_eq!(from_last.next().unwrap(), "the end\n");
        let before_last = from_last.next().unwrap();
        assert!(
            before_last.contains("lines are missing here"),
            "{before_last}"
        );
    }
}
