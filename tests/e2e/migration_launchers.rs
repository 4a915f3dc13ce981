//! Launchers that are killed in the middle of a migration: with their pod, as everywhere, or alone
//! where the monitor starts the next one.

use serde_json::{Value, json};

use crate::faults::{Held, kill, launch};
use crate::harness::{
    MigrationProxies, RunningSides, SLOW, Vmi, aborted, begin, cancel, counts_on, failed, has_left,
    has_moved, migratable_pod, migrate, migration, migration_request, source_pod, target_pod,
};
use crate::monitor::launcher;

/// It lasts for some seconds.
const MODERATE: &str = "16Mi";

#[test]
fn a_source_that_dies_with_its_pod_leaves_no_guest_that_is_not_all_there() {
    migrate(async {
        let vmi = Vmi::new("source-dies");
        let mut source = migratable_pod("source");
        drop(vmi.clone().with_counter(&source));
        launch(&mut source, &vmi, "").await;
        let guest = source.count(&vmi).await;

        println!("when the guest has left");
        let first = vmi.clone().migrating_to("first");
        let mut target = target_pod(&source, &first, "first", &[]).await;
        target.sync_target_ok(&first).await;
        let proxies = MigrationProxies::new(&source, &target, &first);
        let request = migration_request(&source, &first, json!({}));
        let mut cmd = source.cmd();
        let call = async move { drop(cmd.migrate_virtual_machine(request).await) };
        let held = Held::during(&mut source, "migration.transferred", call).await;
        source.signal("KILL");
        source.exit().await;
        held.release().await;
        target.arrival().await;
        let moved = target.guest(&vmi).await;
        counts_on(&guest, &moved).await;
        target.sync_ok(&first).await;
        drop(proxies);

        println!("when it has not");
        let second = vmi.migrating_to("second");
        let last = target_pod(&target, &second, "second", &[]).await;
        last.sync_target_ok(&second).await;
        let proxies = MigrationProxies::new(&target, &last, &second);
        let sides = RunningSides::of(&target, &last, &second);
        begin(&target, &second, json!({"Bandwidth": SLOW})).await;
        proxies.until_copied(2 << 20).await;
        target.signal("KILL");
        target.exit().await;
        drop(proxies);
        last.give_up_arrival(&second).await;
        let states = sides.end();
        let arrived = states.iter().any(|[_, state]| state.starts_with("running"));
        assert!(!arrived, "{states:#?}");
    });
}

#[test]
// D-sup-16 (docs/differences.md).
fn a_launcher_that_is_started_again_on_either_side_sees_the_migration_end() {
    migrate(async {
        let vmi = Vmi::new("again");
        let restart = &["--restart-launcher"];
        let (mut source, guest) = source_pod(&vmi, restart).await;
        let first = vmi.clone().migrating_to("first");
        let mut target = target_pod(&source, &first, "first", &[]).await;
        target.sync_target_ok(&first).await;
        let proxies = MigrationProxies::new(&source, &target, &first);
        let sides = RunningSides::of(&source, &target, &first);
        begin(&source, &first, json!({"Bandwidth": MODERATE})).await;
        proxies.until_copied(4 << 20).await;
        kill(&[launcher(&source)]);
        source.departure().await;
        target.arrival().await;
        let moved = target.guest(&vmi).await;
        counts_on(&guest, &moved).await;
        sides.end();
        target.sync_ok(&first).await;
        drop(proxies);

        let second = vmi.migrating_to("second");
        let mut last = target_pod(&target, &second, "second", restart).await;
        last.sync_target_ok(&second).await;
        let proxies = MigrationProxies::new(&target, &last, &second);
        let sides = RunningSides::of(&target, &last, &second);
        begin(&target, &second, json!({"Bandwidth": MODERATE})).await;
        proxies.until_copied(4 << 20).await;
        kill(&[launcher(&last)]);
        last.wait_until_ready().await;
        // Preparing it again would take QEMU's files.
        last.sync_target_ok(&second).await;
        has_left(&mut target, &second).await;
        let arrived = last.arrival().await;
        let metadata = migration(&arrived.domain);
        assert_eq!(metadata["UID"], second.migration_uid(), "{metadata}");
        let again = last.guest(&second).await;
        counts_on(&moved, &again).await;
        sides.end();
    });
}

#[test]
// D-sup-16 (docs/differences.md).
fn a_launcher_that_is_started_again_cancels_the_migration_and_reports_its_failure() {
    migrate(async {
        let vmi = Vmi::new("reported");
        let (mut source, guest) = source_pod(&vmi, &["--restart-launcher"]).await;
        // The third death in a minute would be the pod's end.
        for end in ["cancelled-while-paused", "target-killed"] {
            println!("{end}");
            let vmi = vmi.clone().migrating_to(end);
            let target = target_pod(&source, &vmi, end, &[]).await;
            target.sync_target_ok(&vmi).await;
            let proxies = MigrationProxies::new(&source, &target, &vmi);
            // One that may pause its guest does so after a short time.
            let may_pause = json!({
                "Bandwidth": SLOW, "CompletionTimeoutPerGiB": 3, "AllowWorkloadDisruption": true,
            });
            if end == "cancelled-while-paused" {
                begin(&source, &vmi, may_pause).await;
                let is_paused = |it: &Value| it["Status"]["Reason"] == "Migration";
                source.domain_until("paused to migrate", is_paused).await;
            } else {
                begin(&source, &vmi, json!({"Bandwidth": SLOW})).await;
                proxies.until_copied(2 << 20).await;
            }
            let killed = launcher(&source);
            kill(&[killed]);
            let has_ended = || !std::path::Path::new(&format!("/proc/{killed}")).exists();
            source.until("the launcher has ended", has_ended).await;
            source.wait_until_ready().await;
            source.handler.forget();
            let has_begun = |domain: &Value| {
                let migration = migration(domain);
                migration["UID"] == vmi.migration_uid() && migration["EndTimestamp"].is_null()
            };
            source.domain_until("still migrates", has_begun).await;
            if end != "target-killed" {
                cancel(&source, &vmi).await;
                aborted(&mut source, &vmi).await;
            } else {
                target.signal("KILL");
                failed(&mut source, &vmi).await;
            }
            drop((proxies, target));
            guest.ticks_on().await;
        }
        let vmi = vmi.migrating_to("last");
        let mut target = target_pod(&source, &vmi, "last", &[]).await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        has_moved(&mut source, &guest, &mut target, &vmi).await;
    });
}
