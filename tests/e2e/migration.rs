//! Live migration between launchers, each with a libvirt of its own. The test is both
//! virt-handlers: it prepares the target, joins the sockets, and waits for what the two would wait
//! for.

use serde_json::json;

use crate::harness::{
    ClusterNetwork, Event, Guest, MigrationProxies, Pod, User, Vmi, counts_on, in_container,
    in_container_with_network, made_by_v1_10, migratable_pod, migration, share_image, source_pod,
    target_pod, write_name_resolution,
};

/// As slow as libvirt lets a migration be, in MiB/s: it lasts for minutes.
const SLOW: &[&str] = &["--bandwidth", "1"];

/// Both pods have the same paths, and sockets of the same names: they are containers.
fn migrate(test: impl Future<Output = ()>) {
    in_container(User::Qemu, test);
}

/// Migrates the VM to the pod that the VMI names, which is not prepared yet.
async fn move_to(source: &mut Pod, target: &mut Pod, vmi: &Vmi) -> Event {
    target.sync_target_ok(vmi).await;
    let proxies = MigrationProxies::new(source, target, vmi);
    let migrated = source.virsh_migrate(vmi, &[]).await;
    let message = String::from_utf8_lossy(&migrated.stderr);
    let log = target.log_tail();
    assert!(migrated.status.success(), "{message}\n{log}");
    drop(proxies);
    let arrived = target.arrival().await;
    source.departure().await;
    arrived
}

/// The guest, which has gone on counting.
async fn goes_on(before: &Guest, target: &Pod, vmi: &Vmi) -> Guest {
    let guest = target.guest(vmi).await;
    counts_on(before, &guest).await;
    guest
}

#[test]
fn a_guest_moves_to_another_launcher_and_back() {
    migrate(async {
        let vmi = Vmi::new("moves");
        let (mut source, guest) = source_pod(&vmi, &[]).await;
        let there = vmi.clone().migrating_to("there");
        let mut second = target_pod(&source, &vmi, "there", &[]).await;
        let arrived = move_to(&mut source, &mut second, &there).await;
        let metadata = migration(&arrived.domain);
        assert_eq!(metadata["UID"], there.migration_uid());
        assert!(!metadata["StartTimestamp"].is_null());
        assert_eq!(arrived.domain["ObjectMeta"]["uid"], vmi.uid());
        let guest = goes_on(&guest, &second, &vmi).await;
        second.sync_ok(&there).await;
        second.finalize(&there, &[]).await;
        second.finalize(&there, &[]).await;
        // libvirt has the metadata too, for a launcher that comes later.
        let name = format!("default_{}", vmi.name());
        let xml = second.virsh(&["dumpxml", &name]);
        assert!(xml.contains(there.migration_uid()), "{xml}");
        source.end(&there).await;
        assert_eq!(source.exit_code().await, 0);

        let back = vmi.clone().migrating_to("back");
        let mut third = target_pod(&second, &vmi, "back", &[]).await;
        move_to(&mut second, &mut third, &back).await;
        goes_on(&guest, &third, &vmi).await;
        assert_eq!(third.domain().await["Status"]["Status"], "Running");
        third.end(&back).await;
        assert_eq!(third.exit_code().await, 0);
    });
}

#[test]
fn libvirts_hook_asks_the_target_and_marks_the_source() {
    hook_asks_the_target_and_marks_the_source();
}

/// It always wants the hook, and has no flag for it.
#[test]
fn libvirts_hook_asks_the_target_of_a_newer_virt_controller() {
    made_by_v1_10();
    hook_asks_the_target_and_marks_the_source();
}

fn hook_asks_the_target_and_marks_the_source() {
    migrate(async {
        let vmi = Vmi::new("hook");
        let marker = "/var/run/kubevirt-private/backend-storage-meta/migrated";
        let (mut source, _guest) = source_pod(&vmi, &[]).await;
        let marker = source.path(marker);
        crate::harness::give_to_qemu(marker.parent().unwrap());
        let vmi = vmi.migrating_to("target");
        let mut target = target_pod(&source, &vmi, "target", &[]).await;
        let socket = target.path("/var/run/kubevirt/migration-hook-socket");
        move_to(&mut source, &mut target, &vmi).await;
        target
            .log_has("Hook Server successfully processed and returned XML")
            .await;
        assert!(!socket.exists(), "it serves one domain");
        target.until("the marker", || marker.exists()).await;
    });
}

#[test]
fn a_target_that_libvirts_hook_cannot_ask_gets_no_guest() {
    migrate(async {
        let vmi = Vmi::new("unasked");
        let (source, guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("target");
        let target = target_pod(&source, &vmi, "target", &[]).await;
        // Nothing is prepared, but QEMU's directory is there.
        let dir = target.path("/var/run/kubevirt/migrationproxy/x");
        crate::harness::give_to_qemu(dir.parent().unwrap());
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        let migrated = source.virsh_migrate(&vmi, &[]).await;
        let message = String::from_utf8_lossy(&migrated.stderr).into_owned();
        assert!(!migrated.status.success());
        assert!(message.contains("migration-hook-socket"), "{message}");
        guest.ticks_on().await;
        assert!(target.domain().await.is_null());
    });
}

#[test]
fn a_target_is_prepared_as_often_as_asked_until_its_guest_is_there() {
    migrate(async {
        let vmi = Vmi::new("twice");
        let (mut source, guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("target");
        let mut target = target_pod(&source, &vmi, "target", &[]).await;
        target.sync_target_ok(&vmi).await;
        target.sync_target_ok(&vmi).await;
        let blocked = vmi.clone().set(
            "/metadata/annotations",
            json!({"kubevirt.io/func-test-block-migration-target-preparation": ""}),
        );
        let answer = target.sync_target(&blocked).await;
        let text = "Blocking preparation of migration target in order to satisfy a functional test condition";
        assert_eq!((answer.success, answer.message.as_str()), (false, text));
        move_to(&mut source, &mut target, &vmi).await;
        target.sync_target_ok(&vmi).await;
        goes_on(&guest, &target, &vmi).await;
        let sync = target.sync_target(&vmi).await;
        assert!(sync.success, "{}", sync.message);
    });
}

#[test]
fn while_a_guest_arrives_reads_are_answered_and_changes_refused() {
    migrate(async {
        let vmi = Vmi::new("arrives");
        let (mut source, guest) = source_pod(&vmi, &[]).await;
        let vmi = vmi.migrating_to("target");
        let mut target = target_pod(&source, &vmi, "target", &[]).await;
        target.sync_target_ok(&vmi).await;
        let proxies = MigrationProxies::new(&source, &target, &vmi);
        let slow = source.virsh_migrate(&vmi, SLOW);
        let during = async {
            let is_waiting = |event: &Event| event.reason() == "Migration";
            let event = target.handler.event("of the arrival", is_waiting).await;
            assert_eq!((event.kind.as_str(), event.status()), ("ADDED", "Paused"));
            assert_eq!(target.domain().await["Status"]["Reason"], "Migration");
            let answer = target.sync(&vmi).await;
            assert!(!answer.success && answer.message.contains("migrating"));
            target.sync_target_ok(&vmi).await;
            // virt-handler gives the migration up.
            target.signal_cleanup(&vmi).await;
            assert_eq!(target.exit_code().await, 0);
        };
        let (migrated, ()) = tokio::join!(slow, during);
        assert!(!migrated.status.success());
        guest.ticks_on().await;
        drop(proxies);
        assert_eq!(source.domain().await["Status"]["Status"], "Running");
        source.end(&vmi).await;
        assert_eq!(source.exit_code().await, 0);
    });
}

#[test]
fn a_target_that_waits_ends_when_virt_handler_means_it() {
    migrate(async {
        let vmi = Vmi::new("given-up").migrating_to("another");
        let mut target = migratable_pod("target");
        drop(vmi.clone().with_counter(&target));
        target.launch(&vmi, &[]);
        target.wait_until_ready().await;
        target.sync_target_ok(&vmi).await;
        target.signal_cleanup(&vmi).await;
        // It is another pod that is meant.
        target.sync_target_ok(&vmi).await;
        target.signal_cleanup(&vmi.migrating_to("target")).await;
        assert_ne!(target.exit_code().await, 0);
        let log = target.log().join("\n");
        assert!(log.contains("received early exit signal"), "{log}");
    });
}

#[test]
// D-mig-34 (docs/differences.md).
fn a_guest_that_libvirt_or_qemu_cannot_run_is_refused_by_name_and_the_target_ends() {
    migrate(async {
        let vmi = Vmi::new("foreign").migrating_to("target");
        let machine = json!({"type": "pc-q35-rhel9.6.0"});
        for (vmi, name) in [
            (
                vmi.clone().set("/status/machine", machine),
                "pc-q35-rhel9.6.0",
            ),
            (
                vmi.set("/spec/domain/cpu", json!({"model": "Pentium9"})),
                "Pentium9",
            ),
        ] {
            let mut target = migratable_pod("target");
            drop(vmi.clone().with_counter(&target));
            target.launch(&vmi, &[]);
            target.wait_until_ready().await;
            let answer = target.sync_target(&vmi).await;
            assert!(!answer.success);
            assert!(answer.message.contains(name), "{}", answer.message);
            // virt-controller fails the migration of a pod that has ended.
            assert_ne!(target.exit_code().await, 0);
        }
    });
}

#[test]
fn a_guest_on_the_network_sees_its_link_go_down_and_up_once() {
    in_container_with_network(User::Qemu, async {
        let cluster = ClusterNetwork::new();
        let vmi = Vmi::new("linked")
            .set("/spec/domain/devices/autoattachPodInterface", json!(true))
            .set(
                "/spec/domain/devices/interfaces",
                json!([{"name": "default", "model": "virtio", "masquerade": {}}]),
            )
            .set("/spec/networks", json!([{"name": "default", "pod": {}}]))
            .set(
                "/status/interfaces",
                json!([{"name": "default", "podInterfaceName": "eth0", "infoSource": ""}]),
            );
        let addresses = ["10.244.0.21", "10.244.0.22"];
        let mut source = migratable_pod("source");
        drop(vmi.clone().with_image(&source));
        write_name_resolution(&source, &vmi, addresses[0]);
        source.launch(&vmi, &[]);
        cluster.attach(&source, addresses[0]).masquerade();
        source.wait_until_ready().await;
        let mut guest = source.boot(&vmi).await;
        guest.start_ticks().await;

        let vmi = vmi.migrating_to("target");
        let mut target = migratable_pod("target");
        share_image(&source, &target);
        write_name_resolution(&target, &vmi, addresses[1]);
        target.launch(&vmi, &[]);
        cluster.attach(&target, addresses[1]).masquerade();
        target.wait_until_ready().await;
        move_to(&mut source, &mut target, &vmi).await;
        let mut guest = goes_on(&guest, &target, &vmi).await;
        let changes = "cat /sys/class/net/eth0/carrier_changes";
        let before: u32 = guest.run(changes).await.parse().unwrap();
        target.finalize(&vmi, &["default"]).await;
        let down_and_up = (before + 2).to_string();
        guest.run_until(changes, |now| now == down_and_up).await;
        target.finalize(&vmi, &["default"]).await;
        assert_eq!(guest.run(changes).await, down_and_up);
        let ping = "ping -c 1 -W 5 192.0.2.1";
        guest
            .run_until(ping, |text| text.contains(" 0% packet loss"))
            .await;
    });
}
