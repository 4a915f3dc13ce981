//! Live migration as the source's launcher does it: MigrateVirtualMachine, what virt-handler sees meanwhile, cancellation,
//! and everything that can go wrong on the way. Wherever a migration ends, the guest runs on exactly one side.

use std::time::Duration;

use api::proto::cmd::v1::{EmptyRequest, FreezeRequest, MigrationRequest, Response};
use serde_json::{Value, json};

use crate::harness::{
    Event, Guest, MigrationProxies, Pod, User, Vmi, in_container, migration, run, source_pod,
    target_pod,
};

/// So slow that a migration lasts for as long as a test wants it to.
const SLOW: &str = "1Mi";

fn migrate(test: impl Future<Output = ()>) {
    in_container(User::Qemu, || run(test));
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

async fn call(pod: &Pod, vmi: &Vmi, changed: Value) -> Response {
    let request = MigrationRequest {
        vmi: pod.request(vmi.value()).vmi,
        options: options(changed).to_string().into(),
    };
    let answer = pod.cmd().migrate_virtual_machine(request).await;
    answer.unwrap().into_inner()
}

async fn begin(pod: &Pod, vmi: &Vmi, changed: Value) {
    let answer = call(pod, vmi, changed).await;
    assert!(answer.success, "{}\n{}", answer.message, pod.log_tail());
}

async fn cancel(pod: &Pod, vmi: &Vmi) {
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
        migration["UID"] == uid && !migration["EndTimestamp"].is_null()
    };
    source
        .handler
        .event("of the migration's end", has_ended)
        .await
}

/// What the metadata say of a migration that has failed.
async fn failed(source: &mut Pod, vmi: &Vmi) -> Value {
    let event = end_event(source, vmi).await;
    let end = migration(&event.domain).clone();
    assert_eq!(end["Failed"], true, "{end}");
    end
}

/// The same of one that was aborted.
async fn aborted(source: &mut Pod, vmi: &Vmi) {
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
async fn has_left(source: &mut Pod, vmi: &Vmi) -> Value {
    let event = end_event(source, vmi).await;
    let end = migration(&event.domain).clone();
    assert_eq!(end["Failed"], false, "{end}\n{}", source.log_tail());
    assert_eq!((event.status(), event.reason()), ("Shutoff", "Migrated"));
    end
}

async fn until_copied(proxies: &MigrationProxies, bytes: u64) {
    while proxies.copied() < bytes {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A source whose guest's shell has a mark, and a target that is ready for it.
async fn pair(vmi: Vmi) -> (Pod, Guest, Pod, Vmi) {
    let (source, mut guest) = source_pod(&vmi, &[]).await;
    guest.run("mark=kept").await;
    let vmi = vmi.migrating_to("target");
    let target = target_pod(&source, &vmi, "target", &[]).await;
    target.sync_target_ok(&vmi).await;
    (source, guest, target, vmi)
}

async fn has_moved(source: &mut Pod, target: &mut Pod, vmi: &Vmi) -> Value {
    let end = has_left(source, vmi).await;
    target.arrival().await;
    assert_eq!(target.guest(vmi).await.run("echo $mark").await, "kept");
    end
}

/// A failed migration leaves the guest here, and another one takes it away.
async fn stays_and_moves_later(mut source: Pod, mut guest: Guest, vmi: Vmi) {
    assert_eq!(guest.run("echo $mark").await, "kept");
    let state = source
        .domain_until("runs", |it| it["Status"]["Status"] == "Running")
        .await;
    assert_eq!(state["Status"]["Status"], "Running");
    let vmi = vmi.migrating_to("second");
    let mut second = target_pod(&source, &vmi, "second", &[]).await;
    second.sync_target_ok(&vmi).await;
    let _proxies = MigrationProxies::new(&source, &second, &vmi);
    begin(&source, &vmi, json!({})).await;
    has_moved(&mut source, &mut second, &vmi).await;
}

#[test]
fn a_guest_is_migrated_once_however_often_virt_handler_asks() {
    migrate(async {
        let (mut source, _guest, mut target, vmi) = pair(Vmi::new("once")).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        begin(&source, &vmi, json!({})).await;
        let end = has_moved(&mut source, &mut target, &vmi).await;
        assert_eq!(end["Mode"], "PreCopy");
        let again = call(&source, &vmi, json!({})).await;
        assert!(
            !again.success && again.message.contains("already executed"),
            "{}",
            again.message
        );
        target.sync_ok(&vmi).await;
        source.end(&vmi).await;
        assert_eq!(source.exit_code().await, 0);
    });
}

#[test]
fn while_a_guest_leaves_reads_are_answered_and_changes_refused() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("leaves")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
        until_copied(&proxies, 2 << 20).await;
        let domain = source.domain().await;
        assert_eq!(domain["Status"]["Status"], "Running");
        let progress = migration(&domain);
        assert_eq!(
            (&progress["UID"], &progress["EndTimestamp"]),
            (&json!(vmi.migration_uid()), &Value::Null)
        );
        let sync = source.sync(&vmi).await;
        assert!(
            !sync.success && sync.message.contains("migrating"),
            "{}",
            sync.message
        );
        let freeze = FreezeRequest {
            vmi: source.request(vmi.value()).vmi,
            unfreeze_timeout_seconds: 0,
        };
        let freeze = source
            .cmd()
            .freeze_virtual_machine(freeze)
            .await
            .unwrap()
            .into_inner();
        assert!(
            !freeze.success && freeze.message.contains("migrates"),
            "{}",
            freeze.message
        );
        let stats = source
            .cmd()
            .get_domain_stats(EmptyRequest {})
            .await
            .unwrap()
            .into_inner();
        let stats: Value = serde_json::from_str(&stats.domain_stats).unwrap();
        let left = &stats["MigrateDomainJobInfo"]["DataRemaining"];
        assert!(left.as_u64().unwrap() > 0, "{stats}");
        source.log_has("Migration info for").await;

        let kill = source.request(vmi.value());
        let kill = source
            .cmd()
            .kill_virtual_machine(kill)
            .await
            .unwrap()
            .into_inner();
        assert!(kill.success, "{}", kill.message);
        failed(&mut source, &vmi).await;
        let is_off = |it: &Value| it["Status"]["Reason"] == "Destroyed";
        source.domain_until("is off", is_off).await;
        drop(guest);
    });
}

#[test]
fn a_cancelled_migration_leaves_the_guest_to_the_source_and_another_target() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("cancelled")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
        until_copied(&proxies, 2 << 20).await;
        cancel(&source, &vmi).await;
        cancel(&source, &vmi).await;
        aborted(&mut source, &vmi).await;
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
    });
}

#[test]
fn a_migration_can_be_cancelled_as_soon_as_it_has_begun() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("at-once")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
        cancel(&source, &vmi).await;
        aborted(&mut source, &vmi).await;
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
    });
}

#[test]
fn a_network_that_is_lost_fails_the_migration_and_not_the_guest() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("cut")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
        until_copied(&proxies, 2 << 20).await;
        proxies.cut();
        let end = failed(&mut source, &vmi).await;
        assert!(
            end["FailureReason"]
                .as_str()
                .unwrap()
                .starts_with("virError("),
            "{end}"
        );
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
    });
}

#[test]
fn a_target_that_cannot_be_reached_fails_the_migration_in_libvirts_words() {
    migrate(async {
        let vmi = Vmi::new("alone");
        let (mut source, mut guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("nowhere");
        begin(&source, &vmi, json!({})).await;
        let end = failed(&mut source, &vmi).await;
        let reason = end["FailureReason"].as_str().unwrap();
        assert!(reason.contains("-source.sock"), "{end}");
        assert_eq!(guest.run("echo alive").await, "alive");
    });
}

#[test]
fn a_target_that_is_killed_leaves_the_guest_to_the_source() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("bereft")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
        until_copied(&proxies, 2 << 20).await;
        target.signal("KILL");
        failed(&mut source, &vmi).await;
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
    });
}

#[test]
fn a_paused_guest_leaves_paused() {
    migrate(async {
        let paused = json!([{"type": "Paused", "status": "True"}]);
        let vmi = Vmi::new("asleep");
        let (mut source, _guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("target").set("/status/conditions", paused);
        let pause = source.request(vmi.value());
        let pause = source.cmd().pause_virtual_machine(pause).await.unwrap();
        assert!(pause.into_inner().success);
        let mut target = target_pod(&source, &vmi, "target", &[]).await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        let arrived = target.arrival().await;
        assert_eq!((arrived.status(), arrived.reason()), ("Paused", "User"));
        has_left(&mut source, &vmi).await;
    });
}

#[test]
// D-mig-6 (docs/differences.md).
fn a_guest_that_was_paused_for_a_migration_runs_on_when_that_fails() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("woken")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        let late = json!({"Bandwidth": SLOW, "CompletionTimeoutPerGiB": 3, "AllowWorkloadDisruption": true});
        begin(&source, &vmi, late).await;
        let is_paused = |event: &Event| {
            let mode = &migration(&event.domain)["Mode"];
            (event.status(), event.reason()) == ("Paused", "Migration") && mode == "Paused"
        };
        source.handler.event("of the pause", is_paused).await;
        // Paused it has twice the time, which is too short as well.
        aborted(&mut source, &vmi).await;
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
    });
}

#[test]
fn disks_of_the_pod_are_copied() {
    migrate(async {
        let vmi = Vmi::new("copied")
            .volume(
                json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}}),
                json!({"name": "seed", "disk": {"bus": "virtio"}}),
            )
            .volume(
                json!({"name": "scratch", "emptyDisk": {"capacity": "8Mi"}}),
                json!({"name": "scratch", "disk": {"bus": "virtio"}}),
            );
        let (mut source, mut guest) = source_pod(&vmi, &[]).await;
        guest.run("mark=kept").await;
        guest
            .run("echo written | dd of=/dev/vdc conv=fsync 2>/dev/null")
            .await;
        let read = "echo 3 >/proc/sys/vm/drop_caches; md5sum </dev/vdb; md5sum </dev/vdc";
        let content = guest.run(read).await;
        let image = "/var/run/kubevirt-ephemeral-disks/cloud-init-data/default/copied/noCloud.iso";
        let size = std::fs::metadata(source.path(image)).unwrap().len();
        let vmi = vmi
            .migrating_to("target")
            .set("/status/migrationMethod", json!("BlockMigration"))
            .set("/status/volumeStatus/1/size", json!(size));
        let mut target = target_pod(&source, &vmi, "target", &[]).await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        has_moved(&mut source, &mut target, &vmi).await;
        assert_eq!(target.guest(&vmi).await.run(read).await, content);
    });
}

#[test]
fn a_migration_that_takes_too_long_is_aborted() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("too-long")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        let late = json!({"Bandwidth": SLOW, "CompletionTimeoutPerGiB": 1});
        begin(&source, &vmi, late).await;
        aborted(&mut source, &vmi).await;
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
    });
}
