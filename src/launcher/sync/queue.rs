//! Queues syncs, which run one after the other.
//!
//! ```text
//!   request A ──► runs ─────────────────► answer A
//!   request B ───────► waits ─┐
//!   request C ──────────► joins, newer ──► runs with C's VMI ──► answer B and C
//! ```

use std::sync::{Arc, Mutex};

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::oneshot;

use crate::launcher::error::LauncherError;
use crate::launcher::sync_request::SyncRequest;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::proto::inspect::v1::LastSyncResponse;
use os::lock::lock;

/// A sync's result, shared by all requests that joined it.
pub(super) type Outcome = Result<(), Arc<LauncherError>>;

/// The next sync and its waiting requests.
#[derive(Default)]
pub(in crate::launcher) struct SyncQueue(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    running: bool,
    next: Option<SyncRequest>,
    waiting: Vec<oneshot::Sender<Outcome>>,
    /// The VMI of the last sync, as received.
    vmi_json: Bytes,
    /// The options of the last sync.
    options: Arc<VirtualMachineOptions>,
}

impl SyncQueue {
    /// Adds a request, which replaces a waiting one. Returns the receiver of its result, and
    /// whether the caller has to run the queue.
    pub fn push(&self, request: SyncRequest) -> (oneshot::Receiver<Outcome>, bool) {
        let (answer, outcome) = oneshot::channel();
        let mut slot = lock(&self.0);
        slot.vmi_json = request.vmi_json.clone();
        slot.options = request.options.clone();
        slot.next = Some(request);
        // Callers that have given up.
        slot.waiting.retain(|waiting| !waiting.is_closed());
        slot.waiting.push(answer);
        (outcome, !std::mem::replace(&mut slot.running, true))
    }

    /// The next request with the senders to its waiting callers. `None` ends the queue's run.
    pub fn pop(&self) -> Option<(SyncRequest, Vec<oneshot::Sender<Outcome>>)> {
        let mut slot = lock(&self.0);
        let Some(request) = slot.next.take() else {
            slot.running = false;
            return None;
        };
        Some((request, std::mem::take(&mut slot.waiting)))
    }

    /// The options of the last sync; the defaults before the first.
    pub fn last_options(&self) -> Arc<VirtualMachineOptions> {
        lock(&self.0).options.clone()
    }

    /// The VMI and the options of the last sync, as sent; empty before the first.
    pub fn last_sync(&self) -> LastSyncResponse {
        let slot = lock(&self.0);
        LastSyncResponse {
            vmi_json: slot.vmi_json.clone(),
            options: slot.options.encode_to_vec().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::vmi::Vmi;
    use hooks::plugins::Pipeline;
    use tokio::time::Instant;

    fn request(name: &str) -> SyncRequest {
        let mut vmi = Vmi::default();
        vmi.metadata.name = name.into();
        SyncRequest {
            vmi: Arc::new(vmi),
            vmi_json: Bytes::new(),
            options: Arc::default(),
            plugins: Pipeline::default(),
            id: hooks::RequestId::unique(),
            hooks_deadline: Instant::now(),
        }
    }

    #[test]
    fn requests_that_wait_join_in_the_newest() {
        let queue = SyncQueue::default();
        let (_first, run) = queue.push(request("a"));
        assert!(run);
        assert_eq!(queue.pop().unwrap().0.vmi.metadata.name, "a");
        let (_second, run) = queue.push(request("b"));
        assert!(!run, "it runs already");
        drop(queue.push(request("b")));
        let (_third, _) = queue.push(request("c"));
        let (next, waiting) = queue.pop().unwrap();
        assert_eq!((next.vmi.metadata.name.as_str(), waiting.len()), ("c", 2));
        assert!(queue.pop().is_none());
        let (_fourth, run) = queue.push(request("d"));
        assert!(run, "it does not run any more");
    }
}
