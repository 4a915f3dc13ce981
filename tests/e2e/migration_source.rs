//! Live migration as the source's launcher does it: MigrateVirtualMachine, what virt-handler sees
//! meanwhile, cancellation, and everything that can go wrong on the way. Wherever a migration ends,
//! the guest runs on exactly one side.

use std::time::Duration;

use api::proto::cmd::v1::{EmptyRequest, FreezeRequest};
use serde_json::{Value, json};

use crate::faults::{self, Held};
use crate::harness::{
    Event, Guest, MigrationProxies, Pod, SLOW, Stopped, Vmi, aborted, begin, cancel, failed,
    has_moved, migratable_pod, migrate, migrate_call, migration, migration_request, pair,
    source_pod, source_pod_with_linux, target_pod,
};

/// A failed migration leaves the guest here, and another one takes it away.
async fn stays_and_moves_later(mut source: Pod, guest: Guest, vmi: Vmi) {
    guest.ticks_on().await;
    let state = source
        .domain_until("runs", |it| it["Status"]["Status"] == "Running")
        .await;
    assert_eq!(state["Status"]["Status"], "Running");
    let vmi = vmi.migrating_to("second");
    let mut second = target_pod(&source, &vmi, "second", &[]).await;
    second.sync_target_ok(&vmi).await;
    let _proxies = MigrationProxies::new(&source, &second, &vmi);
    begin(&source, &vmi, json!({})).await;
    has_moved(&mut source, &guest, &mut second, &vmi).await;
}

#[test]
fn a_guest_is_migrated_once_however_often_virt_handler_asks() {
    migrate(async {
        let (mut source, guest, mut target, vmi) = pair(Vmi::new("once")).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        begin(&source, &vmi, json!({})).await;
        let end = has_moved(&mut source, &guest, &mut target, &vmi).await;
        assert_eq!(end["Mode"], "PreCopy");
        let again = migrate_call(&source, &vmi, json!({})).await;
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
        proxies.until_copied(2 << 20).await;
        let domain = source.domain().await;
        assert_eq!(domain["Status"]["Status"], "Running");
        let progress = migration(&domain);
        assert_eq!(
            (&progress["UID"], &progress["EndTimestamp"]),
            (&json!(vmi.migration_uid()), &Value::Null)
        );
        // virt-handler syncs a VMI that it has read before the migration began.
        source.sync_ok(&vmi).await;
        source.hotplug_image("late", 1 << 20);
        let with_disk = vmi.clone().hotplugged("late", "LATE", "scsi");
        let sync = source.sync(&with_disk).await;
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

        source.kill(&vmi).await;
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
        proxies.until_copied(2 << 20).await;
        // It is the user's, although libvirt resumes the guest.
        source.pause(&vmi).await;
        cancel(&source, &vmi).await;
        cancel(&source, &vmi).await;
        aborted(&mut source, &vmi).await;
        source
            .domain_until("paused", |it| it["Status"]["Reason"] == "User")
            .await;
        assert_eq!(source.domain().await["Status"]["Status"], "Paused");
        source.unpause(&vmi).await;
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
fn a_migration_that_waits_for_another_change_can_be_cancelled() {
    migrate(async {
        let vmi = Vmi::new("waiting");
        let (mut source, _guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("nowhere");
        let qemu = Stopped::now(source.guests());
        let (mut cmd, request) = (source.cmd(), source.request(vmi.value()));
        let held = tokio::spawn(async move { drop(cmd.pause_virtual_machine(request).await) });
        tokio::time::sleep(Duration::from_secs(2)).await;
        begin(&source, &vmi, json!({})).await;
        cancel(&source, &vmi).await;
        aborted(&mut source, &vmi).await;
        assert!(!held.is_finished(), "nothing was in its way");
        drop(qemu);
        held.await.unwrap();
    });
}

/// A source that can be held.
async fn source_with_points(vmi: &Vmi) -> (Pod, Guest) {
    let mut source = migratable_pod("source");
    drop(vmi.clone().with_counter(&source));
    faults::launch(&mut source, vmi, "").await;
    let guest = source.count(vmi).await;
    (source, guest)
}

#[test]
fn what_a_cancelled_migration_still_detaches_keeps_other_changes_waiting() {
    migrate(async {
        let vmi = Vmi::new("detaching");
        let (mut source, _guest) = source_with_points(&vmi).await;
        let vmi = vmi.migrating_to("nowhere");
        let request = migration_request(&source, &vmi, json!({}));
        let mut cmd = source.cmd();
        let call = async move { drop(cmd.migrate_virtual_machine(request).await) };
        let held = Held::during(&mut source, "migration.detaching", call).await;
        cancel(&source, &vmi).await;
        aborted(&mut source, &vmi).await;
        let pause = async || {
            let request = source.request(vmi.value());
            let answer = source.cmd().pause_virtual_machine(request).await;
            answer.unwrap().into_inner()
        };
        let early = pause().await;
        assert!(!early.success, "{early:?}");
        held.release().await;
        let paused = pause().await;
        assert!(paused.success, "{paused:?}");
    });
}

#[test]
fn an_abort_that_comes_late_keeps_the_next_migration_waiting() {
    migrate(async {
        let vmi = Vmi::new("late-abort");
        let (mut source, guest) = source_with_points(&vmi).await;
        let vmi = vmi.migrating_to("target");
        let target = target_pod(&source, &vmi, "target", &[]).await;
        target.sync_target_ok(&vmi).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
        proxies.until_copied(2 << 20).await;
        let (mut cmd, request) = (source.cmd(), source.request(vmi.value()));
        let call = async move { drop(cmd.cancel_virtual_machine_migration(request).await) };
        let held = Held::during(&mut source, "migration.aborting", call).await;
        target.signal("KILL");
        source.log_has("Live migration failed.").await;
        let next = vmi.clone().migrating_to("second");
        let early = migrate_call(&source, &next, json!({})).await;
        assert!(early.message.contains("is in progress"), "{early:?}");
        held.release().await;
        failed(&mut source, &vmi).await;
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
    });
}

#[test]
fn a_target_that_cannot_be_reached_fails_the_migration_in_libvirts_words() {
    migrate(async {
        let vmi = Vmi::new("alone");
        let (mut source, guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("nowhere");
        begin(&source, &vmi, json!({})).await;
        let end = failed(&mut source, &vmi).await;
        let reason = end["FailureReason"].as_str().unwrap();
        assert!(reason.contains("-source.sock"), "{end}");
        guest.ticks_on().await;
    });
}

#[test]
fn a_target_that_is_killed_leaves_the_guest_to_the_source() {
    migrate(async {
        let (mut source, guest, target, vmi) = pair(Vmi::new("bereft")).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
        proxies.until_copied(2 << 20).await;
        target.signal("KILL");
        failed(&mut source, &vmi).await;
        drop((proxies, target));
        stays_and_moves_later(source, guest, vmi).await;
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
        let (mut source, mut guest) = source_pod_with_linux(&vmi).await;
        guest.start_ticks().await;
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
        let empty = std::fs::read(target.path(image)).unwrap();
        assert!(empty.len() as u64 == size && empty.iter().all(|byte| *byte == 0));
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        has_moved(&mut source, &guest, &mut target, &vmi).await;
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
