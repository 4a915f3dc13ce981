//! Backups and memory dumps by `launcherctl`: of a VM of `run`, and in a pod.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tokio::io::AsyncReadExt;

use crate::backup::{TARGET, Tracked, content};
use crate::full_disk::SmallFs;
use crate::harness::{Guest, Pod, Vmi, guest_image, in_pod, short_dir, until};
use crate::launcherctl::{Running, done, end_of, launcherctl, refused, signal};

const MIB: u64 = 1 << 20;

/// A VM of `launcherctl run` with a data disk, whose guest is up.
struct Vm {
    home: tempfile::TempDir,
    vmi: Vmi,
    running: Running,
    guest: Guest,
    disk: String,
}

impl Vm {
    async fn run(name: &str, data_mib: u64, more: &[&str]) -> Self {
        let home = short_dir();
        let path = |name: &str| home.path().join(name);
        std::fs::copy(guest_image(), path("guest.img")).unwrap();
        let part = vec![0xa5_u8; 1 << 20];
        let mut data = std::fs::File::create(path("data.img")).unwrap();
        for _ in 0..data_mib {
            std::io::Write::write_all(&mut data, &part).unwrap();
        }
        let vmi = Vmi::new(name).volume(
            serde_json::json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}}),
            serde_json::json!({"name": "data", "serial": "DATA", "disk": {"bus": "virtio"}}),
        );
        let vmi = vmi.volume(
            serde_json::json!({"name": "scratch", "emptyDisk": {"capacity": "1Mi"}}),
            serde_json::json!({"name": "scratch", "disk": {"bus": "virtio"}}),
        );
        std::fs::write(path("vmi.json"), vmi.value().to_string()).unwrap();
        Self::run_in(home, &vmi, more).await
    }

    /// Runs it in a directory that has its images.
    async fn run_in(home: tempfile::TempDir, vmi: &Vmi, more: &[&str]) -> Self {
        let path = |name: &str| home.path().join(name);
        let mut command = launcherctl(home.path());
        command.args(["run", "--emulate"]).args(more);
        for volume in ["rootdisk=guest.img", "data=data.img"] {
            let (name, file) = volume.split_once('=').unwrap();
            let disk = format!("{name}={}", path(file).display());
            command.args(["--disk", &disk]);
        }
        command.arg("--root").args([path("vm"), path("vmi.json")]);
        let running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let running = Running(running.unwrap());
        let console = format!("vm/var/run/kubevirt-private/{}/virt-serial0", vmi.uid());
        let mut guest = Guest::connect(&path(&console)).await;
        guest.until(crate::harness::UP).await;
        let disks = guest
            .run_until("disks", |disks| disks.contains("DATA"))
            .await;
        let line = disks.lines().find(|line| line.contains("DATA")).unwrap();
        let disk = line.split_whitespace().next().unwrap().to_owned();
        Self {
            home,
            vmi: vmi.clone(),
            running,
            guest,
            disk,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    async fn write(&mut self, word: &str, at_mib: u64) {
        let (disk, seek) = (&self.disk, at_mib * 16);
        self.guest
            .run(&format!(
                "yes {word} | head -c 65536 | dd of=/dev/{disk} bs=64k seek={seek} conv=fsync,notrunc iflag=fullblock 2>/dev/null"
            ))
            .await;
    }

    fn data(&self) -> Vec<u8> {
        std::fs::read(self.path("data.img")).unwrap()
    }

    /// Ends it in order, and runs it again.
    async fn restart(self, more: &[&str]) -> Self {
        let Self {
            home, vmi, running, ..
        } = self;
        let ended = tokio::task::spawn_blocking(move || drop(running));
        ended.await.unwrap();
        Self::run_in(home, &vmi, more).await
    }
}

/// The data disk in a backup.
fn file_of(backup: &Value) -> &Value {
    let mut files = backup["files"].as_array().unwrap().iter();
    files.find(|file| file["volume"] == "data").unwrap()
}

/// Restores the data disk by the command that a backup has printed.
fn restored(backup: &Value) -> Vec<u8> {
    let file = file_of(backup);
    let dir = tempfile::tempdir().unwrap();
    let command = file["restore"].as_str().unwrap();
    let status = Command::new("sh")
        .args(["-c", command])
        .current_dir(dir.path())
        .status();
    assert!(status.unwrap().success(), "{command}");
    let image = format!("{}-restored.img", file["volume"].as_str().unwrap());
    std::fs::read(dir.path().join(image)).unwrap()
}

fn partial_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(".partial"))
        .collect()
}

#[tokio::test]
async fn the_disks_of_a_run_are_backed_up_and_restored_by_the_command_that_is_printed() {
    let mut vm = Vm::run("backed-up", 16, &["--track-changes"]).await;
    let home = vm.home.path().to_owned();
    let dir = vm.path("my backups");
    let target = dir.to_str().unwrap();
    let error = refused(&home, &["backup", target, "--incremental"]).await;
    assert!(error.contains("no complete backup of this VM"), "{error}");

    vm.write("first", 1).await;
    let then = vm.data();
    let full = done(&home, &["backup", target, "-o", "json"]).await;
    let full: Value = serde_json::from_str(&full).unwrap();
    assert!(restored(&full) == then);
    // What was never written takes no space.
    let bytes = file_of(&full)["bytes"].as_u64().unwrap();
    assert!(bytes < 32 * MIB, "{full}");
    assert_eq!(file_of(&full)["target"], "vdb", "{full}");
    let left_out = full["leftOut"].as_array().unwrap();
    assert_eq!(left_out.len(), 1, "{full}");
    let (volume, reason) = (&left_out[0]["volume"], &left_out[0]["reason"]);
    assert_eq!(volume, "scratch");
    assert!(
        reason.as_str().unwrap().contains("goes with its end"),
        "{full}"
    );

    vm.write("second", 2).await;
    let later = vm.data();
    let part = done(
        &home,
        &[
            "backup",
            target,
            "--incremental",
            "--skip-quiesce",
            "-o",
            "json",
        ],
    )
    .await;
    let part: Value = serde_json::from_str(&part).unwrap();
    assert_eq!(
        (&part["parent"], &part["quiesceStatus"]),
        (&full["checkpoint"], &"Skipped".into())
    );
    assert!(
        file_of(&part)["bytes"].as_u64().unwrap() < 2 * MIB,
        "{part}"
    );
    assert!(restored(&part) == later && restored(&full) == then);

    // Since an earlier one than the last, for people.
    vm.write("third", 3).await;
    let last = vm.data();
    let since = format!("--incremental={}", full["checkpoint"].as_str().unwrap());
    let text = done(&home, &["backup", target, &since]).await;
    let left_out = "\nvdc (scratch) is not in the backup: ";
    assert!(text.contains(left_out), "{text}");
    let restore = text.lines().last().unwrap().trim();
    let image = restore.split('\'').nth(1).unwrap();
    assert!(restore.starts_with("qemu-img convert -O raw '"), "{text}");
    assert!(content(image) == last);
    let error = refused(&home, &["backup", target, "--incremental=none"]).await;
    assert!(error.contains("it has backup-"), "{error}");

    // What a backup is built on has to be there.
    let below = Path::new(full["directory"].as_str().unwrap());
    let elsewhere = dir.join("elsewhere");
    std::fs::rename(below, &elsewhere).unwrap();
    let error = refused(&home, &["backup", target, "--incremental"]).await;
    assert!(error.contains("put back what is missing"), "{error}");
    std::fs::rename(&elsewhere, below).unwrap();

    // Without its record a backup is not complete.
    let count = std::fs::read_dir(dir.join("backed-up")).unwrap().count();
    assert_eq!(count, 3);
    let links = vm.path("vm/var/run/kubevirt-private");
    let links = std::fs::read_dir(links).unwrap().flatten();
    let links = links.filter(|entry| entry.file_name().to_string_lossy().starts_with("backup-"));
    assert_eq!(links.count(), 0);

    // The next run does not know what was written since: nobody may have tracked that.
    let vm = vm.restart(&["--track-changes"]).await;
    let error = refused(&home, &["backup", target, "--incremental"]).await;
    assert!(error.contains("without --incremental"), "{error}");
    let full = done(&home, &["backup", target, "-o", "json"]).await;
    assert!(restored(&serde_json::from_str(&full).unwrap()) == vm.data());
    done(&home, &["backup", target, "--incremental"]).await;

    // A target that the VM does not reach leaves nothing.
    let scratch = vm.path("vm/var/run/libvirt/empty-disks/scratch.qcow2");
    let inode = || scratch.metadata().unwrap().ino();
    let before = inode();
    let cancelled = ["migrate", "--bandwidth", "1Mi", "--timeout", "1"];
    let error = refused(&home, &cancelled).await;
    assert!(error.contains("the guest runs on in"), "{error}");
    assert_eq!(inode(), before);

    // Another launcher has the same disks, and tracks them further.
    done(&home, &["migrate", "--detach"]).await;
    let error = refused(&home, &["backup", target, "--incremental"]).await;
    assert!(
        error.contains("started anew or migrated, or a disk attached again, since"),
        "{error}"
    );
    let timeline = done(&home, &["launcher", "timeline"]).await;
    assert!(timeline.contains("came here by a migration"), "{timeline}");
    let full = done(&home, &["backup", target, "-o", "json"]).await;
    assert!(restored(&serde_json::from_str(&full).unwrap()) == vm.data());
    done(&home, &["backup", target, "--incremental"]).await;

    // The disk that only this launcher has returns to the directory of --root.
    let left = vm.path("vm");
    let another = vm.path("another.json");
    std::fs::write(&another, Vmi::new("another").value().to_string()).unwrap();
    let [another, left] = [&another, &left].map(|path| path.to_str().unwrap());
    let error = refused(&home, &["run", another, "--root", left]).await;
    let expected = "the VM backed-up has left it by a migration";
    assert!(error.contains(expected), "{error}");
    assert_eq!(inode(), before);
    done(&home, &["stop", "--force"]).await;
    assert_ne!(inode(), before);
}

#[tokio::test]
async fn a_backup_of_a_run_is_cancelled_and_its_files_are_removed() {
    let vm = Vm::run("large", 768, &["--track-changes"]).await;
    let dir = vm.path("backups");
    std::fs::create_dir(&dir).unwrap();
    let mut attempts = 1..=10;
    // A copy may be over before the abort comes: to QEMU, or to libvirt, for which the backup has
    // not begun before QEMU has answered.
    let output = loop {
        let output = cancelled_backup(&vm, &dir).await;
        if !output.status.success() {
            break output;
        }
        assert!(attempts.next().is_some(), "each copy was over before");
        std::fs::remove_dir_all(dir.join("large")).unwrap();
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("is cancelled"), "{error}");
    // Not even the VM's directory, which the launcher has made.
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let home = vm.home.path();
    done(home, &["backup", dir.to_str().unwrap()]).await;
}

/// A backup that is cancelled as soon as QEMU has begun to copy.
async fn cancelled_backup(vm: &Vm, dir: &Path) -> Output {
    let mut command = launcherctl(vm.home.path());
    command.args(["backup", "--skip-quiesce"]).arg(dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let is_written = || {
        let backups = std::fs::read_dir(dir.join("large")).into_iter().flatten();
        let files = backups
            .flatten()
            .map(|it| it.path().join("backup-data.qcow2"));
        files
            .filter_map(|file| file.metadata().ok())
            .any(|it| it.len() > MIB)
    };
    while !is_written() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let qemu = qemu_of(vm.home.path());
    signal(qemu, "STOP");
    signal(child.id(), "INT");
    // The abort has to reach QEMU's socket meanwhile, also on a busy machine.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    signal(qemu, "CONT");
    end_of(child).await
}

/// The process of the guest below a directory.
fn qemu_of(home: &Path) -> u32 {
    let home = home.to_string_lossy().into_owned();
    let is_guest = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("guest=") && line.contains(&home)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(is_guest).unwrap()
}

#[tokio::test]
async fn the_memory_of_a_run_is_dumped_whole_or_not_at_all() {
    let mut vm = Vm::run("dumped", 1, &[]).await;
    let home = vm.home.path().to_owned();
    // Its disks are not tracked.
    let error = refused(&home, &["backup", home.to_str().unwrap()]).await;
    assert!(error.contains("launcherctl run --track-changes"), "{error}");
    vm.guest.run("word=guest; echo a-$word-wrote-this >/dev/shm/word || echo a-$word-wrote-this >/tmp/word").await;
    let file = home.join("guest.elf");
    std::fs::write(&file, "old").unwrap();
    let path = file.to_str().unwrap();
    let error = refused(&home, &["memory-dump", path]).await;
    assert!(error.contains("it is there already"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"old");
    let text = done(&home, &["memory-dump", path, "--force"]).await;
    assert!(text.contains(path) && text.contains("MiB"), "{text}");
    let memory = std::fs::read(&file).unwrap();
    assert!(memory.starts_with(b"\x7fELF") && memory.len() as u64 > 256 * MIB);
    let word = b"a-guest-wrote-this";
    assert!(memory.windows(word.len()).any(|part| part == word));
    drop(memory);

    // Nobody takes more of it than the beginning: QEMU waits.
    let mut command = launcherctl(&home);
    command.args(["memory-dump", "-"]);
    let mut command = tokio::process::Command::from(command);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut begin = [0; 4096];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut begin).await.unwrap();
    assert!(begin.starts_with(b"\x7fELF"));
    let other = home.join("other.elf");
    let error = refused(&home, &["memory-dump", other.to_str().unwrap()]).await;
    assert!(error.contains("another job is in progress"), "{error}");
    assert!(!other.exists());
    signal(child.id().unwrap(), "INT");
    let output = child.wait_with_output().await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("is cancelled"),
        "{error}\n{}",
        String::from_utf8_lossy(&output.stdout)
    );
    vm.guest.run("echo alive").await;

    // A full file system: no file, and the next one works.
    if let Some(small) = SmallFs::at(home.join("small"), 2) {
        let file = small.path().join("guest.elf");
        let error = refused(&home, &["memory-dump", file.to_str().unwrap()]).await;
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(std::fs::read_dir(small.path()).unwrap().count(), 0);
    }
    done(&home, &["memory-dump", other.to_str().unwrap()]).await;
    assert!(std::fs::metadata(&other).unwrap().len() > 256 * MIB);
    assert_eq!(partial_files(&home), Vec::<PathBuf>::new());

    // The guest dies in the middle.
    let mut command = launcherctl(&home);
    let cut = home.join("cut.elf");
    command.arg("memory-dump").arg(&cut);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    until("the dump has begun", || !partial_files(&home).is_empty()).await;
    signal(qemu_of(&home), "KILL");
    let output = end_of(child).await;
    assert!(!output.status.success());
    assert!(!cut.exists() && partial_files(&home).is_empty());
}

/// A verb in the pod's container, or on its directory.
async fn launcherctl_in(pod: &Pod, arguments: &[&str]) -> Output {
    let output = crate::launcherctl_in_pod::launcherctl(pod, arguments).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    output
}

#[test]
fn a_pod_is_backed_up_and_dumped_by_launcherctl_in_it() {
    in_pod(async {
        let mut vm = Tracked::booted("in-pod", &[]).await;
        vm.write("first", 1).await;
        let then = vm.data();
        let target = vm.pod.own_path(TARGET).display().to_string();
        let output = launcherctl_in(&vm.pod, &["backup", &target, "-o", "json"]).await;
        let full: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(full["quiesceStatus"], "Succeeded");
        vm.write("second", 9).await;
        let later = vm.data();
        let output =
            launcherctl_in(&vm.pod, &["backup", &target, "--incremental", "-o", "json"]).await;
        let part: Value = serde_json::from_slice(&output.stdout).unwrap();
        let volume = |backup: &Value| {
            let files = backup["files"].as_array().unwrap();
            let file = files.iter().find(|file| file["volume"] == "Data-1");
            let path = file.unwrap()["file"].as_str().unwrap();
            let path = path.split_once("hotplug-disks/Backups").unwrap().1;
            vm.pod
                .root()
                .join(format!("{TARGET}{path}").trim_start_matches('/'))
        };
        for (backup, data) in [(&part, later), (&full, then)] {
            assert!(content(volume(backup).to_str().unwrap()) == data);
        }
        let dump = launcherctl_in(&vm.pod, &["memory-dump", "-"]).await.stdout;
        assert!(dump.starts_with(b"\x7fELF") && dump.len() as u64 > 256 * MIB);
        vm.guest.run("echo alive").await;
    });
}
