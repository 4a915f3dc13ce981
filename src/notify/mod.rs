//! Sends domain and Kubernetes events to virt-handler, without ever blocking the sender.
//!
//! ```text
//!  launcher ──publish──► Queue ──front──► task ──► domain-notify-pipe.sock ──► virt-handler
//!                         │ holds the latest state, and, in order, the events before it that must be delivered
//!                         │ skips a state that virt-handler already has
//!                         └ resend: every new connection gets the current state again
//! ```
//!
//! virt-handler makes the socket only after its first call, makes a new one when it restarts, and
//! may be away for long. So the task waits for the file (inotify) without a time limit. A later
//! state replaces an earlier one, except a state that decides the VMI's fate (new, stopped,
//! crashed, I/O error, failed post-copy, gone). A later launcher finds the state in libvirt and the
//! undelivered Kubernetes events in a file.

mod event_file;
mod k8s;
mod link;
mod queue;
mod task;
#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use prost::bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use domain::Domain;
use event_file::EventFile;
pub use k8s::K8sEvent;
use os::lock::lock;
pub use queue::Counts;
use queue::Queue;

/// `eventType` of a domain event: `Reporter` (`src/launcher/report/mod.rs`) chooses "ADDED" or
/// "MODIFIED". virt-handler also knows DELETED and ERROR, which are not used: a deleted domain is
/// [`Self::Modified`] with a deletion timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// The domain has started, has arrived by migration, or was adopted; or a backup has ended.
    Added,
    /// Everything else.
    Modified,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
        }
    }
}

/// Queues notifications for virt-handler. Clones feed the same queue; no call waits.
#[derive(Debug, Clone)]
pub struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    event_file: Mutex<EventFile>,
    /// Signals that something was queued.
    filled: Notify,
    /// Signals that something was taken off.
    drained: Notify,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Saves the waiting Kubernetes events. Call it when they may have changed.
    fn store_k8s_events(&self) {
        // Locked first, so that an older list never overwrites a newer one.
        let mut file = lock(&self.event_file);
        let waiting = self.queue().k8s_events();
        file.store(waiting);
    }
}

impl Notifier {
    /// Returns a notifier for `socket` and its sending task: spawn the task; it never returns.
    /// `event_file` keeps the waiting Kubernetes events; those that an earlier launcher of the VMI
    /// `uid` left there are sent first.
    pub fn new(
        socket: PathBuf,
        event_file: PathBuf,
        uid: &str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let event_file = EventFile::load(event_file, uid);
        let mut queue = Queue::default();
        for event in &event_file.events {
            queue.push_k8s(event.clone());
        }
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            event_file: Mutex::new(event_file),
            filled: Notify::new(),
            drained: Notify::new(),
        });
        (
            Self {
                shared: shared.clone(),
            },
            task::run(shared, socket),
        )
    }

    /// Queues a state of the domain.
    pub fn publish(&self, document: &Domain, kind: EventType) {
        match document.to_json() {
            Ok(json) => self.shared.queue().push_domain(
                Bytes::from(json),
                kind,
                queue::must_be_delivered(document, kind),
            ),
            Err(error) => {
                tracing::error!(reason = %error, "The domain document cannot be serialized; no event is sent to virt-handler")
            }
        }
        self.shared.filled.notify_one();
    }

    /// Queues a Kubernetes event, which virt-handler records on our behalf.
    pub fn k8s_event(&self, event: &K8sEvent) {
        self.shared.queue().push_k8s(event.to_json());
        self.shared.store_k8s_events();
        self.shared.filled.notify_one();
    }

    /// Sends the next state even if virt-handler already has it.
    pub fn send_again(&self) {
        self.shared.queue().forget_delivered();
    }

    pub fn counts(&self) -> Counts {
        self.shared.queue().counts()
    }

    /// Waits until every published notification is sent or refused. Returns false if `deadline`
    /// comes first.
    pub async fn flush(&self, deadline: Instant) -> bool {
        let empty = async {
            loop {
                // Created before the check, so that no change in between is missed.
                let drained = self.shared.drained.notified();
                if self.shared.queue().is_flushed() {
                    return;
                }
                drained.await;
            }
        };
        tokio::time::timeout_at(deadline, empty).await.is_ok()
    }
}
