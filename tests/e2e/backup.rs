//! Backups of a running guest's disks: written into files or pulled from a socket, in full or what
//! has changed, restored, and compared byte by byte.

use std::path::{Path, PathBuf};
use std::process::Command;

use api::proto::cmd::v1::{BackupRequest, RedefineCheckpointRequest, Response};
use serde_json::{Value, json};

use crate::harness::{Guest, HeldReads, Pod, Vmi, give_to_qemu, has_agent, in_pod};

const MIB: u64 = 1 << 20;
/// Size of the data disk.
pub const SIZE: u64 = 16 * MIB;
/// Where virt-handler mounts the volume for backups.
pub const TARGET: &str = "/var/run/kubevirt/hotplug-disks/Backups";
/// Where the data volume's image is.
const IMAGE: &str = "/var/run/kubevirt-private/vmi-disks/Data-1/disk.img";

/// A guest with a data disk, both its disks tracked.
pub struct Tracked {
    pub pod: Pod,
    pub vmi: Vmi,
    pub guest: Guest,
    /// Name of the data disk in Linux; `None` in a guest that counts.
    pub disk: Option<String>,
    /// For [`Self::start_held`].
    reads: Option<HeldReads>,
}

impl Tracked {
    pub async fn booted(name: &str, more: &[&str]) -> Self {
        Self::booted_with(name, SIZE, async |pod, vmi| {
            pod.launch(vmi, more);
            pod.wait_until_ready().await;
        })
        .await
    }

    /// With a data disk of this size; `launch` starts the launcher.
    pub async fn booted_with(
        name: &str,
        size: u64,
        launch: impl AsyncFnOnce(&mut Pod, &Vmi),
    ) -> Self {
        let (mut pod, vmi, reads) = launched(name, size, Vmi::with_image, launch).await;
        let mut guest = pod.boot(&vmi).await;
        let disk = Some(disk_of(&mut guest).await);
        pod.domain_until("with an agent", has_agent).await;
        Self::tracking(pod, vmi, guest, disk, reads)
    }

    /// A guest that counts: it cannot be frozen, and QEMU writes in its place.
    pub async fn counting(name: &str, more: &[&str]) -> Self {
        Self::counting_with(name, async |pod, vmi| {
            pod.launch(vmi, more);
            pod.wait_until_ready().await;
        })
        .await
    }

    /// A guest of any kind, whether it is up yet or not; `make` describes the VM.
    pub async fn started_with(
        name: &str,
        make: impl FnOnce(Vmi, &Pod) -> Vmi,
        launch: impl AsyncFnOnce(&mut Pod, &Vmi),
    ) -> Self {
        let (pod, vmi, reads) = launched(name, SIZE, make, launch).await;
        pod.sync_ok(&vmi).await;
        let guest = pod.guest(&vmi).await;
        Self::tracking(pod, vmi, guest, None, reads)
    }

    pub async fn counting_with(name: &str, launch: impl AsyncFnOnce(&mut Pod, &Vmi)) -> Self {
        let (mut pod, vmi, reads) = launched(name, SIZE, Vmi::with_counter, launch).await;
        let guest = pod.count(&vmi).await;
        Self::tracking(pod, vmi, guest, None, reads)
    }

    fn tracking(
        pod: Pod,
        vmi: Vmi,
        guest: Guest,
        disk: Option<String>,
        reads: Option<HeldReads>,
    ) -> Self {
        let vmi = vmi
            .set("/status/changedBlockTracking/state", json!("Enabled"))
            .set("/status/phase", json!("Running"));
        Self {
            pod,
            vmi,
            guest,
            disk,
            reads,
        }
    }

    /// The guest writes a word over and over, 64 KiB at an offset in MiB; or QEMU its first letter,
    /// which takes libvirt's daemon.
    pub async fn write(&mut self, word: &str, at_mib: u64) {
        let Some(disk) = &self.disk else {
            return self.write_by_qemu(word.as_bytes()[0], at_mib);
        };
        let seek = at_mib * 16;
        let write = format!(
            "yes {word} | head -c 65536 | dd of=/dev/{disk} bs=64k seek={seek} conv=fsync,notrunc iflag=fullblock 2>/dev/null"
        );
        self.guest.run(&write).await;
    }

    /// As the guest's requests do, through the device.
    fn write_by_qemu(&self, byte: u8, at_mib: u64) {
        let write = format!(
            r#"qemu-io -d /machine/peripheral/ua-Data-1/virtio-backend "write -P {byte} {at_mib}M 64k""#
        );
        let domain = format!("default_{}", self.vmi.name());
        let said = self
            .pod
            .virsh(&["qemu-monitor-command", "--hmp", &domain, &write]);
        let from = usize::try_from(at_mib * MIB).unwrap();
        let written = self.data()[from..from + (64 << 10)]
            .iter()
            .all(|it| *it == byte);
        assert!(written, "{said}");
    }

    /// What is on the data disk now.
    pub fn data(&self) -> Vec<u8> {
        std::fs::read(self.pod.path(IMAGE)).unwrap()
    }

    pub async fn ask(&self, options: &Value) -> Response {
        let request = BackupRequest {
            vmi: self.pod.request(self.vmi.value()).vmi,
            options: options.to_string().into(),
        };
        let answer = self.pod.cmd().backup_virtual_machine(request).await;
        answer.unwrap().into_inner()
    }

    pub async fn ask_ok(&self, options: &Value) {
        let answer = self.ask(options).await;
        assert!(
            answer.success,
            "{options}: {}\n{}",
            answer.message,
            self.pod.log_tail()
        );
    }

    /// Starts a push. QEMU copies nothing of the data disk until what this returns is dropped.
    /// `None` where reads may not be held.
    pub async fn start_held(&mut self, push: &Value) -> Option<HeldReads> {
        // What has no data is not read.
        self.write("copied", 3).await;
        let mut held = self.reads.take()?;
        held.hold();
        self.ask_ok(push).await;
        held.begun().await;
        Some(held)
    }

    /// What virt-handler is sent of a backup that has ended: as an ADDED event.
    pub async fn ended(&mut self, name: &str) -> Value {
        self.ended_as(|backup| backup["Name"] == name).await
    }

    async fn ended_as(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        let has_ended = |event: &crate::harness::Event| {
            let backup = metadata(&event.domain);
            is_it(backup) && backup["Completed"] == true && event.kind == "ADDED"
        };
        let event = self.pod.handler.event("backup ended", has_ended).await;
        metadata(&event.domain).clone()
    }

    /// Makes a backup to the end, which must succeed; its metadata.
    pub async fn back_up(&mut self, options: &Value) -> Value {
        self.ask_ok(options).await;
        // Of an earlier one of the same name there may be more events, as when libvirt's daemon is
        // back.
        let is_this = |backup: &Value| {
            backup["Name"] == options["backupName"]
                && backup["StartTimestamp"] == options["backupStartTime"]
        };
        let ended = self.ended_as(is_this).await;
        assert_eq!(
            ended["Failed"],
            json!(false),
            "{ended}\n{}",
            self.pod.log_tail()
        );
        ended
    }

    /// The file that a push has written of a volume.
    pub fn file(&self, options: &Value, volume: &str) -> PathBuf {
        let name = options["backupName"].as_str().unwrap();
        let time = options["backupStartTime"].as_str().unwrap();
        let time = time
            .trim_end_matches('Z')
            .replace('T', "_")
            .replace(':', "-");
        let vm = self.vmi.name();
        // Only its path: Pod::path would make its directory.
        let file = format!("{TARGET}/{vm}/{name}-{time}/{name}-{volume}.qcow2");
        self.pod.root().join(file.trim_start_matches('/'))
    }

    /// Asks for a checkpoint to be made known to libvirt: answer, and whether the checkpoint is
    /// invalid.
    async fn redefine(&self, name: &str) -> (Response, bool) {
        let checkpoint = json!({"name": name, "creationTime": "2026-01-02T03:04:05Z"});
        let request = RedefineCheckpointRequest {
            vmi: self.pod.request(self.vmi.value()).vmi,
            checkpoint: checkpoint.to_string().into(),
        };
        let answer = self.pod.cmd().redefine_checkpoint(request).await;
        let answer = answer.unwrap().into_inner();
        (answer.response.unwrap(), answer.checkpoint_invalid)
    }

    /// Ends the VM, and starts it again in the same pod's directories.
    pub async fn restart(&mut self, end: impl AsyncFnOnce(&mut Self)) {
        end(self).await;
        self.pod
            .handler
            .event("final", crate::harness::Event::is_final)
            .await;
        self.pod.exit_code().await;
        self.pod.handler.forget();
        let vmi = self.vmi.clone().set("/status/phase", json!("Scheduled"));
        self.pod.launch(&vmi, &[]);
        self.pod.wait_until_ready().await;
        self.guest = match &mut self.disk {
            Some(disk) => {
                let mut guest = self.pod.boot(&vmi).await;
                *disk = disk_of(&mut guest).await;
                self.pod.domain_until("with an agent", has_agent).await;
                guest
            }
            None => self.pod.count(&vmi).await,
        };
    }
}

/// A pod with a launcher, a VMI with a data disk, and what may hold QEMU's reads of it.
async fn launched(
    name: &str,
    size: u64,
    with_image: impl FnOnce(Vmi, &Pod) -> Vmi,
    launch: impl AsyncFnOnce(&mut Pod, &Vmi),
) -> (Pod, Vmi, Option<HeldReads>) {
    let mut pod = Pod::new();
    let image = std::fs::File::create(pod.path(IMAGE)).unwrap();
    image.set_len(size).unwrap();
    give_to_qemu(&pod.path(IMAGE));
    let reads = HeldReads::of(&pod.path(IMAGE));
    let target = pod.path(&format!("{TARGET}/x"));
    give_to_qemu(target.parent().unwrap());
    let vmi = with_image(Vmi::new(name), &pod)
        .set(
            "/status/changedBlockTracking",
            json!({"state": "Initializing"}),
        )
        .volume(
            json!({"name": "Data-1", "persistentVolumeClaim": {"claimName": "data"}}),
            json!({"name": "Data-1", "serial": "DATA", "disk": {"bus": "virtio"}}),
        );
    pod.handler.serve();
    launch(&mut pod, &vmi).await;
    (pod, vmi, reads)
}

/// The data disk's name in Linux.
async fn disk_of(guest: &mut Guest) -> String {
    let disks = guest
        .run_until("disks", |disks| disks.contains("DATA"))
        .await;
    let line = disks.lines().find(|line| line.contains("DATA")).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

/// The backup in a document.
pub fn metadata(domain: &Value) -> &Value {
    &domain["Spec"]["Metadata"]["KubeVirt"]["Backup"]
}

/// The start of a backup as virt-controller asks for it; each with a time of its own.
pub fn start(name: &str, mode: &str, second: u32) -> Value {
    json!({"backupName": name, "cmd": "Start", "mode": mode, "targetPath": TARGET,
        "backupStartTime": format!("2026-01-02T03:04:{second:02}Z")})
}

pub fn abort(start: &Value) -> Value {
    let mut abort = start.clone();
    abort["cmd"] = json!("Abort");
    abort
}

pub fn with(mut options: Value, field: &str, value: impl Into<Value>) -> Value {
    options[field] = value.into();
    options
}

fn qemu_img(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("qemu-img").args(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "qemu-img {arguments:?}: {message}");
    output.stdout
}

/// What an image holds, with those below it.
pub fn content(image: &str) -> Vec<u8> {
    let raw = tempfile::NamedTempFile::new().unwrap();
    qemu_img(&["convert", "-O", "raw", image, raw.path().to_str().unwrap()]);
    std::fs::read(raw.path()).unwrap()
}

/// Puts a backup of changes on top of the one before it.
fn rebase(image: &Path, below: &Path) {
    let (image, below) = (image.to_str().unwrap(), below.to_str().unwrap());
    qemu_img(&[
        "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", below, image,
    ]);
}

/// How many bytes an image has itself.
fn own_bytes(image: &Path) -> u64 {
    let map = qemu_img(&[
        "map",
        "-f",
        "qcow2",
        "--output=json",
        image.to_str().unwrap(),
    ]);
    let map: Value = serde_json::from_slice(&map).unwrap();
    let own = map.as_array().unwrap().iter();
    own.filter(|part| part["depth"] == 0 && part["present"] == true)
        .map(|part| part["length"].as_u64().unwrap())
        .sum()
}

#[test]
// D-backup-2 (docs/differences.md).
fn a_guest_is_backed_up_in_full_and_in_part_and_restored() {
    in_pod(async {
        let mut vm = Tracked::booted("pushed", &[]).await;
        vm.write("first", 1).await;
        let (full, then) = (start("Full", "Push", 1), vm.data());
        let ended = vm.back_up(&full).await;
        for (field, value) in [
            ("Mode", json!("Push")),
            ("StartTimestamp", json!("2026-01-02T03:04:01Z")),
            ("CheckpointName", json!("Full-2026-01-02_03-04-01")),
            ("QuiesceStatus", json!("Succeeded")),
            ("BackupMsg", json!("")),
        ] {
            assert_eq!(ended[field], value, "{ended}");
        }
        let volumes: Value = serde_json::from_str(ended["Volumes"].as_str().unwrap()).unwrap();
        let wanted = json!([{"volumeName": "rootdisk", "diskTarget": "vda"}, {"volumeName": "Data-1", "diskTarget": "vdb"}]);
        assert_eq!(volumes, wanted);
        let full_file = vm.file(&full, "Data-1");
        assert!(content(full_file.to_str().unwrap()) == then);
        assert!(vm.file(&full, "rootdisk").exists());

        // It is not made twice; a guest that was frozen is thawed.
        let again = vm.ask(&full).await;
        assert!(again.message.contains("was already executed"), "{again:?}");
        vm.guest.run("echo alive >/data/alive; sync").await;

        vm.write("second", 2).await;
        vm.write("third", 15).await;
        let part = with(
            start("part", "Push", 2),
            "incremental",
            ended["CheckpointName"].clone(),
        );
        let part = with(part, "skipQuiesce", true);
        let then = vm.data();
        let ended = vm.back_up(&part).await;
        assert_eq!(ended["QuiesceStatus"], "Skipped", "{ended}");
        let part_file = vm.file(&part, "Data-1");
        rebase(&part_file, &full_file);
        let bytes = own_bytes(&part_file);
        assert!((131_072..=MIB).contains(&bytes), "{bytes}");
        assert!(content(part_file.to_str().unwrap()) == then);
        // The first one is as it was.
        assert!(content(full_file.to_str().unwrap()) != then);

        let unknown = with(
            start("unknown", "Push", 3),
            "incremental",
            "no such checkpoint",
        );
        let refused = vm.ask(&unknown).await;
        assert!(!refused.success, "{refused:?}");
        assert!(!vm.file(&unknown, "Data-1").parent().unwrap().exists());
        vm.back_up(&with(
            start("last", "Push", 4),
            "incremental",
            ended["CheckpointName"].clone(),
        ))
        .await;
    });
}

#[tokio::test]
async fn a_request_that_cannot_be_met_is_refused_and_leaves_nothing() {
    let mut vm = Tracked::counting("refused", &[]).await;
    for (options, text) in [
        (
            with(start("b", "Push", 1), "targetPath", "/absent"),
            "/absent",
        ),
        (
            with(start("b", "Push", 1), "backupName", "../b"),
            "\"../b\"",
        ),
        (
            with(start("b", "Push", 1), "mode", "Sideways"),
            "\"Sideways\"",
        ),
        (abort(&start("b", "Push", 1)), "backup b is not in progress"),
    ] {
        let refused = vm.ask(&options).await;
        assert!(
            !refused.success && refused.message.contains(text),
            "{options}: {refused:?}"
        );
    }
    assert!(metadata(&vm.pod.domain().await).is_null());
    let off = vm
        .vmi
        .clone()
        .set("/status/changedBlockTracking/state", json!("Disabled"));
    let on = std::mem::replace(&mut vm.vmi, off);
    let refused = vm.ask(&start("b", "Push", 1)).await;
    assert_eq!(
        refused.message,
        "Backup failed ChangedBlockTracking is not enabled"
    );
    assert!(!vm.redefine("c").await.0.success);
    vm.vmi = on;
    vm.back_up(&start("b", "Push", 1)).await;
}

#[test]
fn a_backup_is_pulled_from_a_socket_in_full_and_in_part() {
    in_pod(async {
        let mut vm = Tracked::counting("pulled", &[]).await;
        let socket = vm.pod.path("/var/run/kubevirt/sockets/backup-nbd-sock");
        let export = format!("nbd+unix:///Data-1?socket={}", socket.display());
        vm.write("first", 1).await;
        let (full, then) = (start("Full", "Pull", 1), vm.data());
        vm.ask_ok(&full).await;
        // The same again is no second one, and another one has to wait.
        vm.ask_ok(&full).await;
        let other = vm.ask(&start("other", "Pull", 2)).await;
        assert!(other.message.contains("Full is in progress"), "{other:?}");
        // What the guest writes meanwhile is not in it, and the domain is shown as it is.
        vm.write("later", 3).await;
        let running = vm.pod.domain().await;
        assert!(metadata(&running)["EndTimestamp"].is_null(), "{running}");
        assert!(content(&export) == then);
        vm.ask_ok(&abort(&full)).await;
        let ended = vm.ended("Full").await;
        assert_eq!(
            (&ended["Failed"], &ended["BackupMsg"]),
            (&json!(false), &json!("")),
            "{ended}"
        );
        assert!(!socket.exists());
        let scratch = vm.file(&full, "Data-1");
        assert!(!scratch.exists(), "{}", scratch.display());

        vm.write("second", 9).await;
        let checkpoint = ended["CheckpointName"].as_str().unwrap();
        let part = with(start("Part", "Pull", 2), "incremental", checkpoint);
        let then = vm.data();
        vm.ask_ok(&part).await;
        assert!(content(&export) == then);
        let bitmap = format!(
            "driver=nbd,server.type=unix,server.path={},export=Data-1,x-dirty-bitmap=qemu:dirty-bitmap:Part-2026-01-02_03-04-02",
            socket.display()
        );
        let map = qemu_img(&["map", "--output=json", "--image-opts", &bitmap]);
        let map: Value = serde_json::from_slice(&map).unwrap();
        // qemu-img shows a dirty block as one without data.
        let dirty: Vec<u64> = map
            .as_array()
            .unwrap()
            .iter()
            .filter(|part| part["data"] == false)
            .map(|part| part["start"].as_u64().unwrap() / MIB)
            .collect();
        assert_eq!(dirty, [3, 9], "{map}");
        vm.ask_ok(&abort(&part)).await;
        assert_eq!(vm.ended("Part").await["Failed"], json!(false));
    });
}

#[test]
fn a_checkpoint_is_known_again_after_a_restart_and_invalid_after_a_crash() {
    in_pod(async {
        let mut vm = Tracked::counting("again", &[]).await;
        vm.write("first", 1).await;
        let full = start("Full", "Push", 1);
        let ended = vm.back_up(&full).await;
        let checkpoint = ended["CheckpointName"].as_str().unwrap().to_owned();
        vm.restart(async |vm| vm.pod.end(&vm.vmi).await).await;

        let (answer, invalid) = vm.redefine("never-made").await;
        assert!(!answer.success && invalid, "{answer:?}");
        let (answer, invalid) = vm.redefine(&checkpoint).await;
        assert!(answer.success && !invalid, "{answer:?}");
        vm.write("second", 5).await;
        let part = with(start("Part", "Push", 2), "incremental", checkpoint.as_str());
        let then = vm.data();
        vm.back_up(&part).await;
        let (full_file, part_file) = (vm.file(&full, "Data-1"), vm.file(&part, "Data-1"));
        rebase(&part_file, &full_file);
        assert!(own_bytes(&part_file) <= MIB);
        assert!(content(part_file.to_str().unwrap()) == then);

        // QEMU has not written the bitmaps: they say nothing.
        vm.restart(async |vm| {
            crate::faults::kill(&vm.pod.guests());
            vm.pod.handler.status("Shutoff").await;
            vm.pod.delete(&vm.vmi).await;
        })
        .await;
        let (answer, invalid) = vm.redefine(&checkpoint).await;
        assert!(!answer.success && invalid, "{answer:?}");
        vm.back_up(&start("Anew", "Push", 3)).await;
    });
}
