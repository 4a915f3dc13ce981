//! What a pod takes beside its guest's memory, which decides how many VMs fit on a node. With
//! `LIMIT_MIB` each pod has that limit: its guest touches little of its own memory.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use super::rows::{Row, Rows, measured};
use super::{launchers, number};
use crate::backup::{self, Tracked};
use crate::harness::{
    Cgroup, MigrationProxies, Pod, User, Vmi, begin, give_to_qemu, has_left, migratable_pod,
    output_of, run, set_reference, share_image, source_pod, with_containers,
};
use crate::memory_dump_faults::{DIR as DUMPS, dump_to_the_end};
use crate::sidecars::{Sidecar, script, socket};

/// How often the cgroup is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How often it is looked at while pods rest, many at once.
const REST_LOOK: Duration = Duration::from_secs(1);
/// For how long a QEMU that ends may give its memory back.
const EXIT: Duration = Duration::from_millis(500);
/// For what follows a step to be done.
const SETTLE: Duration = Duration::from_secs(5);
const GUEST_MIB: u64 = 256;

/// A VM whose pod is measured.
struct Shape {
    name: &'static str,
    cpus: u64,
    /// EFI and a TPM.
    firmware: bool,
}

const SHAPES: [Shape; 4] = [
    Shape {
        name: "1 CPU",
        cpus: 1,
        firmware: false,
    },
    Shape {
        name: "4 CPUs",
        cpus: 4,
        firmware: false,
    },
    Shape {
        name: "16 CPUs",
        cpus: 16,
        firmware: false,
    },
    Shape {
        name: "1 CPU, EFI, TPM",
        cpus: 1,
        firmware: true,
    },
];

impl Shape {
    fn of(&self, vmi: Vmi, pod: &Pod) -> Vmi {
        let vmi = vmi
            .with_counter(pod)
            .set("/spec/domain/cpu/cores", json!(self.cpus));
        if !self.firmware {
            return vmi;
        }
        vmi.set(
            "/spec/domain/firmware/bootloader",
            json!({"efi": {"secureBoot": false}}),
        )
        .set("/spec/domain/devices/tpm", json!({}))
    }
}

#[test]
#[ignore = "it takes minutes: make bench-density"]
fn density() {
    with_containers(User::Qemu, || {
        let mut all = Rows::default();
        for _ in 0..number("RUNS", 3) {
            for (name, programs) in launchers() {
                set_reference(programs);
                for shape in &SHAPES {
                    all.push(format!("{}, {name}", shape.name), life(shape));
                }
                all.push(format!("migration, {name}"), migration());
                all.push(format!("20 sidecars, {name}"), sidecars());
            }
        }
        run(rests(&mut all));
        all.print();
    });
}

/// All shapes with all launchers, which rest for minutes at once. They share the files that they
/// use, so this is only about what each keeps.
async fn rests(all: &mut Rows) {
    let mut resting = Vec::new();
    for (name, programs) in launchers() {
        set_reference(programs);
        for shape in &SHAPES {
            let what = format!("{} for minutes, {name}", shape.name);
            resting.push((what, started(shape, REST_LOOK).await));
        }
    }
    sleep(SETTLE).await;
    let before: Vec<_> = resting.iter().map(|(_, (_, watch))| watch.take()).collect();
    sleep(Duration::from_secs(60 * number("MINUTES", 1))).await;
    for ((what, (_, watch)), before) in resting.iter().zip(before) {
        let row = [
            ("start, kept MiB", before),
            ("rest, kept MiB", watch.take()),
        ];
        let row = row.map(|(name, held)| (name.to_owned(), mib(held.kept)));
        all.push(what.clone(), row.into());
    }
    for (_, (mut vm, _)) in resting {
        vm.pod.end(&vm.vmi).await;
        vm.pod.exit_code().await;
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Memory in bytes that a cgroup is charged for.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// What the kernel cannot take back without swap: anonymous memory, tmpfs, its own for the pod.
    kept: u64,
    /// All but the files that nobody has read for long: what the kubelet evicts by.
    working_set: u64,
}

impl Held {
    fn of(cgroup: &Cgroup) -> Self {
        let stat = cgroup.get("memory.stat");
        let field = |name: &str| {
            let value = stat
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.map_or(0, |value| value.parse::<u64>().unwrap())
        };
        let number = |file: &str| cgroup.get(file).parse::<u64>().unwrap();
        if cgroup.path().join("memory.current").exists() {
            return Self {
                kept: field("anon") + field("shmem") + field("kernel") - field("slab_reclaimable"),
                working_set: number("memory.current") - field("inactive_file"),
            };
        }
        Self {
            kept: field("total_rss") + field("total_shmem") + number("memory.kmem.usage_in_bytes"),
            working_set: number("memory.usage_in_bytes") - field("total_inactive_file"),
        }
    }

    fn without(self, bytes: u64) -> Self {
        Self {
            kept: self.kept.saturating_sub(bytes),
            working_set: self.working_set.saturating_sub(bytes),
        }
    }
}

/// Looks at a pod's cgroup all the time, until it is dropped.
struct Watch {
    ended: Arc<AtomicBool>,
    most: Arc<Mutex<Held>>,
}

impl Watch {
    fn new(pod: &Pod, look: Duration) -> Self {
        let (ended, most) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Held>>::default());
        let cgroup = pod.cgroup().expect("a cgroup of memory");
        let limit = number("LIMIT_MIB", 0) << 20;
        assert!(
            limit == 0 || cgroup.limit(limit),
            "no limit of {limit} bytes"
        );
        let (is_ended, seen) = (ended.clone(), most.clone());
        std::thread::spawn(move || {
            let (mut guest, mut was_there) = (0, Instant::now());
            while !is_ended.load(Ordering::Relaxed) {
                let all = Held::of(&cgroup);
                // Read last: what the guest has touched meanwhile is not taken for the pod's.
                match guest_memory(&cgroup) {
                    // A QEMU that ends has no mappings any more, and its memory for a moment.
                    0 if was_there.elapsed() < EXIT => {}
                    resident => (guest, was_there) = (resident, Instant::now()),
                }
                let now = all.without(guest);
                let mut most = seen.lock().unwrap();
                most.kept = most.kept.max(now.kept);
                most.working_set = most.working_set.max(now.working_set);
                drop(most);
                std::thread::sleep(look);
            }
        });
        Self { ended, most }
    }

    /// The most since the last call, without the guest's memory.
    fn take(&self) -> Held {
        std::mem::take(&mut *self.most.lock().unwrap())
    }

    fn step(&self, name: &str, row: &mut Row) {
        let most = self.take();
        row.push((format!("{name}, kept MiB"), mib(most.kept)));
        row.push((format!("{name}, working set MiB"), mib(most.working_set)));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// How much of the guests' memory is there, in bytes: QEMU's only mapping of just that size.
fn guest_memory(cgroup: &Cgroup) -> u64 {
    let size = format!("{} kB", GUEST_MIB << 10);
    let is_size = |line: &&str| line.starts_with("Size:") && line.ends_with(&size);
    let mut resident = 0;
    for pid in cgroup.get("cgroup.procs").lines() {
        let read =
            |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        if !read("cmdline").contains("guest=") {
            continue;
        }
        let maps = read("smaps");
        let mut lines = maps.lines();
        while lines.find(is_size).is_some() {
            let rss = lines
                .find_map(|line| line.strip_prefix("Rss:"))
                .unwrap_or_default();
            resident += rss.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        }
    }
    resident << 10
}

/// The pod is charged for the files that it is the first to read: as on a node without others.
fn forget_files() {
    rustix::fs::sync();
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

/// A VM that has just started, and its pod.
async fn started(shape: &Shape, look: Duration) -> (Tracked, Watch) {
    let mut watch = None;
    forget_files();
    let make = |vmi: Vmi, pod: &Pod| shape.of(vmi, pod);
    let vm = Tracked::started_with("density", make, async |pod, vmi| {
        // The volumes of memory dumps and of the VM's state, which virt-controller mounts.
        for directory in [DUMPS, "/var/run/kubevirt-private/libvirt/qemu/cbt"] {
            give_to_qemu(pod.path(&format!("{directory}/x")).parent().unwrap());
        }
        pod.launch(vmi, &[]);
        watch = Some(Watch::new(pod, look));
        pod.wait_until_ready().await;
    })
    .await;
    (vm, watch.unwrap())
}

/// What happens to a VM but its migration.
fn life(shape: &Shape) -> Row {
    measured(async || {
        let mut row = Row::new();
        let (mut vm, watch) = started(shape, LOOK).await;
        sleep(SETTLE).await;
        watch.step("start", &mut row);

        let mut with = vm.vmi.clone();
        for number in 0..20 {
            let name = format!("plugged{number}");
            vm.pod.hotplug_image(&name, 1 << 20);
            // The other two are the VM's own.
            let phase = format!("/status/volumeStatus/{}/phase", number + 2);
            with = with
                .hotplugged(&name, &format!("SN{number}"), "scsi")
                .set(&phase, json!("MountedToPod"));
        }
        vm.pod.sync_ok(&with).await;
        watch.step("20 disks plugged", &mut row);
        vm.pod.sync_ok(&vm.vmi).await;

        for _ in 0..5 {
            let picture = vm.pod.request(vm.vmi.value());
            vm.pod.cmd().get_screenshot(picture).await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
        watch.step("5 screenshots", &mut row);

        for _ in 0..5 {
            probe(&vm.pod).await;
        }
        watch.step("5 probes", &mut row);

        dump_to_the_end(&vm.pod, &vm.vmi, "density.memory.dump").await;
        watch.step("memory dump", &mut row);

        // KubeVirt's launcher takes a path in small letters only.
        let backup = backup::with(backup::start("density", "Push", 5), "targetPath", DUMPS);
        vm.back_up(&backup).await;
        watch.step("backup", &mut row);

        // The end of the backup is not its rest.
        sleep(SETTLE).await;
        watch.take();
        sleep(SETTLE).await;
        watch.step("rest", &mut row);

        vm.pod.end(&vm.vmi).await;
        vm.pod.exit_code().await;
        row
    })
}

/// As the kubelet runs it: in the pod's cgroup. No agent answers.
async fn probe(pod: &Pod) {
    let probe = pod.exec_command(&[
        "virt-probe",
        "--socket",
        "/var/run/kubevirt/sockets/launcher-sock",
        "--domainName",
        "default_density",
        "--timeoutSeconds",
        "1",
        "--guestAgentPing",
    ]);
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo $$ >\"$0/cgroup.procs\"; exec \"$@\""])
        .arg(pod.cgroup().unwrap().path())
        .arg(probe.get_program())
        .args(probe.get_args());
    let output = output_of(command).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("guest"), "{said}");
}

/// A start with 20 hook sidecars, which are containers of their own.
fn sidecars() -> Row {
    measured(async || {
        forget_files();
        let mut row = Row::new();
        let mut pod = Pod::new();
        let vmi = Vmi::new("sidecars").with_counter(&pod);
        let scripts = tempfile::tempdir().unwrap();
        script(scripts.path(), "onDefineDomain", r#"printf '%s' "$4""#);
        // KubeVirt's launcher wants sockets of different names, as the shim's are.
        let shim = |number| Sidecar::shim(&pod, number, "v1alpha3", scripts.path());
        let sidecars: Vec<_> = (0..20).map(shim).collect();
        for number in 0..20 {
            socket(&mut pod, number).await;
        }
        pod.handler.serve();
        pod.launch(&vmi, &["--hook-sidecars", "20"]);
        let watch = Watch::new(&pod, LOOK);
        pod.wait_until_ready().await;
        pod.sync_ok(&vmi).await;
        sleep(SETTLE).await;
        watch.step("start", &mut row);
        pod.end(&vmi).await;
        pod.exit_code().await;
        drop(sidecars);
        row
    })
}

/// Both sides of a migration.
fn migration() -> Row {
    measured(async || {
        forget_files();
        let mut row = Row::new();
        let vmi = Vmi::new("density");
        let (mut source, guest) = source_pod(&vmi, &[]).await;
        let leaving = Watch::new(&source, LOOK);
        let vmi = vmi.migrating_to("target");
        // What both sides read counts for the first one.
        forget_files();
        let mut target = migratable_pod("target");
        share_image(&source, &target);
        target.launch(&vmi, &[]);
        let arriving = Watch::new(&target, LOOK);
        target.wait_until_ready().await;
        target.sync_target_ok(&vmi).await;
        let _proxies = MigrationProxies::new(&source, &target, &vmi);
        begin(&source, &vmi, json!({})).await;
        target.arrival().await;
        arriving.step("target", &mut row);
        has_left(&mut source, &vmi).await;
        leaving.step("source", &mut row);
        drop(guest);
        row
    })
}
