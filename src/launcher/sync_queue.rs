//! Syncs, one after the other.
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
use tokio::time::Instant;

use super::{LauncherError, lock};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::proto::inspect::v1::LastSyncResponse;
use api::vmi::Vmi;

/// A sync that was asked for.
pub(super) struct SyncRequest {
    pub vmi: Arc<Vmi>,
    /// The VMI as it came, which is what sidecars get.
    pub vmi_json: Bytes,
    pub options: Arc<VirtualMachineOptions>,
    /// When virt-handler stops waiting; what sidecars get of it is their share.
    pub deadline: Instant,
}

/// What became of a sync; shared by all that have joined it.
pub(super) type Outcome = Result<(), Arc<LauncherError>>;

/// The next sync, and who waits for it.
#[derive(Default)]
pub(super) struct SyncQueue(Mutex<Slot>);

#[derive(Default)]
struct Slot {
    running: bool,
    next: Option<SyncRequest>,
    waiting: Vec<oneshot::Sender<Outcome>>,
    /// The last VMI that was read: most syncs bring the same bytes again.
    last_vmi: Option<(Bytes, Arc<Vmi>)>,
    /// The options of the last sync.
    options: Arc<VirtualMachineOptions>,
}

impl SyncQueue {
    /// Adds a request, which takes the place of one that waits. Returns where its outcome will be, and whether the caller
    /// has to run the queue.
    pub fn push(&self, request: SyncRequest) -> (oneshot::Receiver<Outcome>, bool) {
        let (answer, outcome) = oneshot::channel();
        let mut slot = lock(&self.0);
        slot.options = request.options.clone();
        slot.next = Some(request);
        slot.waiting.push(answer);
        (outcome, !std::mem::replace(&mut slot.running, true))
    }

    /// The next request with all who wait for it. `None` if there is none; the queue is then not run any more.
    pub fn pop(&self) -> Option<(SyncRequest, Vec<oneshot::Sender<Outcome>>)> {
        let mut slot = lock(&self.0);
        let Some(request) = slot.next.take() else {
            slot.running = false;
            return None;
        };
        Some((request, std::mem::take(&mut slot.waiting)))
    }

    /// The options of the last sync; the default ones before the first.
    pub fn last_options(&self) -> Arc<VirtualMachineOptions> {
        lock(&self.0).options.clone()
    }

    /// The VMI as it was sent last, with the options of the last sync; empty before the first.
    pub fn last_sync(&self) -> LastSyncResponse {
        let slot = lock(&self.0);
        LastSyncResponse {
            vmi_json: slot
                .last_vmi
                .as_ref()
                .map(|(json, _)| json.clone())
                .unwrap_or_default(),
            options: slot.options.encode_to_vec().into(),
        }
    }

    /// The VMI as it was sent last.
    #[cfg(test)]
    pub fn last_vmi(&self) -> Option<(Bytes, Arc<Vmi>)> {
        lock(&self.0).last_vmi.clone()
    }

    /// Reads a VMI with `read`, unless it is the last one again.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn vmi(
        &self,
        json: &Bytes,
        read: impl FnOnce() -> Result<Vmi, LauncherError>,
    ) -> Result<Arc<Vmi>, LauncherError> {
        if let Some((bytes, vmi)) = &lock(&self.0).last_vmi
            && bytes == json
        {
            return Ok(vmi.clone());
        }
        let vmi = Arc::new(read()?);
        lock(&self.0).last_vmi = Some((json.clone(), vmi.clone()));
        Ok(vmi)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn request(name: &str) -> SyncRequest {
        let mut vmi = Vmi::default();
        vmi.metadata.name = name.into();
        SyncRequest {
            vmi: Arc::new(vmi),
            vmi_json: Bytes::new(),
            options: Arc::default(),
            deadline: Instant::now(),
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
        let (_third, _) = queue.push(request("c"));
        let (next, waiting) = queue.pop().unwrap();
        assert_eq!((next.vmi.metadata.name.as_str(), waiting.len()), ("c", 2));
        assert!(queue.pop().is_none());
        let (_fourth, run) = queue.push(request("d"));
        assert!(run, "it does not run any more");
    }

    #[test]
    fn the_same_bytes_are_read_once() {
        let queue = SyncQueue::default();
        let json = Bytes::from_static(b"{}");
        let first = queue.vmi(&json, || Ok(Vmi::default())).unwrap();
        let again = queue.vmi(&json, || Err(LauncherError::InvalidVmi)).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let other = queue.vmi(&Bytes::from_static(b"[]"), || {
            Err(LauncherError::InvalidVmi)
        });
        assert!(other.is_err());
        assert!(
            Arc::ptr_eq(&queue.last_vmi().unwrap().1, &first),
            "a bad one is forgotten"
        );
    }
}
