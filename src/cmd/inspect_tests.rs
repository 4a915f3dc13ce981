//! launcherctl's questions over a real socket.
#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::super::tests::with_server;
use super::*;
use api::proto::inspect::v1::inspect_client::InspectClient;
use api::proto::inspect::v1::{MigrationBegan, MigrationEnded};

#[test]
fn changes_of_the_domain_are_streamed_until_the_end() {
    with_server(|stub, channel| async move {
        *stub.domain.lock().unwrap() = Some(Domain::new("ns1", "vm1", "u-1"));
        let mut client = InspectClient::new(channel);
        let changes = client.watch_domain(WatchDomainRequest {}).await.unwrap();
        let mut changes = changes.into_inner();
        let first = changes.message().await.unwrap().unwrap();
        assert!(first.domain_json.is_empty());
        let second = changes.message().await.unwrap().unwrap();
        let domain: Value = serde_json::from_slice(&second.domain_json).unwrap();
        assert_eq!(domain["ObjectMeta"]["name"], "vm1");
        // The server ends now, though the stream is open.
        tokio::spawn(async move { while let Ok(Some(_)) = changes.message().await {} });
    });
}

#[test]
fn the_last_vmi_is_answered_as_it_was_sent() {
    with_server(|_, channel| async {
        let mut client = InspectClient::new(channel);
        let answer = client.last_sync(LastSyncRequest {}).await.unwrap();
        let vmi: Value = serde_json::from_slice(&answer.into_inner().vmi_json).unwrap();
        assert_eq!(vmi["metadata"]["name"], "vm1");
    });
}

#[test]
fn a_migration_is_streamed_to_its_end() {
    with_server(|stub, channel| async move {
        let mut client = InspectClient::new(channel);
        let none = client
            .watch_migration(WatchMigrationRequest::default())
            .await;
        assert_eq!(none.unwrap_err().code(), tonic::Code::NotFound);
        let events = [
            migration_event::Event::Began(MigrationBegan::default()),
            migration_event::Event::Ended(MigrationEnded::default()),
        ];
        *stub.migration.lock().unwrap() = events
            .map(|event| MigrationEvent {
                at_micros: 1,
                event: Some(event),
            })
            .to_vec();
        let stream = client
            .watch_migration(WatchMigrationRequest::default())
            .await;
        let mut stream = stream.unwrap().into_inner();
        let mut count = 0;
        while stream.message().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 2);
        let setup = client.setup(SetupRequest {}).await.unwrap().into_inner();
        assert_eq!(setup.root, "/");
    });
}

#[test]
fn the_timeline_is_answered_as_it_is() {
    with_server(|_, channel| async {
        let mut client = InspectClient::new(channel);
        let answer = client.timeline(TimelineRequest {}).await.unwrap();
        let step = &answer.into_inner().steps[0];
        assert_eq!((step.name.as_str(), step.took_micros), ("define", Some(2)));
    });
}
