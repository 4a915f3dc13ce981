//! Sends domain and Kubernetes events to virt-handler, without ever blocking the sender.
//!
//! ```text
//!  launcher ──publish──► Queue ──front──► task ──► domain-notify-pipe.sock ──► virt-handler
//!                         │ holds the latest state, and in order the events before it that matter
//!                         │ leaves out a state that virt-handler has taken already
//!                         └ resend: on every new connection the present state goes out again
//! ```
//!
//! virt-handler makes the socket only after it has called us, makes it anew when it restarts, and may be away for
//! long. So the task waits for the file (inotify), not on a clock, and nothing is given up: a state that a later one
//! replaces is dropped, one that decides the VMI's fate (defined, stopped, crashed, I/O error, panic, gone) is not.
//! A launcher that comes later finds the state in libvirt, and the Kubernetes events that wait in a file.

mod event_file;
mod k8s;
mod link;
mod queue;
mod task;
#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use domain::Domain;
use event_file::EventFile;
pub use k8s::{K8sEvent, Severity};
pub use queue::Counts;
use queue::Queue;

/// `eventType` of a domain event. The other two that virt-handler knows, DELETED and ERROR, have no use: a domain that
/// is gone is a [`Self::Modified`] one with a deletion timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// The domain is defined, or has come by migration.
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

/// Takes what virt-handler must know. Clones feed the same queue; no call waits.
#[derive(Debug, Clone)]
pub struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    event_file: Mutex<EventFile>,
    /// Something was queued.
    filled: Notify,
    /// Something was taken off.
    drained: Notify,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Writes down which Kubernetes events wait. To be called when that may have changed.
    fn store_k8s_events(&self) {
        // Locked first, so that no older list is written after a newer one.
        let mut file = lock(&self.event_file);
        let waiting = self.queue().k8s_events();
        file.store(waiting);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while the lock is held; if it did, what it guards would still be whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notifier {
    /// A notifier for `socket`, and the task that sends: spawn it; it never ends by itself. Kubernetes events that wait are
    /// kept in `event_file`; those that an earlier launcher of the VMI `uid` has left there are sent first.
    pub fn new(
        socket: PathBuf,
        event_file: PathBuf,
        uid: &str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let event_file = EventFile::load(event_file, uid);
        let mut queue = Queue::default();
        for event in event_file.events() {
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
                queue::matters(document, kind),
            ),
            Err(error) => {
                tracing::error!(%error, "the domain document cannot be serialized; no event is sent to virt-handler")
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

    /// Has the next state sent also if virt-handler has it already.
    pub fn send_again(&self) {
        self.shared.queue().forget_delivered();
    }

    /// How many notifications there were, and are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.queue().counts()
    }

    /// Waits until all that was published has been sent (or refused); false when `deadline` comes first.
    pub async fn flush(&self, deadline: Instant) -> bool {
        let empty = async {
            loop {
                // Made before the look, so that a change in between is not missed.
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
