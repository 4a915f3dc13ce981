//! What a guest is, has and does while it migrates: paused, shut down on the way, frozen, with
//! disks that were plugged in or are tracked, with sidecars, and again right afterwards.

use std::path::Path;

use api::proto::cmd::v1::FreezeRequest;
use serde_json::json;

use crate::guest_agent::guest_info_until;
use crate::harness::{
    MigratingVm, MigrationProxies, Moment, Network, Pod, RunningSides, SLOW, Vmi, begin, counts_on,
    failed, has_left, migratable_pod, migrate, share_image,
};
use crate::sidecars::{Sidecar, script};

const OVERLAYS: &str = "/var/run/kubevirt-private/libvirt/qemu/cbt";
const PLUGGED: &str = "/var/run/kubevirt/hotplug-disks/data.img";

#[test]
fn a_guest_moves_on_as_soon_as_it_has_arrived() {
    migrate(async {
        let mut vm = MigratingVm::counting("moves-on").await;
        for _ in 0..3 {
            vm.moves().await;
        }
        vm.pod.end(&vm.vmi).await;
        assert_eq!(vm.pod.exit_code().await, 0);
    });
}

#[test]
fn a_paused_guest_stays_paused_wherever_it_is() {
    migrate(async {
        let mut vm = MigratingVm::counting("still").await;
        vm.pod.pause(&vm.vmi).await;
        let paused = json!([{"type": "Paused", "status": "True"}]);
        vm.vmi = vm.vmi.set("/status/conditions", paused);

        let (target, vmi) = vm.target().await;
        let (when, how) = (Moment::Finish, Network::Lost);
        let proxies = MigrationProxies::failing(&vm.pod, &target, &vmi, when, how);
        let sides = RunningSides::of(&vm.pod, &target, &vmi);
        begin(&vm.pod, &vmi, json!({})).await;
        proxies.have_failed().await;
        failed(&mut vm.pod, &vmi).await;
        let is_users = |domain: &serde_json::Value| domain["Status"]["Reason"] == "User";
        vm.pod.domain_until("paused by its user", is_users).await;
        vm.pod.sync_ok(&vm.vmi).await;
        assert_eq!(vm.pod.domain().await["Status"]["Status"], "Paused");
        sides.end();
        target.give_up_arrival(&vmi).await;
        // QEMU migrates no guest that has stood still since it was all sent.
        vm.pod.unpause(&vmi).await;
        vm.guest.ticks_on().await;
        vm.pod.pause(&vmi).await;

        let (mut target, vmi) = vm.target().await;
        let _proxies = MigrationProxies::new(&vm.pod, &target, &vmi);
        let sides = RunningSides::of(&vm.pod, &target, &vmi);
        begin(&vm.pod, &vmi, json!({})).await;
        has_left(&mut vm.pod, &vmi).await;
        let arrived = target.arrival().await;
        let moved = target.guest(&vmi).await;
        assert_eq!((arrived.status(), arrived.reason()), ("Paused", "User"));
        target.sync_ok(&vmi).await;
        target.unpause(&vmi).await;
        counts_on(&vm.guest, &moved).await;
        sides.end();
    });
}

#[test]
fn a_guest_that_shuts_down_on_the_way_has_ended_on_both_sides() {
    migrate(async {
        let mut vm = MigratingVm::counting("off").await;
        let (target, vmi) = vm.target().await;
        let proxies = MigrationProxies::new(&vm.pod, &target, &vmi);
        let sides = RunningSides::of(&vm.pod, &target, &vmi);
        begin(&vm.pod, &vmi, json!({"Bandwidth": SLOW})).await;
        proxies.until_copied(2 << 20).await;
        vm.guest.send("off").await;
        failed(&mut vm.pod, &vmi).await;
        let is_off = |domain: &serde_json::Value| domain["Status"]["Reason"] == "Shutdown";
        vm.pod.domain_until("shut down by its guest", is_off).await;
        let states = sides.end();
        let on_target = states
            .iter()
            .filter(|[_, state]| state.starts_with("running"));
        assert_eq!(on_target.count(), 0, "{states:#?}");
        target.give_up_arrival(&vmi).await;
        vm.pod.delete(&vmi).await;
        assert_eq!(vm.pod.exit_code().await, 0);
    });
}

/// A pod with a sidecar that gives the guest a serial number, and says in a file that it was asked.
fn with_sidecar(pod: &Pod, programs: &Path) -> Sidecar {
    let serial = r#"touch "$(dirname "$0")/asked"; printf '%s' "$4" |
        sed 's|</system>|<entry name="serial">Hooked-Ab42</entry></system>|'"#;
    script(programs, "onDefineDomain", serial);
    Sidecar::shim(pod, 0, "v1alpha3", programs)
}

async fn freeze(pod: &Pod, vmi: &Vmi) {
    let request = FreezeRequest {
        vmi: pod.request(vmi.value()).vmi,
        unfreeze_timeout_seconds: 0,
    };
    let answer = pod.cmd().freeze_virtual_machine(request).await.unwrap();
    let answer = answer.into_inner();
    assert!(answer.success, "{}", answer.message);
}

#[test]
fn disks_that_were_plugged_or_are_tracked_a_sidecars_work_and_a_freeze_go_with_the_guest() {
    migrate(async {
        let tracking = json!({"state": "Initializing"});
        let vmi = Vmi::new("laden").set("/status/changedBlockTracking", tracking);
        let programs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut source = migratable_pod("source");
        drop(vmi.clone().with_image(&source));
        let _of_source = with_sidecar(&source, programs[0].path());
        source.launch(&vmi, &["--hook-sidecars", "1"]);
        source.wait_until_ready().await;
        let mut guest = source.boot(&vmi).await;
        source.hotplug_image("data", 1 << 20);
        let vmi = vmi.hotplugged("data", "DATA", "scsi");
        let vmi = vmi.set("/status/changedBlockTracking/state", json!("Enabled"));
        // Its overlay is made while virt-handler has not seen it attached.
        let phase = "/status/volumeStatus/1/phase";
        let plugs = vmi.clone().set(phase, json!("MountedToPod"));
        source.sync_ok(&plugs).await;
        let has_data = |disks: &str| disks.contains("DATA");
        guest.run_until("disks", has_data).await;
        let machine = guest.run("machine").await;
        assert!(machine.contains("product_serial: Hooked-Ab42"), "{machine}");
        source.handler.agent().await;
        guest.start_ticks().await;
        freeze(&source, &vmi).await;

        let vmi = vmi.migrating_to("target");
        let mut target = migratable_pod("target");
        share_image(&source, &target);
        let overlays = std::fs::read_dir(source.path(&format!("{OVERLAYS}/x")).parent().unwrap());
        let overlays: Vec<_> = overlays
            .unwrap()
            .map(|it| it.unwrap().file_name())
            .collect();
        assert_eq!(overlays.len(), 2, "{overlays:?}");
        let of_overlays = overlays
            .iter()
            .map(|name| format!("{OVERLAYS}/{}", name.display()));
        for path in of_overlays.chain([PLUGGED.to_owned()]) {
            std::fs::hard_link(source.path(&path), target.path(&path)).unwrap();
        }
        let _of_target = with_sidecar(&target, programs[1].path());
        target.launch(&vmi, &["--hook-sidecars", "1"]);
        target.wait_until_ready().await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        let sides = RunningSides::of(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        has_left(&mut source, &vmi).await;
        target.arrival().await;
        let mut moved = target.guest(&vmi).await;
        counts_on(&guest, &moved).await;
        sides.end();

        target.sync_ok(&vmi).await;
        target.finalize(&vmi, &[]).await;
        assert!(
            programs[1].path().join("asked").exists(),
            "the target's sidecar"
        );
        let frozen = |info: &serde_json::Value| info["fsFreezeStatus"] == "frozen";
        guest_info_until(&mut target, "frozen", frozen).await;
        let thaw = target.request(vmi.value());
        let thaw = target.cmd().unfreeze_virtual_machine(thaw).await.unwrap();
        assert!(thaw.into_inner().success);
        let thawed = |info: &serde_json::Value| info["fsFreezeStatus"] == "thawed";
        guest_info_until(&mut target, "thawed", thawed).await;
        let write =
            "yes moved | head -c 4096 | dd of=/dev/sda conv=fsync 2>/dev/null; sync; echo done";
        assert_eq!(moved.run(write).await, "done");
        let written = std::fs::read(target.path(PLUGGED)).unwrap();
        assert!(
            written.starts_with(b"moved\nmoved\n"),
            "the volume itself has the data"
        );
        let spec = target.domain().await["Spec"].clone();
        for disk in spec["Devices"]["Disks"].as_array().unwrap() {
            assert!(
                disk["Source"]["File"]
                    .as_str()
                    .unwrap()
                    .starts_with(OVERLAYS),
                "{disk}"
            );
        }
    });
}
