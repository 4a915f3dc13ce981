//! A VM of `launcherctl run` and its disks, without a cluster.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{Guest, UP, Vmi, counter_image, guest_image, output_of, pod_tool, short_dir};

#[path = "../launcherctl/schema.rs"]
mod schema;

/// `launcherctl` with a registry of its own.
pub fn launcherctl(home: &Path) -> Command {
    let mut command = pod_tool("launcherctl");
    command.env("XDG_RUNTIME_DIR", home).stdin(Stdio::null());
    command
}

/// Runs a verb on the only VM there is.
pub(crate) async fn verb(home: &Path, arguments: &[&str]) -> Output {
    let mut command = launcherctl(home);
    command.args(arguments);
    output_of(command).await
}

pub async fn done(home: &Path, arguments: &[&str]) -> String {
    let output = verb(home, arguments).await;
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

pub async fn refused(home: &Path, arguments: &[&str]) -> String {
    let output = verb(home, arguments).await;
    assert!(
        !output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8(output.stderr).unwrap()
}

/// It succeeds, and prints this.
pub async fn says(home: &Path, arguments: &[&str], text: impl AsRef<str>) {
    let said = done(home, arguments).await;
    assert!(said.contains(text.as_ref()), "{arguments:?}: {said}");
}

/// It fails, and says this.
pub async fn refuses(home: &Path, arguments: &[&str], text: impl AsRef<str>) {
    let error = refused(home, arguments).await;
    assert!(error.contains(text.as_ref()), "{arguments:?}: {error}");
}

/// Ended with the test, by the signal that ends the VM too.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        if self.0.try_wait().unwrap().is_none() {
            let _ = Command::new("kill").args(["-s", "TERM", &pid]).status();
            let _ = self.0.wait();
        }
    }
}

#[tokio::test]
async fn a_disk_is_plugged_and_unplugged_while_the_guest_runs() {
    let container_disk = json!([{"name": "rootdisk", "containerDisk": {"image": "any/name"}}]);
    let laptop = Laptop::of(Vmi::new("laptop").set("/spec/volumes", container_disk)).with_linux();
    let home = laptop.home.path();
    let running = Running(laptop.run());
    let mut guest = Guest::connect(&laptop.console()).await;
    guest.until(UP).await;

    a_paused_guest_is_to_be_unpaused_first(home).await;
    answers_are_as_their_schema_describes(&laptop).await;

    let (data, other) = (
        laptop.disk("data.img", 3 << 19),
        laptop.disk("other.img", 1 << 20),
    );
    volumes_that_cannot_be_plugged_are_refused(&laptop, &data).await;
    a_disk_is_plugged_listed_and_unplugged(&laptop, &mut guest, &data).await;
    a_disk_keeps_its_name_when_one_before_it_goes(home, &data, &other).await;
    a_plugged_volume_stays_that_a_file_has_as_another_kind(&laptop, &data).await;

    let overlays = laptop.path("vm/var/run/kubevirt-ephemeral-disks/disk-data");
    assert!(overlays.join("rootdisk").exists());
    drop(running);
    assert!(
        !overlays.exists(),
        "a container disk's content goes with the VM"
    );
    refuses(
        home,
        &["launcher", "ping", "--name", "laptop"],
        "no VM named laptop",
    )
    .await;
}

/// What needs a guest that runs says what to do first.
async fn a_paused_guest_is_to_be_unpaused_first(home: &Path) {
    done(home, &["pause"]).await;
    for verb in [
        ["guest", "ping"].as_slice(),
        &["guest", "exec", "--", "/bin/true"],
        &["soft-reboot"],
        &["shutdown"],
        &["ssh", "laptop"],
    ] {
        refuses(home, verb, "is paused: launcherctl unpause first").await;
    }
    let error = refused(home, &["shutdown", "-o", "json"]).await;
    let error: Value = serde_json::from_str(&error).unwrap();
    assert!(error["error"].as_str().unwrap().contains("unpause"));
    done(home, &["unpause"]).await;
}

/// Of the verbs about a running guest.
async fn answers_are_as_their_schema_describes(laptop: &Laptop) {
    let home = laptop.home.path();
    let file = |name: &str| laptop.path(name).display().to_string();
    let picture = file("a.png");
    for (verb, more) in [
        ("list", ""),
        ("status", ""),
        ("volumes", ""),
        ("plan", ""),
        ("sync", ""),
        ("stats", ""),
        ("pause", ""),
        ("unpause", ""),
        ("screenshot", &*picture),
        ("launcher ping", ""),
        ("launcher domain", ""),
        ("launcher dumpxml", ""),
        ("launcher metrics", ""),
        ("launcher timeline", ""),
        ("launcher hooks", ""),
    ] {
        let words = verb.split(' ').chain(more.split_whitespace());
        let words: Vec<&str> = words.chain(["-o", "json"]).collect();
        let answer = serde_json::from_str(&done(home, &words).await).unwrap();
        schema::check(verb, &answer);
    }
}

async fn volumes_that_cannot_be_plugged_are_refused(laptop: &Laptop, data: &str) {
    let home = laptop.home.path();
    let page = laptop.path("page.html");
    std::fs::write(&page, "<!DOCTYPE html>").unwrap();
    for (name, file, why) in [
        ("../data", data, "invalid volume name"),
        ("data", "/nonexistent", "/nonexistent"),
        ("data", page.to_str().unwrap(), "512"),
    ] {
        refuses(home, &["addvolume", name, "--file", file], why).await;
    }
    refuses(home, &["removevolume", "data"], "no volume").await;
    assert_eq!(done(home, &["plan"]).await, "nothing to do");
}

async fn a_disk_is_plugged_listed_and_unplugged(laptop: &Laptop, guest: &mut Guest, data: &str) {
    let home = laptop.home.path();
    let add = ["addvolume", "data", "--file", data, "--serial", "MyData-01"];
    assert_eq!(done(home, &add).await, "data is attached as sda");
    let has_it = |disks: &str| disks.contains("MyData-01");
    guest.run_until("disks", has_it).await;
    refuses(home, &add, "already").await;
    let table = done(home, &["volumes"]).await;
    let row = table.lines().find(|line| line.starts_with("data "));
    for part in ["sda", "1.5 MiB", "MyData-01", "attached"] {
        assert!(row.unwrap().contains(part), "{table}");
    }
    let rows = volumes(home).await;
    let of_data = rows.iter().find(|row| row["name"] == "data").unwrap();
    let file = std::fs::canonicalize(data).unwrap();
    assert_eq!(of_data["source"], json!(file));
    let root = &rows[0];
    assert_eq!(
        (&root["name"], &root["target"]),
        (&json!("rootdisk"), &json!("vda"))
    );
    assert_eq!(root["size"], guest_image().metadata().unwrap().len());

    // What the guest writes is in the user's file, and stays there.
    guest.run("printf written >/dev/sda; sync").await;
    let remove = ["removevolume", "data"];
    assert_eq!(done(home, &remove).await, "data is detached");
    guest.run_until("disks", |disks| !has_it(disks)).await;
    assert!(std::fs::read(data).unwrap().starts_with(b"written"));
    assert_eq!(done(home, &["plan"]).await, "nothing to do");
}

async fn a_disk_keeps_its_name_when_one_before_it_goes(home: &Path, data: &str, other: &str) {
    let added = done(home, &["addvolume", "data", "--file", data]).await;
    assert_eq!(added, "data is attached as sda");
    let add = ["addvolume", "other", "--file", other, "--serial", "Other"];
    assert_eq!(done(home, &add).await, "other is attached as sdb");
    let removed = done(home, &["removevolume", "data"]).await;
    assert_eq!(removed, "data is detached");
    assert_eq!(done(home, &["plan"]).await, "nothing to do");
    let rows = volumes(home).await;
    let other = rows.iter().find(|row| row["name"] == "other").unwrap();
    assert_eq!(
        (&other["target"], &other["state"]),
        (&json!("sdb"), &json!("attached"))
    );
}

async fn a_plugged_volume_stays_that_a_file_has_as_another_kind(laptop: &Laptop, data: &str) {
    let home = laptop.home.path();
    let volumes = json!([{"name": "rootdisk", "containerDisk": {"image": "any/name"}},
        {"name": "data", "emptyDisk": {"capacity": "1Mi"}}]);
    let disks = json!([{"name": "rootdisk", "disk": {"bus": "virtio"}},
        {"name": "data", "disk": {"bus": "scsi"}}]);
    let vmi = laptop.vmi.clone().set("/spec/volumes", volumes);
    let vmi = vmi.set("/spec/domain/devices/disks", disks);
    let file = laptop.path("other.json").display().to_string();
    std::fs::write(&file, vmi.value().to_string()).unwrap();

    let synced = done(home, &["sync", &file]).await;
    assert!(synced.contains("spec.volumes[data]"), "{synced}");
    done(home, &["addvolume", "data", "--file", data]).await;
    let plan = done(home, &["plan"]).await;
    assert!(!plan.contains("[data]"), "{plan}");
    let kept = "needs a restart: spec.volumes[data]";
    for arguments in [&["plan", &file][..], &["sync", &file], &["plan"]] {
        says(home, arguments, kept).await;
    }
    let removed = done(home, &["removevolume", "data"]).await;
    assert_eq!(removed, "data is detached");
}

async fn volumes(home: &Path) -> Vec<Value> {
    serde_json::from_str(&done(home, &["volumes", "-o", "json"]).await).unwrap()
}

/// A VM with a directory of its own, of which only the beginning of its start is waited for.
pub(crate) struct Laptop {
    home: tempfile::TempDir,
    vmi: Vmi,
}

impl Laptop {
    pub(crate) fn new() -> Self {
        Self::of(Vmi::new("laptop"))
    }

    pub(crate) fn of(vmi: Vmi) -> Self {
        let home = short_dir();
        std::fs::copy(counter_image(), home.path().join("guest.img")).unwrap();
        std::fs::write(home.path().join("vmi.json"), vmi.value().to_string()).unwrap();
        Self { home, vmi }
    }

    /// Its guest is Linux, in place of the one that counts.
    pub(crate) fn with_linux(self) -> Self {
        std::fs::copy(guest_image(), self.path("guest.img")).unwrap();
        self
    }

    /// `NAME=FILE` of its root disk.
    pub(crate) fn root_disk(&self) -> String {
        format!("rootdisk={}", self.path("guest.img").display())
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    /// A file for a disk, of so many bytes.
    fn disk(&self, name: &str, size: u64) -> String {
        let path = self.path(name);
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        path.display().to_string()
    }

    /// The socket of the guest's console.
    pub(crate) fn console(&self) -> PathBuf {
        let directory = "vm/var/run/kubevirt-private";
        self.path(&format!("{directory}/{}/virt-serial0", self.vmi.uid()))
    }

    pub(crate) fn run(&self) -> Child {
        let mut command = launcherctl(self.home.path());
        command
            .args(["run", "--emulate", "--disk", &self.root_disk(), "--root"])
            .arg(self.path("vm"))
            .arg(self.path("vmi.json"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    async fn run_until_the_guest_is_there(&self) -> Child {
        let child = self.run();
        Guest::connect(&self.console()).await;
        child
    }

    /// Processes that have something to do with the VM's directory.
    fn processes(&self) -> Vec<(u32, String)> {
        self.processes_of("vm")
    }

    /// Processes that have something to do with a path of the laptop.
    pub(crate) fn processes_of(&self, path: &str) -> Vec<(u32, String)> {
        let root = self.path(path).display().to_string();
        let process = |entry: std::fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            Some((pid, String::from_utf8_lossy(&words).replace('\0', " ")))
        };
        let all = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(process);
        all.filter(|(_, words)| words.contains(&root) && !words.contains("launcherctl"))
            .collect()
    }
}

pub fn signal(pid: u32, name: &str) {
    crate::harness::signal(name, &[pid]);
}

pub async fn end_of(child: Child) -> Output {
    tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
        .await
        .unwrap()
}

#[tokio::test]
// D-sup-6 (docs/differences.md).
async fn a_run_leaves_no_process_behind() {
    let laptop = Laptop::new();
    // Stopped before there is a guest.
    let child = laptop.run();
    os::inotify::appears(&laptop.path("vm/var/run/kubevirt/sockets/launcher-sock")).await;
    signal(child.id(), "TERM");
    end_of(child).await;
    assert_eq!(laptop.processes(), []);

    // Its launcher is killed.
    let child = laptop.run_until_the_guest_is_there().await;
    let launcher = laptop
        .processes()
        .into_iter()
        .find(|(_, words)| words.contains("virt-launcher"))
        .unwrap();
    signal(launcher.0, "KILL");
    let output = end_of(child).await;
    assert!(
        !output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("the launcher was killed")
    );
    assert_eq!(laptop.processes(), []);

    // Its QEMU is killed.
    let child = laptop.run();
    let mut guest = Guest::connect(&laptop.console()).await;
    guest.until(UP).await;
    let all = laptop.processes();
    let is_qemu = |it: &&(u32, String)| it.1.contains("guest=");
    signal(all.iter().find(is_qemu).unwrap().0, "KILL");
    let output = end_of(child).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the guest has crashed: its QEMU was killed"),
        "{said}"
    );
    assert_eq!(laptop.processes(), []);

    // The terminal is closed while the guest cannot be asked to shut down; then a second signal
    // comes.
    let mut child = laptop.run_until_the_guest_is_there().await;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut says = |text: &str| lines.any(|line| line.unwrap().contains(text));
    // Before, the start is given up.
    assert!(says("domain is running"));
    done(laptop.home.path(), &["pause"]).await;
    signal(child.id(), "HUP");
    assert!(says(
        "the guest is paused, and shuts down only once it is resumed"
    ));
    signal(child.id(), "INT");
    assert!(end_of(child).await.status.success());
    assert_eq!(laptop.processes(), []);
}

/// The user `nobody`.
pub(crate) const NOBODY: u32 = 65534;

#[test]
fn an_ordinary_user_runs_a_vm() {
    let mut probe = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    let is_root = rustix::process::geteuid().is_root();
    if is_root
        && probe
            .arg("--list")
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .is_err()
    {
        return eprintln!("skipped: an ordinary user may not start what is built here");
    }
    let laptop = Laptop::new();
    let home = laptop.home.path();
    let mut command = launcherctl(home);
    command
        .args(["run", "-o", "json", "--emulate", "--until", UP, "--disk"])
        .args([laptop.root_disk().into(), laptop.path("vmi.json")]);
    // As after su(1), and without a home directory.
    command
        .env("TMPDIR", home)
        .env("XDG_RUNTIME_DIR", "/run")
        .env("HOME", "/nonexistent");
    if is_root {
        for path in [home, &laptop.path("guest.img")] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let (progress, console) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(
        output.status.success() && console.contains(UP),
        "{progress}{console}"
    );
    let phases: Vec<Value> = progress
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        phases.iter().any(|line| line["phase"] == "guest is up"),
        "{progress}"
    );
}
