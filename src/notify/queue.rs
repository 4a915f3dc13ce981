//! The queue for virt-handler, as plain data: what it keeps and what replaces what.

use std::collections::VecDeque;

use prost::bytes::Bytes;

use super::EventType;
use domain::Domain;
use domain::status::{LifeCycle, StateChangeReason};

/// Limit of the waiting entries. Each has a few KiB; a guest that fails and recovers in a loop must
/// not fill the memory.
const MAX_QUEUED: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Identifies the entry until it is taken off.
    pub id: u64,
    pub body: Body,
    /// How often the connection broke while it was being sent.
    pub breaks: u32,
    /// A later state may replace it.
    replaceable: bool,
    /// Already sent on an earlier connection.
    is_resend: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// A state of the domain, as Domain JSON.
    Domain(Bytes, EventType),
    /// A Kubernetes event, as JSON.
    K8s(Bytes),
}

/// Whether virt-handler must get a state even if a later one exists. It tells Succeeded from Failed
/// by how the domain stopped, and acts on errors and panics; of a running domain only the latest
/// state counts.
// D-vm-10 (docs/differences.md).
pub(super) fn must_be_delivered(document: &Domain, kind: EventType) -> bool {
    kind == EventType::Added
        || document.meta.deletion_timestamp.is_some()
        || matches!(
            document.status.status,
            LifeCycle::Shutoff | LifeCycle::Crashed
        )
        || matches!(
            document.status.reason,
            StateChangeReason::IoError | StateChangeReason::PostcopyFailed
        )
}

/// Numbers of notifications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Delivered to virt-handler.
    pub delivered: u64,
    /// Given up: virt-handler was away for too long, or refused it.
    pub dropped: u64,
    /// Not sent yet.
    pub waiting: u64,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    next: u64,
    /// The entry that is being sent, which is not replaced.
    sending: Option<u64>,
    /// The last published state.
    latest: Option<Bytes>,
    /// The last state delivered on this connection.
    delivered: Option<Bytes>,
    /// Entries up to this id do not count as delivered: they were sent before it was to hear again.
    forgotten: u64,
    /// A connection was lost; the next one must get the state again.
    stale: bool,
    delivered_count: u64,
    dropped_count: u64,
}

impl Queue {
    pub fn push_domain(&mut self, json: Bytes, kind: EventType, matters: bool) {
        self.latest = Some(json.clone());
        let sending = self.sending;
        let last = self
            .entries
            .iter_mut()
            .rev()
            .find(|entry| matches!(entry.body, Body::Domain(..)));
        match last {
            Some(entry) if entry.replaceable && !matters && Some(entry.id) != sending => {
                entry.body = Body::Domain(json, kind);
                entry.is_resend = false;
            }
            _ => self.push(Body::Domain(json, kind), !matters, false),
        }
    }

    pub fn push_k8s(&mut self, json: Bytes) {
        self.push(Body::K8s(json), false, false);
    }

    fn push(&mut self, body: Body, replaceable: bool, is_resend: bool) {
        self.next += 1;
        self.entries.push_back(Entry {
            id: self.next,
            body,
            breaks: 0,
            replaceable,
            is_resend,
        });
        while self.entries.len() > MAX_QUEUED {
            // People can miss an event sooner than virt-handler a state, and the oldest state is
            // the least useful.
            let at = self
                .entries
                .iter()
                .position(|entry| matches!(entry.body, Body::K8s(_)))
                .unwrap_or(0);
            tracing::warn!(
                waiting = MAX_QUEUED,
                "virt-handler is away for too long: a Kubernetes event, or else the oldest state, is dropped"
            );
            self.entries.remove(at);
            self.dropped_count += 1;
        }
    }

    /// Whether a connection is needed.
    pub fn wants_connection(&self) -> bool {
        self.stale || !self.entries.is_empty()
    }

    /// Notes a new connection. After a lost one, the current state is sent again.
    pub fn connected(&mut self) {
        let waiting = self
            .entries
            .iter()
            .any(|entry| matches!(entry.body, Body::Domain(..)));
        if std::mem::take(&mut self.stale)
            && !waiting
            && let Some(json) = self.latest.clone()
        {
            self.push(Body::Domain(json, EventType::Modified), true, true);
        }
    }

    /// Notes a lost connection.
    pub fn disconnected(&mut self) {
        self.sending = None;
        self.delivered = None;
        self.stale = self.latest.is_some();
    }

    /// Sends virt-handler the current state again, though it has it.
    pub fn forget_delivered(&mut self) {
        self.delivered = None;
        // virt-handler may have taken the state that is on its way before this.
        self.forgotten = self.sending.unwrap_or(self.forgotten);
    }

    /// The next entry to send; it stays until [`Self::delivered`] or [`Self::give_up`]. Skips a
    /// state that virt-handler already has.
    // D-vm-15 (docs/differences.md).
    pub fn front(&mut self) -> Option<Entry> {
        while self.entries.front().is_some_and(|entry| self.has(entry)) {
            self.entries.pop_front();
        }
        let entry = self.entries.front().cloned();
        self.sending = entry.as_ref().map(|entry| entry.id);
        entry
    }

    /// Whether virt-handler already has this state and need not get it again.
    fn has(&self, entry: &Entry) -> bool {
        let Body::Domain(json, EventType::Modified) = &entry.body else {
            return false;
        };
        entry.replaceable && self.delivered.as_ref() == Some(json)
    }

    /// Notes that virt-handler has accepted the entry.
    pub fn delivered(&mut self, id: u64) {
        let entry = self.entries.iter().find(|entry| entry.id == id);
        if id > self.forgotten
            && let Some(Body::Domain(json, _)) = entry.map(|entry| &entry.body)
        {
            self.delivered = Some(json.clone());
        }
        self.delivered_count += 1;
        self.remove(id);
    }

    /// Drops the entry.
    pub fn give_up(&mut self, id: u64) {
        self.dropped_count += 1;
        self.remove(id);
    }

    fn remove(&mut self, id: u64) {
        self.sending = None;
        self.entries.retain(|entry| entry.id != id);
    }

    /// Oldest first.
    pub fn k8s_events(&self) -> Vec<Bytes> {
        let bodies = self.entries.iter().map(|entry| &entry.body);
        let events = bodies.filter_map(|body| match body {
            Body::K8s(json) => Some(json.clone()),
            Body::Domain(..) => None,
        });
        events.collect()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            delivered: self.delivered_count,
            dropped: self.dropped_count,
            waiting: self.entries.len() as u64,
        }
    }

    /// Notes that the connection broke while the entry was being sent. Returns the number so far.
    pub fn broke(&mut self, id: u64) -> u32 {
        let entry = self.entries.iter_mut().find(|entry| entry.id == id);
        entry.map_or(0, |entry| {
            entry.breaks += 1;
            entry.breaks
        })
    }

    /// Whether every waiting entry has been sent before.
    pub fn is_flushed(&self) -> bool {
        self.entries.iter().all(|entry| entry.is_resend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(queue: &mut Queue) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(entry) = queue.front() {
            all.push(match &entry.body {
                Body::Domain(json, kind) => {
                    format!("{} {}", kind.as_str(), String::from_utf8_lossy(json))
                }
                Body::K8s(json) => format!("k8s {}", String::from_utf8_lossy(json)),
            });
            queue.delivered(entry.id);
        }
        all
    }

    fn push(queue: &mut Queue, json: &'static str, matters: bool) {
        let json = Bytes::from_static(json.as_bytes());
        queue.push_domain(json, EventType::Modified, matters);
    }

    #[test]
    fn a_later_state_replaces_one_that_still_waits() {
        let mut queue = Queue::default();
        queue.push_domain(Bytes::from_static(b"1"), EventType::Added, true);
        push(&mut queue, "2", false);
        queue.push_k8s(Bytes::from_static(b"e"));
        push(&mut queue, "3", false);
        assert_eq!(bodies(&mut queue), ["ADDED 1", "MODIFIED 3", "k8s e"]);
    }

    #[test]
    fn a_state_that_matters_keeps_its_place() {
        let mut queue = Queue::default();
        let states = [
            ("running", false),
            ("io error", true),
            ("running again", false),
            ("off", true),
            ("gone", true),
        ];
        for (state, matters) in states {
            push(&mut queue, state, matters);
        }
        let all = states.map(|(state, _)| format!("MODIFIED {state}"));
        assert_eq!(bodies(&mut queue), all);
    }

    #[test]
    fn a_state_on_its_way_is_not_replaced() {
        let mut queue = Queue::default();
        push(&mut queue, "1", false);
        let first = queue.front().map(|entry| entry.id);
        push(&mut queue, "2", false);
        first.into_iter().for_each(|id| queue.delivered(id));
        assert_eq!(bodies(&mut queue), ["MODIFIED 2"]);
    }

    #[test]
    // D-vm-15 (docs/differences.md).
    fn a_state_that_was_delivered_is_not_sent_again_unless_it_must_be() {
        let mut queue = Queue::default();
        push(&mut queue, "1", false);
        let first = queue.front().unwrap();
        // While the first state is being sent.
        push(&mut queue, "1", false);
        queue.delivered(first.id);
        assert_eq!(queue.front(), None);
        push(&mut queue, "2", false);
        push(&mut queue, "1", false);
        assert_eq!(queue.front(), None, "back to what virt-handler has");
        assert!(queue.is_flushed());

        push(&mut queue, "1", true);
        assert_eq!(bodies(&mut queue), ["MODIFIED 1"], "it matters");
        queue.push_domain(Bytes::from_static(b"1"), EventType::Added, true);
        assert_eq!(bodies(&mut queue), ["ADDED 1"]);
        queue.forget_delivered();
        push(&mut queue, "1", false);
        assert_eq!(bodies(&mut queue), ["MODIFIED 1"], "it is to hear it again");
        push(&mut queue, "3", false);
        let on_its_way = queue.front().unwrap();
        queue.forget_delivered();
        queue.delivered(on_its_way.id);
        push(&mut queue, "3", false);
        assert_eq!(bodies(&mut queue), ["MODIFIED 3"], "the same");

        push(&mut queue, "4", false);
        let on_its_way = queue.front().unwrap();
        push(&mut queue, "3", false);
        queue.forget_delivered();
        queue.delivered(on_its_way.id);
        assert_eq!(bodies(&mut queue), ["MODIFIED 3"], "it waited");
        push(&mut queue, "3", false);
        assert_eq!(queue.front(), None, "it was sent after that");
        queue.disconnected();
        queue.connected();
        assert_eq!(bodies(&mut queue), ["MODIFIED 3"], "another virt-handler");

        push(&mut queue, "2", false);
        let refused = queue.front().unwrap();
        queue.give_up(refused.id);
        push(&mut queue, "2", false);
        assert_eq!(bodies(&mut queue), ["MODIFIED 2"], "it was not taken");
    }

    #[test]
    fn a_new_connection_hears_the_present_state_again_once() {
        let mut queue = Queue::default();
        queue.connected();
        assert!(!queue.wants_connection());
        push(&mut queue, "1", false);
        assert_eq!(bodies(&mut queue), ["MODIFIED 1"]);
        queue.disconnected();
        assert!(queue.wants_connection());
        queue.connected();
        assert!(queue.is_flushed(), "nobody waits for what was sent before");
        assert_eq!(bodies(&mut queue), ["MODIFIED 1"]);
        assert!(!queue.wants_connection());
    }

    #[test]
    fn a_state_that_waits_anyway_is_not_sent_twice() {
        let mut queue = Queue::default();
        push(&mut queue, "1", false);
        queue.front();
        queue.disconnected();
        queue.connected();
        assert_eq!(bodies(&mut queue), ["MODIFIED 1"]);
    }

    #[test]
    fn the_queue_is_bounded_and_keeps_the_newest_states() {
        let mut queue = Queue::default();
        queue.push_k8s(Bytes::from_static(b"e"));
        for _ in 0..MAX_QUEUED {
            push(&mut queue, "old", true);
        }
        push(&mut queue, "new", true);
        let all = bodies(&mut queue);
        assert_eq!(all.len(), MAX_QUEUED);
        assert_eq!(all.last().unwrap(), "MODIFIED new");
        assert!(!all.contains(&"k8s e".to_owned()));
    }
}
