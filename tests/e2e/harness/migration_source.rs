//! A migration as the source's virt-handler has it done: MigrateVirtualMachine, its cancellation,
//! and its end.

use serde_json::{Value, json};

use super::{
    Event, Guest, Pod, User, Vmi, counts_on, in_container, migration, source_pod, target_pod,
};
use api::proto::cmd::v1::{MigrationRequest, Response};

/// So slow that a migration lasts for as long as a test wants it to.
pub const SLOW: &str = "1Mi";

pub fn migrate(test: impl Future<Output = ()>) {
    in_container(User::Qemu, test);
}

/// The options as virt-handler writes them, with these changed.
fn options(changed: Value) -> Value {
    let mut options = json!({
        "Bandwidth": "0", "ProgressTimeout": 150, "CompletionTimeoutPerGiB": 150, "MaxDowntimeMs": 3000,
        "UnsafeMigration": false, "AllowAutoConverge": false, "AllowPostCopy": false,
        "ParallelMigrationThreads": null, "AllowWorkloadDisruption": false, "StallDetectorOptions": null,
        "Compression": null,
    });
    for (name, value) in changed.as_object().unwrap() {
        options[name] = value.clone();
    }
    options
}

/// What virt-handler sends to begin the migration.
pub fn migration_request(pod: &Pod, vmi: &Vmi, changed: Value) -> MigrationRequest {
    MigrationRequest {
        vmi: pod.request(vmi.value()).vmi,
        options: options(changed).to_string().into(),
    }
}

pub async fn migrate_call(pod: &Pod, vmi: &Vmi, changed: Value) -> Response {
    let request = migration_request(pod, vmi, changed);
    let answer = pod.cmd().migrate_virtual_machine(request).await;
    answer.unwrap().into_inner()
}

pub async fn begin(pod: &Pod, vmi: &Vmi, changed: Value) {
    let answer = migrate_call(pod, vmi, changed).await;
    assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
}

pub async fn cancel(pod: &Pod, vmi: &Vmi) {
    let request = pod.request(vmi.value());
    let answer = pod.cmd().cancel_virtual_machine_migration(request).await;
    let answer = answer.unwrap().into_inner();
    assert!(answer.success, "{}", answer.message);
}

/// The migration's end, as virt-handler sees it on the source.
async fn end_event(source: &mut Pod, vmi: &Vmi) -> Event {
    let uid = vmi.migration_uid().to_owned();
    let has_ended = move |event: &Event| {
        let migration = migration(&event.domain);
        // libvirt's state may have been read in the moment in which QEMU ends; the next document
        // has the last one.
        let is_ending = event.status() == "ShuttingDown";
        migration["UID"] == uid && !migration["EndTimestamp"].is_null() && !is_ending
    };
    source
        .handler
        .event("of the migration's end", has_ended)
        .await
}

/// What the metadata say of a migration that has failed.
pub async fn failed(source: &mut Pod, vmi: &Vmi) -> Value {
    let event = end_event(source, vmi).await;
    let end = migration(&event.domain).clone();
    assert_eq!(end["Failed"], true, "{end}");
    end
}

/// The same of one that was aborted.
pub async fn aborted(source: &mut Pod, vmi: &Vmi) {
    let end = failed(source, vmi).await;
    let (status, reason) = (&end["AbortStatus"], &end["FailureReason"]);
    assert_eq!(
        (status, reason),
        (
            &json!("Succeeded"),
            &json!("Live migration has been aborted")
        )
    );
}

/// The source has let the guest go, and says so with the end of the migration.
pub async fn has_left(source: &mut Pod, vmi: &Vmi) -> Value {
    let event = end_event(source, vmi).await;
    let end = migration(&event.domain).clone();
    assert_eq!(end["Failed"], false, "{end}\n{}", source.log_tail());
    assert_eq!((event.status(), event.reason()), ("Shutoff", "Migrated"));
    end
}

/// A source whose guest counts, and a target that is ready for it.
pub async fn pair(vmi: Vmi) -> (Pod, Guest, Pod, Vmi) {
    let (source, guest) = source_pod(&vmi, &[]).await;
    let vmi = vmi.migrating_to("target");
    let target = target_pod(&source, &vmi, "target", &[]).await;
    target.sync_target_ok(&vmi).await;
    (source, guest, target, vmi)
}

/// The guest has left the source, and counts on where it is now.
pub async fn has_moved(source: &mut Pod, guest: &Guest, target: &mut Pod, vmi: &Vmi) -> Value {
    let end = has_left(source, vmi).await;
    target.arrival().await;
    counts_on(guest, &target.guest(vmi).await).await;
    end
}
