//! What the supervisor reports while it works.

use std::time::Instant;

use serde_json::json;

use super::control::{Phase, Update, Updates};
use crate::json::text_at;
use crate::reports::events::LauncherEvent;

/// Reports which phase the VM has reached, and after how long.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    updates: Updates,
}

impl Progress {
    /// Starts the clock.
    #[must_use]
    pub fn new(updates: Updates) -> Self {
        Self {
            started: Instant::now(),
            updates,
        }
    }

    /// A phase has been reached.
    pub fn phase(&self, phase: Phase) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.send(Update::Phase { phase, seconds });
    }

    /// A remark.
    pub fn note(&self, text: &str) {
        self.send(Update::Note(text.to_owned()));
    }

    /// Whether the guest has a console that can be connected to.
    pub fn console(&self, is_there: bool) {
        self.send(Update::Console(is_there));
    }

    /// An event: domain events are for programs only.
    pub fn event(&self, event: &LauncherEvent) {
        self.send(match event {
            LauncherEvent::Domain { kind, .. } => Update::Event(
                json!({"eventType": kind, "status": event.state(), "seconds": self.started.elapsed().as_secs_f64()}),
            ),
            LauncherEvent::Kubernetes(event) => Update::Note(text_at(event, "/message").to_owned()),
        });
    }

    fn send(&self, update: Update) {
        self.updates.send(update);
    }
}
