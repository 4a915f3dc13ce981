//! The sidecar or plugin that the launcher waits for. A sync with slow hooks fails with its name at
//! `CHANGE_TIMEOUT`, for virt-handler's event, and goes on (`Syncs::sync` in src/launcher/sync).

use std::fmt::Display;
use std::sync::{Arc, Mutex};

use os::lock::lock;

/// The call of a sidecar or plugin that has not been answered yet.
#[derive(Debug, Clone, Default)]
pub struct CurrentCall(Arc<Mutex<Option<String>>>);

/// The call ends when this is dropped.
pub(crate) struct Waiting(CurrentCall);

impl CurrentCall {
    pub(crate) fn begin(&self, whom: impl Display) -> Waiting {
        *lock(&self.0) = Some(whom.to_string());
        Waiting(self.clone())
    }

    /// The sidecar or plugin that has been called; `None` between two calls.
    #[must_use]
    pub fn whom(&self) -> Option<String> {
        lock(&self.0).clone()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *lock(&self.0.0) = None;
    }
}
