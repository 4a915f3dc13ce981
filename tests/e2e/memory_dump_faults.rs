//! Memory dumps that are cut short: by a full volume, a reader that goes away, or the death of
//! QEMU, of libvirt's daemon or of the launcher. None is reported as complete, and the next one
//! works.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use api::proto::cmd::v1::MemoryDumpRequest;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::Value;

use crate::faults::kill;
use crate::full_disk::SmallFs;
use crate::harness::{Pod, Vmi, give_to_qemu, in_pod};

/// Where the volume for dumps is mounted.
pub const DIR: &str = "/var/run/kubevirt/hotplug-disks/dumps";

async fn ask(pod: &Pod, vmi: &Vmi, name: &str) {
    let request = MemoryDumpRequest {
        vmi: pod.request(vmi.value()).vmi,
        dump_path: format!("{DIR}/{name}"),
    };
    let answer = pod.cmd().virtual_machine_memory_dump(request).await;
    let answer = answer.unwrap().into_inner();
    assert!(answer.success, "{}", answer.message);
}

fn metadata(domain: &Value) -> &Value {
    &domain["Spec"]["Metadata"]["KubeVirt"]["MemoryDump"]
}

/// The end of the dump of this name, as virt-handler sees it.
async fn ended(pod: &Pod, name: &str) -> Value {
    let has_ended = |domain: &Value| {
        let dump = metadata(domain);
        dump["FileName"] == name && dump["Completed"] == true
    };
    let domain = pod.domain_until("dumped", has_ended).await;
    metadata(&domain).clone()
}

async fn failed(pod: &Pod, name: &str) -> String {
    let ended = ended(pod, name).await;
    assert_eq!(ended["Failed"], true, "{ended}");
    let reason = ended["FailureReason"].as_str().unwrap().to_owned();
    assert!(!reason.is_empty());
    reason
}

/// Makes a dump of this name, which must succeed.
pub async fn dump_to_the_end(pod: &Pod, vmi: &Vmi, name: &str) {
    ask(pod, vmi, name).await;
    let ended = ended(pod, name).await;
    assert_eq!(ended["Failed"], false, "{ended}");
}

/// A dump is made, as soon as QEMU has given up the one before it.
async fn next_works(pod: &Pod, vmi: &Vmi, name: &str) {
    for attempt in 0.. {
        let name = format!("{name}{attempt}.memory.dump");
        ask(pod, vmi, &name).await;
        let ended = ended(pod, &name).await;
        if ended["Failed"] != true {
            let dump = File::open(pod.path(&format!("{DIR}/{name}"))).unwrap();
            assert!(dump.metadata().unwrap().len() > 256 << 20);
            return;
        }
        assert!(attempt < 20, "{ended}\n{}", pod.log_tail());
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
}

/// The guest is not left standing still.
async fn runs_again(pod: &Pod) {
    let is_running = |domain: &Value| domain["Status"]["Status"] == "Running";
    pod.domain_until("running", is_running).await;
}

/// The reader of a dump that QEMU is in the middle of; nobody reads when this is dropped.
struct Held {
    _reader: File,
}

impl Held {
    async fn during(pod: &mut Pod, vmi: &Vmi, name: &str) -> Self {
        let fifo = pod.path(&format!("{DIR}/{name}"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::set_permissions(&fifo, Permissions::from_mode(0o666)).unwrap();
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&fifo);
        let mut reader = reader.unwrap();
        ask(pod, vmi, name).await;
        let mut begin = [0; 4];
        pod.until("a dump", || matches!(reader.read(&mut begin), Ok(4)))
            .await;
        assert_eq!(&begin, b"\x7fELF");
        Self { _reader: reader }
    }
}

async fn counting(name: &str, more: &[&str]) -> (Pod, Vmi, crate::harness::Guest) {
    let (pod, vmi, guest) = Pod::counting(name, more).await;
    give_to_qemu(pod.path(&format!("{DIR}/x")).parent().unwrap());
    (pod, vmi, guest)
}

#[test]
fn a_memory_dump_that_cannot_be_written_has_failed() {
    in_pod(async {
        let mut pod = Pod::new();
        let vmi = Vmi::new("dump").with_counter(&pod);
        give_to_qemu(pod.path(&format!("{DIR}/x")).parent().unwrap());
        // Before the pod starts, which would not see it later.
        let path = pod.path(&format!("{DIR}/small/x"));
        let small = SmallFs::at(path.parent().unwrap().into(), 2);
        give_to_qemu(path.parent().unwrap());
        pod.start(&vmi, &[]).await;
        let guest = pod.count(&vmi).await;
        if small.is_some() {
            ask(&pod, &vmi, "small/a.memory.dump").await;
            let reason = failed(&pod, "a.memory.dump").await;
            assert!(reason.contains("No space left"), "{reason}");
        }
        let held = Held::during(&mut pod, &vmi, "cut").await;
        // The guest stands still, and is to stay so.
        pod.pause(&vmi).await;
        drop(held);
        failed(&pod, "cut").await;
        assert_eq!(pod.domain().await["Status"]["Status"], "Paused");
        pod.unpause(&vmi).await;
        guest.ticks_on().await;
        next_works(&pod, &vmi, "b").await;

        let held = Held::during(&mut pod, &vmi, "dying").await;
        kill(&pod.guests());
        let has_ended = |event: &crate::harness::Event| event.status() == "Shutoff";
        let event = pod.handler.event("its end", has_ended).await;
        let dump = metadata(&event.domain);
        assert_eq!(dump["FileName"], "dying");
        assert!(
            dump["Completed"] != true || dump["Failed"] == true,
            "{dump}"
        );
        drop(held);
    });
}

#[test]
// D-vm-17 (docs/differences.md).
fn a_memory_dump_during_which_libvirts_daemon_is_killed_has_failed() {
    in_pod(async {
        let (mut pod, vmi, guest) = counting("dump", &["--libvirt=auto"]).await;
        let held = Held::during(&mut pod, &vmi, "held").await;
        kill(&pod.libvirt_daemons());
        failed(&pod, "held").await;
        pod.log_has("Reconnected to libvirt").await;
        drop(held);
        runs_again(&pod).await;
        next_works(&pod, &vmi, "b").await;
        guest.ticks_on().await;
    });
}

#[tokio::test]
// D-vm-17 (docs/differences.md).
async fn a_memory_dump_during_which_the_launcher_is_killed_has_failed() {
    for libvirt in ["--libvirt=embed", "--libvirt=auto"] {
        let (mut pod, vmi, guest) = counting("dump", &[libvirt]).await;
        let held = Held::during(&mut pod, &vmi, "held").await;
        pod.kill_launcher().await;
        pod.handler.forget();
        pod.launch(&vmi, &[libvirt]);
        pod.wait_until_ready().await;
        let is_known = |domain: &Value| !domain.is_null();
        let domain = pod.domain_until("known", is_known).await;
        // Either it is forgotten, and virt-handler asks again, or it has failed.
        let dump = metadata(&domain);
        assert!(
            dump.is_null() || (dump["Completed"] == true && dump["Failed"] == true),
            "{dump}"
        );
        drop(held);
        runs_again(&pod).await;
        next_works(&pod, &vmi, "b").await;
        guest.ticks_on().await;
    }
}
