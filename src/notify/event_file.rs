//! Keeps undelivered Kubernetes events in a file. No state of the domain has them, so without it a
//! launcher that follows a killed one would not know of them.
//!
//! Each line is an event as JSON. An event delivered just before the launcher is killed may be sent
//! again: Kubernetes counts equal events.

use std::io::ErrorKind;
use std::path::PathBuf;

use prost::bytes::Bytes;
use serde_json::Value;

/// No launcher writes a longer file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file and its events.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    /// Oldest first.
    pub events: Vec<Bytes>,
}

impl EventFile {
    /// Loads the events of the VMI `uid` that an earlier launcher has left.
    pub fn load(path: PathBuf, uid: &str) -> Self {
        let content = match os::small_file::read(&path, MAX_FILE_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(reason = %error, file = %path.display(), "The Kubernetes events that an earlier launcher has not sent cannot be read");
                Vec::new()
            }
        };
        let lines = content.split(|byte| *byte == b'\n');
        let events = lines
            .filter(|line| is_about(line, uid))
            .map(Bytes::copy_from_slice)
            .collect();
        Self { path, events }
    }

    /// Replaces the file's events.
    pub fn store(&mut self, events: Vec<Bytes>) {
        if events == self.events {
            return;
        }
        let stored = if events.is_empty() {
            os::small_file::remove(&self.path)
        } else {
            os::small_file::replace(&self.path, &lines(&events))
        };
        match stored {
            Ok(()) => self.events = events,
            Err(error) => {
                tracing::warn!(reason = %error, file = %self.path.display(), "Kubernetes events that wait for virt-handler are lost if this launcher is killed");
            }
        }
    }
}

/// Whether a line is an event about the VMI. A reused directory may hold another VM's.
fn is_about(line: &[u8], uid: &str) -> bool {
    let event: Option<Value> = serde_json::from_slice(line).ok();
    let owner = event
        .as_ref()
        .and_then(|it| it.pointer("/involvedObject/uid"));
    owner.is_some_and(|owner| owner == uid)
}

fn lines(events: &[Bytes]) -> Vec<u8> {
    let mut all = events.join(&b'\n');
    all.push(b'\n');
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(uid: &str, reason: &str) -> Bytes {
        let event = json!({"involvedObject": {"uid": uid}, "reason": reason, "message": "a\nb"});
        Bytes::from(event.to_string())
    }

    #[test]
    fn the_next_launcher_has_what_waited() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let mut file = EventFile::load(path.clone(), "u-1");
        assert!(file.events.is_empty() && !path.exists());
        let all = [event("u-1", "first"), event("u-1", "second")];
        file.store(all.to_vec());
        let mut next = EventFile::load(path.clone(), "u-1");
        assert_eq!(next.events, all);
        next.store(all[1..].to_vec());
        assert_eq!(EventFile::load(path.clone(), "u-1").events, all[1..]);
        next.store(Vec::new());
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_an_event_of_this_vmi_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let ours = event("u-1", "ours");
        let content = [&event("u-2", "theirs")[..], b"{\"cut", b"", b"7", &ours[..]].join(&b'\n');
        std::fs::write(&path, content).unwrap();
        assert_eq!(EventFile::load(path.clone(), "u-1").events, [ours]);
        std::fs::write(&path, vec![b'x'; 2 << 20]).unwrap();
        assert!(EventFile::load(path, "u-1").events.is_empty());
    }

    #[test]
    fn events_that_cannot_be_written_are_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/events");
        let mut file = EventFile::load(path.clone(), "u-1");
        let waiting = vec![event("u-1", "first")];
        file.store(waiting.clone());
        std::fs::create_dir(dir.path().join("later")).unwrap();
        file.store(waiting.clone());
        assert_eq!(EventFile::load(path, "u-1").events, waiting);
    }
}
