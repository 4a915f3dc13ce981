//! Faults of a live migration: of the network in each phase, of libvirt's daemons, of the launchers
//! and their hooks. The guest runs on exactly one side at any time, and on one at the end.

use std::future::pending;
use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::faults::kill;
use crate::full_disk::SmallFs;
use crate::harness::{
    MigratingVm, MigrationProxies, Moment, Network, Pod, RunningSides, SLOW, SOCKET_DIR, Vmi,
    begin, counts_on, failed, has_left, migratable_pod, migrate, share_image,
};
use crate::monitor::launcher;

#[test]
fn a_network_that_is_lost_in_any_phase_leaves_the_guest_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::counting("lost").await;
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
        let mut vm = MigratingVm::counting("hangs").await;
        for when in [Moment::Prepared, Moment::Copied(2 << 20), Moment::Finish] {
            vm.stays_when(when, Network::Hangs).await;
        }
        vm.moves().await;
    });
}

/// libvirt's answer that the guest runs on the target does not come. What keeps the guest from
/// running on the source as well is QEMU's lock on the disk's file.
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
        let mut vm = MigratingVm::counting("unheard").await;
        runs_on_the_target_alone(&mut vm, Network::Lost, |_| {}).await;
        let kill_daemon = |source: &Pod| kill(&source.libvirt_daemons());
        runs_on_the_target_alone(&mut vm, Network::Hangs, kill_daemon).await;
        vm.moves().await;
    });
}

#[test]
fn a_daemon_that_is_killed_on_either_side_leaves_the_guest_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::counting("daemons").await;
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
        let mut vm = MigratingVm::counting("orphan").await;
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
        assert_eq!(target.commands(), [""; 0], "{}", target.log_tail());
    });
}

#[test]
fn a_target_that_cannot_take_the_guest_leaves_it_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::counting("rejected").await;
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

/// Of the launcher, in kB: a few documents of the longest length.
const MAX_MORE_MEMORY: u64 = 64 << 10;

/// The most memory that the launcher has had, in kB.
fn most_memory(pod: &Pod) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", launcher(pod))).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    most.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

/// What a stranger sends who has come as far as the target's sockets.
#[derive(Debug, Clone, Copy)]
enum Stranger {
    Silent,
    Garbage,
    /// Until the other side closes the connection, or takes no more.
    Endless,
    /// It ends its own half at once, and goes on to read.
    HalfOpen,
}

impl Stranger {
    const ALL: [Self; 4] = [Self::Silent, Self::Garbage, Self::Endless, Self::HalfOpen];

    /// Connects, and stays among the strangers until they are dropped.
    async fn comes(self, socket: &Path, strangers: &mut JoinSet<()>) {
        let stream = UnixStream::connect(socket).await.unwrap();
        strangers.spawn(self.stays(stream));
    }

    async fn stays(self, mut stream: UnixStream) {
        match self {
            Self::Silent => {}
            Self::Garbage => drop(stream.write_all(b"\x7f\xff\xff\xff<domain>").await),
            Self::Endless => while stream.write_all(&[b'<'; 64 << 10]).await.is_ok() {},
            Self::HalfOpen => drop(stream.shutdown().await),
        }
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        pending().await
    }
}

#[test]
fn strangers_at_the_targets_sockets_do_not_keep_the_guest_away() {
    migrate(async {
        let mut vm = MigratingVm::counting("strangers").await;
        let (mut target, vmi) = vm.target().await;
        let before = most_memory(&target);
        let mut strangers = JoinSet::new();
        for socket in [
            "/var/run/kubevirt/migration-hook-socket",
            "/var/run/libvirt/virtqemud-sock",
            "/var/run/kubevirt/sockets/launcher-sock",
        ] {
            let socket = target.path(socket);
            for stranger in Stranger::ALL.repeat(3) {
                stranger.comes(&socket, &mut strangers).await;
            }
        }
        let _proxies = MigrationProxies::new(&vm.pod, &target, &vmi);
        let sides = RunningSides::of(&vm.pod, &target, &vmi);
        begin(&vm.pod, &vmi, json!({})).await;
        has_left(&mut vm.pod, &vmi).await;
        target.arrival().await;
        let moved = target.guest(&vmi).await;
        counts_on(&vm.guest, &moved).await;
        sides.end();
        let more = most_memory(&target) - before;
        println!("{more} kB more");
        assert!(more < MAX_MORE_MEMORY, "{more} kB");
    });
}

/// The target's QEMU takes the first connection for the source's.
#[test]
fn a_stranger_at_the_targets_qemu_leaves_the_guest_where_it_was() {
    migrate(async {
        let mut vm = MigratingVm::counting("intruder").await;
        for stranger in Stranger::ALL {
            println!("{stranger:?}");
            let (target, vmi) = vm.target().await;
            let (when, how) = (Moment::Prepared, Network::Hangs);
            let proxies = MigrationProxies::failing(&vm.pod, &target, &vmi, when, how);
            let sides = RunningSides::of(&vm.pod, &target, &vmi);
            begin(&vm.pod, &vmi, json!({})).await;
            proxies.have_failed().await;
            let socket = format!("{SOCKET_DIR}/{}-49152-source.sock", vmi.uid());
            let socket = target.path(&socket);
            let mut strangers = JoinSet::new();
            stranger.comes(&socket, &mut strangers).await;
            proxies.recover();
            println!("{}", vm.stays(target, &vmi, sides).await);
        }
        vm.moves().await;
    });
}

#[test]
// D-mig-22 (docs/differences.md).
fn a_guest_whose_disk_is_full_arrives_and_goes_on_when_there_is_space() {
    migrate(async {
        const IMAGE: &str = "/var/run/kubevirt-private/vmi-disks/data/disk.img";
        let mut source = migratable_pod("source");
        let dir = |pod: &Pod| pod.path(IMAGE).parent().unwrap().to_path_buf();
        let Some(fs) = SmallFs::at(dir(&source), 4) else {
            return;
        };
        std::fs::File::create(source.path(IMAGE))
            .unwrap()
            .set_len(16 << 20)
            .unwrap();
        let vmi = Vmi::new("arrivesfull").with_image(&source).volume(
            json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
            json!({"name": "data", "serial": "DATA", "disk": {"bus": "virtio"}}),
        );
        source.launch(&vmi, &[]);
        source.wait_until_ready().await;
        let mut guest = source.boot(&vmi).await;
        let device = guest.run("disks | grep DATA | cut -d' ' -f1").await;
        let write = format!(
            "tr '\\0' x </dev/zero | dd bs=1M count=8 iflag=fullblock of=/dev/{device}; sync; echo it is writ''ten"
        );
        guest.send(&write).await;
        source.handler.status("Paused").await;

        let paused = json!([{"type": "Paused", "status": "True", "reason": "PausedIOError"}]);
        let vmi = vmi.migrating_to("target").set("/status/conditions", paused);
        let mut target = migratable_pod("target");
        share_image(&source, &target);
        let _same = fs.also_at(dir(&target));
        target.launch(&vmi, &[]);
        target.wait_until_ready().await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        has_left(&mut source, &vmi).await;
        // libvirt does not say there what the guest was paused for.
        let arrived = target.arrival().await;
        assert_eq!((arrived.status(), arrived.reason()), ("Paused", "User"));
        // What the guest writes while nobody is connected is lost.
        let mut moved = target.guest(&vmi).await;
        fs.grow(24);
        target.sync_ok(&vmi).await;
        target.handler.status("Running").await;
        moved.until("it is written").await;
        target.end(&vmi).await;
    });
}
