//! What a migration has done, kept beside the VM that has come by it: its launcher knows of migrations away from it only.

use std::fs;
use std::path::PathBuf;

use prost::Message;

use crate::files::FileError;
use crate::host::registry::VmDir;
use api::proto::inspect::v1::MigrationEvent;

/// Where the events are, below the VM's root: protobuf messages, each after its length.
const EVENTS_FILE: &str = "/migration.events";
/// Events that are kept of one migration; the launcher's own limit is lower.
const MAX_EVENTS: usize = 8192;

fn file(dir: &VmDir) -> PathBuf {
    dir.path(EVENTS_FILE)
}

/// Keeps the events for `launcherctl migration`.
///
/// # Errors
/// If they cannot be written.
pub fn store(dir: &VmDir, events: &[MigrationEvent]) -> Result<(), FileError> {
    let bytes: Vec<u8> = events
        .iter()
        .take(MAX_EVENTS)
        .flat_map(Message::encode_length_delimited_to_vec)
        .collect();
    let file = file(dir);
    fs::write(&file, bytes).map_err(FileError::on("write", &file))
}

/// The events of the migration by which the VM has come; none if it has not, or they cannot be read.
#[must_use]
pub fn load(dir: &VmDir) -> Option<Vec<MigrationEvent>> {
    let bytes = fs::read(file(dir)).ok()?;
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while !rest.is_empty() && events.len() < MAX_EVENTS {
        events.push(MigrationEvent::decode_length_delimited(&mut rest).ok()?);
    }
    (!events.is_empty()).then_some(events)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::record::tests::event;
    use super::*;
    use api::proto::inspect::v1::migration_event::Event;
    use api::proto::inspect::v1::{MigrationBegan, MigrationSample};

    #[test]
    fn events_are_read_as_they_were_stored() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        assert_eq!(load(&vm), None);
        let events = vec![
            event(0, Event::Began(MigrationBegan::default())),
            event(1, Event::Sample(MigrationSample::default())),
        ];
        store(&vm, &events).unwrap();
        assert_eq!(load(&vm), Some(events));
        fs::write(file(&vm), [200, 1]).unwrap();
        assert_eq!(load(&vm), None);
    }
}
