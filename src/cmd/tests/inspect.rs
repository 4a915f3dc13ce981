//! launcherctl's questions over a real socket.

use serde_json::Value;

use super::super::tests::with_server;
use super::*;
use crate::launcher::tests::vmi;
use api::proto::inspect::v1::inspect_client::InspectClient;

#[test]
fn changes_of_the_domain_are_streamed_until_the_end() {
    with_server(|scene, channel| async move {
        let mut client = InspectClient::new(channel);
        let changes = client.watch_domain(WatchDomainRequest {}).await.unwrap();
        let mut changes = changes.into_inner();
        let first = changes.message().await.unwrap().unwrap();
        assert!(first.domain_json.is_empty());
        scene.sync(&vmi()).await.unwrap();
        let domain = loop {
            let change = changes.message().await.unwrap().unwrap();
            if !change.domain_json.is_empty() {
                break change.domain_json;
            }
        };
        let domain: Value = serde_json::from_slice(&domain).unwrap();
        assert_eq!(domain["ObjectMeta"]["name"], "vm1");
        // The server ends now, though the stream is open.
        tokio::spawn(async move { while let Ok(Some(_)) = changes.message().await {} });
    });
}

#[test]
fn the_last_vmi_is_answered_as_it_was_sent() {
    with_server(|scene, channel| async move {
        let mut client = InspectClient::new(channel);
        let before = client.last_sync(LastSyncRequest {}).await.unwrap();
        assert_eq!(before.into_inner(), LastSyncResponse::default());
        scene.sync(&vmi()).await.unwrap();
        let answer = client.last_sync(LastSyncRequest {}).await.unwrap();
        assert_eq!(answer.into_inner().vmi_json, vmi().to_string());
    });
}

#[test]
fn without_a_migration_there_is_none_to_watch() {
    with_server(|_, channel| async {
        let mut client = InspectClient::new(channel);
        let request = WatchMigrationRequest::default();
        let none = client.watch_migration(request).await.unwrap_err();
        assert_eq!(none.code(), tonic::Code::NotFound);
    });
}
