//! A VM of `launcherctl run` and its disks, without a cluster.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Guest, Vmi, guest_image, run};

/// `launcherctl` with a registry of its own.
pub fn launcherctl(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pod-tools"));
    command
        .arg("launcherctl")
        .env("XDG_RUNTIME_DIR", home)
        .stdin(Stdio::null());
    command
}

/// Runs a verb on the only VM there is.
pub(crate) async fn verb(home: &Path, arguments: &[&str]) -> Output {
    let mut command = launcherctl(home);
    command.args(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
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

/// Ended with the test, by the signal that ends the VM too.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-s", "TERM", &self.0.id().to_string()])
            .status();
        let _ = self.0.wait();
    }
}

#[test]
fn a_disk_is_plugged_and_unplugged_while_the_guest_runs() {
    run(async {
        let home = tempfile::Builder::new()
            .prefix("vt")
            .tempdir_in("/tmp")
            .unwrap();
        let home = home.path();
        let (root, data) = (home.join("vm"), home.join("data.img"));
        let (image, manifest) = (home.join("guest.img"), home.join("vmi.json"));
        std::fs::copy(guest_image(), &image).unwrap();
        let container_disk =
            serde_json::json!([{"name": "rootdisk", "containerDisk": {"image": "any/name"}}]);
        let vmi = Vmi::new("laptop").set("/spec/volumes", container_disk);
        std::fs::write(&manifest, vmi.value().to_string()).unwrap();
        let mut command = launcherctl(home);
        command
            .args([
                "run",
                "--emulate",
                "--disk",
                &format!("rootdisk={}", image.display()),
                "--root",
            ])
            .arg(&root)
            .arg(&manifest);
        let running = Running(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        );
        let console = root.join(format!(
            "var/run/kubevirt-private/{}/virt-serial0",
            vmi.uid()
        ));
        let mut guest = Guest::connect(&console).await;
        guest.until(crate::harness::UP).await;

        // `run` serves the notify socket and passes the events on.
        let mut watch = launcherctl(home)
            .args(["watch", "laptop", "--count", "2"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        while watch.try_wait().unwrap().is_none() {
            done(home, &["pause"]).await;
            done(home, &["unpause"]).await;
        }
        let events = String::from_utf8(watch.wait_with_output().unwrap().stdout).unwrap();
        assert!(events.contains("default_laptop  Paused (User)"), "{events}");
        // What needs a guest that runs says what to do first.
        done(home, &["pause"]).await;
        for verb in [
            ["guest", "ping"].as_slice(),
            &["guest", "exec", "--", "/bin/true"],
            &["freeze"],
            &["soft-reboot"],
            &["shutdown"],
            &["shutdown", "--wait"],
            &["ssh", "laptop"],
        ] {
            let error = refused(home, verb).await;
            let wanted = "is paused: launcherctl unpause first";
            assert!(error.contains(wanted), "{verb:?}: {error}");
        }
        let error = refused(home, &["shutdown", "-o", "json"]).await;
        let error: Value = serde_json::from_str(&error).unwrap();
        assert!(error["error"].as_str().unwrap().contains("unpause"));
        done(home, &["unpause"]).await;

        std::fs::File::create(&data)
            .unwrap()
            .set_len(3 << 19)
            .unwrap();
        let file = data.to_str().unwrap();
        assert!(
            refused(home, &["addvolume", "../data", "--file", file])
                .await
                .contains("invalid volume name")
        );
        assert!(
            refused(home, &["addvolume", "data", "--file", "/nonexistent"])
                .await
                .contains("/nonexistent")
        );
        let page = home.join("page.html");
        std::fs::write(&page, "<!DOCTYPE html>").unwrap();
        assert!(
            refused(
                home,
                &["addvolume", "data", "--file", page.to_str().unwrap()]
            )
            .await
            .contains("a web page")
        );
        assert!(
            refused(home, &["removevolume", "data"])
                .await
                .contains("no volume")
        );
        assert_eq!(done(home, &["plan"]).await, "nothing to do");

        assert_eq!(
            done(
                home,
                &["addvolume", "data", "--file", file, "--serial", "MyData-01"]
            )
            .await,
            "data is attached as sda"
        );
        guest
            .run_until("disks", |disks| disks.contains("MyData-01"))
            .await;
        assert!(
            refused(home, &["addvolume", "data", "--file", file])
                .await
                .contains("already")
        );
        assert!(
            refused(home, &["addvolume", "again", "--file", file])
                .await
                .contains("as volume data (sda)")
        );
        let table = done(home, &["volumes"]).await;
        let row = table
            .lines()
            .find(|line| line.starts_with("data "))
            .unwrap();
        assert!(
            ["sda", "1.5 MiB", "MyData-01", "attached"]
                .iter()
                .all(|part| row.contains(part)),
            "{table}"
        );
        let rows: Value =
            serde_json::from_str(&done(home, &["volumes", "-o", "json"]).await).unwrap();
        assert_eq!(
            (&rows[0]["name"], &rows[0]["target"]),
            (&"rootdisk".into(), &"vda".into())
        );
        assert_eq!(rows[0]["size"], image.metadata().unwrap().len());

        // What the guest writes is in the user's file, and stays there.
        guest.run("printf written >/dev/sda; sync").await;
        assert_eq!(
            done(home, &["removevolume", "data"]).await,
            "data is detached"
        );
        guest
            .run_until("disks", |disks| !disks.contains("MyData-01"))
            .await;
        assert!(std::fs::read(&data).unwrap().starts_with(b"written"));
        assert_eq!(done(home, &["plan"]).await, "nothing to do");

        // A disk keeps its name when one before it goes.
        let other = home.join("other.img");
        std::fs::File::create(&other)
            .unwrap()
            .set_len(1 << 20)
            .unwrap();
        assert_eq!(
            done(home, &["addvolume", "data", "--file", file]).await,
            "data is attached as sda"
        );
        let added = done(
            home,
            &[
                "addvolume",
                "other",
                "--file",
                other.to_str().unwrap(),
                "--serial",
                "Other",
            ],
        )
        .await;
        assert_eq!(added, "other is attached as sdb");
        assert_eq!(
            done(home, &["removevolume", "data"]).await,
            "data is detached"
        );
        assert_eq!(done(home, &["plan"]).await, "nothing to do");
        let rows: Value =
            serde_json::from_str(&done(home, &["volumes", "-o", "json"]).await).unwrap();
        let other = rows
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["name"] == "other")
            .unwrap();
        assert_eq!(
            (&other["target"], &other["state"]),
            (&"sdb".into(), &"attached".into())
        );
        let overlays = root.join("var/run/kubevirt-ephemeral-disks/disk-data");
        assert!(overlays.join("rootdisk").exists());
        drop(running);
        assert!(
            !overlays.exists(),
            "a container disk's content goes with the VM"
        );
        assert!(
            refused(home, &["ping", "--name", "laptop"])
                .await
                .contains("no VM named laptop")
        );
    });
}

/// A VM with a directory of its own, of which only the beginning of its start is waited for.
pub(crate) struct Laptop {
    home: tempfile::TempDir,
    vmi: Vmi,
}

impl Laptop {
    pub(crate) fn new() -> Self {
        let home = tempfile::Builder::new()
            .prefix("vt")
            .tempdir_in("/tmp")
            .unwrap();
        let vmi = Vmi::new("laptop");
        std::fs::copy(guest_image(), home.path().join("guest.img")).unwrap();
        std::fs::write(home.path().join("vmi.json"), vmi.value().to_string()).unwrap();
        Self { home, vmi }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    fn run(&self) -> Child {
        let mut command = launcherctl(self.home.path());
        command.args([
            "run",
            "--emulate",
            "--disk",
            &format!("rootdisk={}", self.path("guest.img").display()),
            "--root",
        ]);
        command
            .arg(self.path("vm"))
            .arg(self.path("vmi.json"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    async fn run_until_the_guest_is_there(&self) -> Child {
        let child = self.run();
        Guest::connect(&self.path(&format!(
            "vm/var/run/kubevirt-private/{}/virt-serial0",
            self.vmi.uid()
        )))
        .await;
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
    assert!(
        Command::new("kill")
            .args(["-s", name, &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

pub async fn end_of(child: Child) -> Output {
    tokio::task::spawn_blocking(move || child.wait_with_output().unwrap())
        .await
        .unwrap()
}

#[test]
// D-sup-6 (docs/differences.md).
fn a_run_leaves_no_process_behind() {
    run(async {
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
                && String::from_utf8_lossy(&output.stderr).contains("ended on its own")
        );
        assert_eq!(laptop.processes(), []);

        // Its QEMU is killed.
        let child = laptop.run();
        let console = format!(
            "vm/var/run/kubevirt-private/{}/virt-serial0",
            laptop.vmi.uid()
        );
        let mut guest = Guest::connect(&laptop.path(&console)).await;
        guest.until(crate::harness::UP).await;
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

        // The terminal is closed while the guest cannot be asked to shut down; then a second signal comes.
        let mut child = laptop.run_until_the_guest_is_there().await;
        done(laptop.home.path(), &["pause"]).await;
        signal(child.id(), "HUP");
        let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(notes.any(|line| line.unwrap().contains("cannot be asked to shut down")));
        signal(child.id(), "INT");
        assert!(end_of(child).await.status.success());
        assert_eq!(laptop.processes(), []);
    });
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
    let home = tempfile::Builder::new()
        .prefix("vt")
        .tempdir_in("/tmp")
        .unwrap();
    let home = home.path();
    let (image, manifest) = (home.join("guest.img"), home.join("vmi.json"));
    std::fs::copy(guest_image(), &image).unwrap();
    std::fs::write(&manifest, Vmi::new("laptop").value().to_string()).unwrap();
    let mut command = launcherctl(home);
    command
        .args([
            "run",
            "-o",
            "json",
            "--emulate",
            "--until",
            crate::harness::UP,
            "--disk",
            &format!("rootdisk={}", image.display()),
        ])
        .arg(&manifest);
    // As after su(1), and without a home directory.
    command
        .env("TMPDIR", home)
        .env("XDG_RUNTIME_DIR", "/run")
        .env("HOME", "/nonexistent");
    if is_root {
        for path in [home, &image] {
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
        output.status.success() && console.contains(crate::harness::UP),
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
