//! Reports of the supervisor at work.

use std::time::Instant;

use super::control::{Phase, Update, Updates};
use crate::reports::events::LauncherEvent;

/// Reports the VM's phases, with the time since the start.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    updates: Updates,
}

impl Progress {
    /// Starts the clock.
    pub fn new(updates: Updates) -> Self {
        Self {
            started: Instant::now(),
            updates,
        }
    }

    pub fn phase(&self, phase: Phase) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.send(Update::Phase { phase, seconds });
    }

    pub fn note(&self, text: &str) {
        self.send(Update::Note(text.to_owned()));
    }

    /// Whether the guest has a console to connect to.
    pub fn console(&self, is_there: bool) {
        self.send(Update::Console(is_there));
    }

    /// An event of the launcher.
    pub fn event(&self, event: &LauncherEvent) {
        self.send(Update::Event {
            event: event.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
        });
    }

    fn send(&self, update: Update) {
        self.updates.send(update);
    }
}
