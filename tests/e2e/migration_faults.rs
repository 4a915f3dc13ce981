//! Faults of a live migration: of the network in each phase, of libvirt's daemons, of the launchers and their hooks. The
//! guest runs on exactly one side at any time, and on one at the end.

use serde_json::{Value, json};

use crate::faults::kill;
use crate::harness::{
    MigratingVm, MigrationProxies, Moment, Network, Pod, RunningSides, SLOW, begin, counts_on,
    failed, migrate,
};

#[test]
fn a_network_that_is_lost_in_any_phase_leaves_the_guest_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::booted("lost").await;
        for when in [
            Moment::Prepare,
            Moment::Prepared,
            Moment::Copied(2 << 20),
            Moment::Finish,
        ] {
            vm.stays_when(when, Network::Lost).await;
        }
        vm.moves().await;
    });
}

#[test]
fn a_network_that_hangs_in_any_phase_leaves_the_guest_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::booted("hangs").await;
        for when in [Moment::Prepared, Moment::Copied(2 << 20), Moment::Finish] {
            vm.stays_when(when, Network::Hangs).await;
        }
        vm.moves().await;
    });
}

/// libvirt's answer that the guest runs on the target does not come. What keeps the guest from running on the source as
/// well is QEMU's lock on the disk's file.
async fn runs_on_the_target_alone(vm: &mut MigratingVm, how: Network, then: impl FnOnce(&Pod)) {
    let (mut target, vmi) = vm.target().await;
    let proxies = MigrationProxies::failing(&vm.pod, &target, &vmi, Moment::Finished, how);
    let sides = RunningSides::of(&vm.pod, &target, &vmi);
    begin(&vm.pod, &vmi, json!({})).await;
    let moved = target.guest(&vmi).await;
    proxies.have_failed().await;
    then(&vm.pod);
    failed(&mut vm.pod, &vmi).await;
    target.arrival().await;
    let paused = |domain: &Value| domain["Status"]["Status"] == "Paused";
    vm.pod.domain_until("paused", paused).await;
    let sync = vm.pod.sync(&vmi).await;
    assert!(
        !sync.success && sync.message.contains("lock"),
        "{}",
        sync.message
    );
    target.sync_ok(&vmi).await;
    counts_on(&vm.guest, &moved).await;
    sides.end();
    vm.pod.end(&vmi).await;
    assert_eq!(vm.pod.exit_code().await, 0);
    (vm.pod, vm.guest) = (target, moved);
}

#[test]
fn an_answer_that_is_lost_leaves_the_guest_to_the_target_alone() {
    migrate(async {
        let mut vm = MigratingVm::booted("unheard").await;
        runs_on_the_target_alone(&mut vm, Network::Lost, |_| {}).await;
        let kill_daemon = |source: &Pod| kill(&source.libvirt_daemons());
        runs_on_the_target_alone(&mut vm, Network::Hangs, kill_daemon).await;
        vm.moves().await;
    });
}

#[test]
fn a_daemon_that_is_killed_on_either_side_leaves_the_guest_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::booted("daemons").await;
        for is_source in [true, false] {
            println!("of the source: {is_source}");
            let (target, vmi) = vm.target().await;
            let proxies = MigrationProxies::new(&vm.pod, &target, &vmi);
            let sides = RunningSides::of(&vm.pod, &target, &vmi);
            begin(&vm.pod, &vmi, json!({"Bandwidth": SLOW})).await;
            proxies.until_copied(2 << 20).await;
            let side = if is_source { &vm.pod } else { &target };
            kill(&side.libvirt_daemons());
            println!("{}", vm.stays(target, &vmi, sides).await);
        }
        vm.moves().await;
    });
}

/// The target's connections stay open, so that libvirt's keep-alive is all that tells it.
#[test]
// D-sup-15 (docs/differences.md).
fn a_target_whose_source_has_been_killed_ends_its_qemu() {
    migrate(async {
        let mut vm = MigratingVm::booted("orphan").await;
        let (mut target, vmi) = vm.target().await;
        let proxies = MigrationProxies::new(&vm.pod, &target, &vmi);
        begin(&vm.pod, &vmi, json!({"Bandwidth": SLOW})).await;
        proxies.until_copied(2 << 20).await;
        assert_eq!(target.guests().len(), 1);
        proxies.hang();
        vm.pod.signal("KILL");
        vm.pod.exit().await;
        // Nobody signals the target: it ends by itself, because its QEMU and libvirt's job have.
        assert_eq!(target.exit_code().await, 0);
        assert_eq!(target.processes(""), [0; 0], "{}", target.log_tail());
    });
}

#[test]
fn a_target_that_cannot_take_the_guest_leaves_it_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::booted("rejected").await;
        for missing in [
            "/var/run/kubevirt/migration-hook-socket",
            "/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img",
        ] {
            let (target, vmi) = vm.target().await;
            let _proxies = MigrationProxies::new(&vm.pod, &target, &vmi);
            let sides = RunningSides::of(&vm.pod, &target, &vmi);
            std::fs::remove_file(target.path(missing)).unwrap();
            begin(&vm.pod, &vmi, json!({})).await;
            let reason = vm.stays(target, &vmi, sides).await;
            let name = missing.rsplit('/').next().unwrap();
            assert!(reason.contains(name), "{reason}");
        }
        vm.moves().await;
    });
}
