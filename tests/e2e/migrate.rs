//! `launcherctl migrate` between the launchers of two pods, and below roots of their own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::harness::{
    Guest, Pod, Stopped, User, Vmi, in_container, output_of, pod_tool, source_pod, target_pod,
    until,
};
use crate::launcherctl::{Laptop, Running as RunningVm, done, refused, says, signal, verb};

/// Keeps the guest's memory changing.
const WRITE_MEMORY: &str = "(while :; do dd if=/dev/urandom of=/tmp/dirty bs=1M count=24 2>/dev/null; done) >/dev/null 2>&1 &";

fn launcherctl(arguments: &[&str]) -> Command {
    let mut command = pod_tool("launcherctl");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The VMI in a file of its own, as a user of a cluster has it.
/// `launcherctl migrate` from one pod to another.
fn migrate(source: &Pod, target: &Pod, more: &[&str]) -> Command {
    let mut command = launcherctl(&["-o", "json", "migrate", "--root"]);
    command.arg(source.root());
    command.arg("--to").arg(target.root()).args(more);
    command
}

/// The JSON lines on standard output.
fn lines(output: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(output).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn events<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == name).collect()
}

fn failure(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it should have failed");
    text
}

/// A source whose guest's shell has a mark, and a launcher that waits.
async fn pair(name: &str) -> (Pod, Guest, Pod, Vmi) {
    let vmi = Vmi::new(name);
    let (source, mut guest) = source_pod(&vmi, &[]).await;
    guest.run("mark=kept").await;
    let target = target_pod(&source, &vmi, "target", &[]).await;
    (source, guest, target, vmi)
}

async fn goes_on(mut guest: Guest) {
    assert_eq!(guest.run("echo $mark").await, "kept");
}

/// A migration that goes on, whose standard output is read up to this event.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(mut command: Command, until: &str) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self { child, lines };
        let mut line = String::new();
        while !line.contains(&format!("\"event\":\"{until}\"")) {
            line.clear();
            if running.lines.read_line(&mut line).unwrap() == 0 {
                panic!(
                    "it has ended: {}",
                    failure(&running.child.wait_with_output().unwrap())
                );
            }
        }
        running
    }

    fn interrupt(&self) {
        signal(self.child.id(), "INT");
    }

    /// What it says on standard error when it has failed.
    fn failure(mut self) -> String {
        let mut rest = String::new();
        while self.lines.read_line(&mut rest).unwrap() > 0 {}
        failure(&self.child.wait_with_output().unwrap())
    }
}

/// Without `--to`, `migrate` starts the target's launcher.
#[tokio::test]
async fn without_a_guest_no_launcher_is_started() {
    let mut pod = Pod::new();
    let vmi = Vmi::new("nobody");
    pod.start(&vmi, &[]).await;
    let directories = tempfile::tempdir().unwrap();
    let mut command = launcherctl(&["migrate", "--root"]);
    command.arg(pod.root()).env("TMPDIR", directories.path());
    let refused = failure(&output_of(command).await);
    assert!(refused.contains("was sent no VMI"), "{refused}");
    let entries = directories.path().read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // The registry of this user's VMs is there, where XDG_RUNTIME_DIR is not set.
    let launchers: Vec<_> = names
        .filter(|name| !name.starts_with("launcherctl-"))
        .collect();
    assert_eq!(launchers, Vec::<String>::new());
}

#[test]
fn a_guest_moves_to_the_launcher_of_another_pod_and_on_to_a_third() {
    in_container(User::Qemu, async {
        let (mut source, _guest, mut target, vmi) = pair("moves").await;
        // So that it lasts longer than the time between two samples.
        let command = migrate(&source, &target, &["--bandwidth", "32Mi"]);
        let moved = output_of(command).await;
        let message = String::from_utf8_lossy(&moved.stderr);
        assert!(moved.status.success(), "{message}\n{}", source.log_tail());
        let lines = lines(&moved.stdout);
        assert_eq!(events(&lines, "began").len(), 1);
        let sample = *events(&lines, "sample").last().unwrap();
        assert!(
            sample["dataTotal"].as_u64().unwrap() > 256 << 20,
            "{sample}"
        );
        assert_eq!(sample["mode"], "PreCopy");
        let ended = events(&lines, "ended")[0];
        assert_eq!(ended["failure"], "");
        assert!(ended["downtimeMs"].as_u64().is_some(), "{ended}");
        assert_eq!(lines.last().unwrap()["success"], true);
        goes_on(target.guest(&vmi).await).await;
        assert_eq!(source.exit_code().await, 0);

        let third = target_pod(&target, &vmi, "third", &[]).await;
        let mut command = launcherctl(&["migrate", "--bandwidth", "32Mi", "--root"]);
        command.arg(target.root()).arg("--to").arg(third.root());
        let moved = output_of(command).await;
        let message = String::from_utf8_lossy(&moved.stderr);
        assert!(moved.status.success(), "{message}\n{}", target.log_tail());
        assert!(
            message.contains("migration begins") && message.contains(" left, "),
            "{message}"
        );
        let text = String::from_utf8_lossy(&moved.stdout);
        assert!(
            text.starts_with("migrated in ") && text.contains("the VM runs in /tmp/"),
            "{text}"
        );
        goes_on(third.guest(&vmi).await).await;
        assert_eq!(target.exit_code().await, 0);
    });
}

#[test]
fn a_cancelled_migration_leaves_the_guest_and_ends_the_target() {
    in_container(User::Qemu, async {
        let (source, guest, mut target, vmi) = pair("cancelled").await;
        let slow = migrate(&source, &target, &["--bandwidth", "1Mi"]);
        let migration = Running::start(slow, "sample");
        let second = failure(&output_of(migrate(&source, &target, &[])).await);
        assert!(
            second.contains("migration of this VM is in progress"),
            "{second}"
        );
        let mut pause = launcherctl(&["pause", "--root"]);
        pause.arg(source.root());
        let paused = output_of(pause).await;
        let text = String::from_utf8_lossy(&paused.stdout);
        let expected = "for the rest of its migration only: it then runs at the target";
        assert!(paused.status.success() && text.contains(expected), "{text}");
        migration.interrupt();
        let message = tokio::task::spawn_blocking(|| migration.failure())
            .await
            .unwrap();
        for expected in ["and the guest runs on in ", "cancelled by Ctrl-C"] {
            assert!(message.contains(expected), "{message}");
        }
        // It was told so by its POD_NAME.
        target.exit_code().await;
        let mut unpause = launcherctl(&["unpause", "--root"]);
        unpause.arg(source.root());
        let resumed = output_of(unpause).await;
        let text = String::from_utf8_lossy(&resumed.stderr);
        assert!(resumed.status.success(), "{text}\n{}", source.log_tail());
        goes_on(guest).await;

        // What has happened is known later, too.
        let mut command = launcherctl(&["migration", "--root"]);
        command.arg(source.root());
        let shown = output_of(command).await;
        let text = String::from_utf8_lossy(&shown.stdout);
        assert_eq!(shown.status.code(), Some(1), "{text}");
        assert!(text.contains("the migration was cancelled after"), "{text}");
        let text = String::from_utf8_lossy(&shown.stderr);
        assert!(
            text.contains("migration is being cancelled: CancelVirtualMachineMigration was called"),
            "{text}"
        );

        let second = target_pod(&source, &vmi, "second", &[]).await;
        let late = migrate(&source, &second, &["--bandwidth", "1Mi", "--timeout", "2"]);
        let message = failure(&output_of(late).await);
        for expected in ["the guest runs on in ", "after --timeout 2 s"] {
            assert!(message.contains(expected), "{message}");
        }
        let third = target_pod(&source, &vmi, "third", &[]).await;
        let moved = output_of(migrate(&source, &third, &[])).await;
        assert!(
            moved.status.success(),
            "{}",
            String::from_utf8_lossy(&moved.stderr)
        );
        goes_on(third.guest(&vmi).await).await;
    });
}

#[test]
fn a_stalled_migration_shows_what_was_decided() {
    in_container(User::Qemu, async {
        let (source, mut guest, target, _) = pair("stalled").await;
        guest.send(WRITE_MEMORY).await;
        let limits = [
            "--bandwidth",
            "4Mi",
            "--completion-timeout",
            "4",
            "--allow-pause",
            "--auto-converge",
        ];
        let stalled = output_of(migrate(&source, &target, &limits)).await;
        let message = failure(&stalled);
        assert!(message.contains("the guest runs on in "), "{message}");
        let lines = lines(&stalled.stdout);
        let actions: Vec<_> = events(&lines, "decision")
            .iter()
            .map(|it| it["action"].clone())
            .collect();
        assert_eq!(actions, ["Suspend", "Abort"]);
        assert!(
            events(&lines, "sample")
                .iter()
                .any(|it| it["isPaused"] == true)
        );
        assert_eq!(
            events(&lines, "decision")[0]["why"],
            "not completed after 4 s"
        );
        goes_on(guest).await;
    });
}

#[test]
fn a_target_that_is_killed_leaves_the_guest_with_a_reason() {
    in_container(User::Qemu, async {
        let (source, guest, target, _) = pair("bereft").await;
        let slow = migrate(&source, &target, &["--bandwidth", "1Mi"]);
        let migration = Running::start(slow, "sample");
        target.signal("KILL");
        let message = tokio::task::spawn_blocking(|| migration.failure())
            .await
            .unwrap();
        assert!(
            !message.contains("virError(") && message.contains("the guest runs on in "),
            "{message}"
        );
        goes_on(guest).await;
    });
}

#[test]
fn what_cannot_be_migrated_is_refused_before_anything_happens() {
    in_container(User::Qemu, async {
        let (source, guest, target, _) = pair("refused").await;
        let refused = async |from: &Pod, to: &Path| {
            let mut command = launcherctl(&["migrate", "--root"]);
            command.arg(from.root()).arg("--to").arg(to);
            failure(&output_of(command).await)
        };
        let message = refused(&source, source.root()).await;
        assert!(message.contains("has a guest already"), "{message}");
        let message = refused(&target, source.root()).await;
        assert!(message.contains("was sent no VMI"), "{message}");
        let message = refused(&source, Path::new("/nonexistent")).await;
        assert!(message.contains("--to /nonexistent"), "{message}");
        let mut command = launcherctl(&["migration", "--root"]);
        command.arg(source.root());
        let message = failure(&output_of(command).await);
        assert!(message.contains("no migration from here"), "{message}");
        let state = json!(source.domain().await["Status"]["Status"]);
        assert_eq!(state, "Running");
        goes_on(guest).await;
    });
}

/// Whether it has succeeded and what it has said on standard error, once it has ended by itself.
async fn ended(mut running: RunningVm) -> (bool, String) {
    let mut stderr = running.0.stderr.take().unwrap();
    tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
        (running.0.wait().unwrap().success(), text)
    })
    .await
    .unwrap()
}

/// Where the VM of this name has its files now.
fn place(home: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_link(home.join("launcherctl").join(name)).ok()
}

/// Sends the VMI with volumes and a socket that only a start could give the guest. The volumes have
/// no image, and must not hinder a migration.
async fn sync_what_needs_a_restart(home: &Path, vmi: &Vmi) {
    let vmi = vmi.clone().set("/spec/domain/cpu/sockets", json!(2));
    let mut vmi = vmi.value().clone();
    for (name, source) in [
        (
            "late-claim",
            json!({"persistentVolumeClaim": {"claimName": "late"}}),
        ),
        ("late-image", json!({"containerDisk": {"image": "late"}})),
        ("late-scratch", json!({"emptyDisk": {"capacity": "8Mi"}})),
    ] {
        let mut volume = source;
        volume["name"] = name.into();
        let list = |pointer| vmi.pointer(pointer).unwrap().as_array().unwrap().clone();
        let (mut volumes, mut disks) = (list("/spec/volumes"), list("/spec/domain/devices/disks"));
        volumes.push(volume);
        disks.push(json!({"name": name, "disk": {"bus": "virtio"}}));
        vmi["spec"]["volumes"] = volumes.into();
        vmi["spec"]["domain"]["devices"]["disks"] = disks.into();
    }
    let file = home.join("later.json");
    std::fs::write(&file, vmi.to_string()).unwrap();
    let synced = verb(home, &["sync", file.to_str().unwrap()]).await;
    let text = String::from_utf8_lossy(&synced.stdout);
    let error = String::from_utf8_lossy(&synced.stderr);
    for name in ["late-claim", "late-image", "late-scratch"] {
        let expected = format!("needs a restart: spec.volumes[{name}] is new");
        assert!(text.contains(&expected), "{text}{error}");
    }
    let text = done(home, &["volumes", "-o", "json"]).await;
    assert!(!text.contains("late-"), "{text}");
}

#[tokio::test]
async fn a_vm_of_run_moves_to_a_launcher_that_migrate_starts() {
    // Disks of each kind: a claim, an empty one, a generated one.
    let vmi = Vmi::new("mover")
        .volume(
            json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config\n"}}),
            json!({"name": "seed", "disk": {"bus": "virtio"}}),
        )
        .volume(
            json!({"name": "scratch", "emptyDisk": {"capacity": "8Mi"}}),
            json!({"name": "scratch", "disk": {"bus": "virtio"}}),
        )
        .volume(
            json!({"name": "tls", "secret": {"secretName": "tls"}}),
            json!({"name": "tls", "disk": {"bus": "virtio"}}),
        )
        // The source has the ports until it ends, so the target needs others.
        .set("/spec/networks", json!([{"name": "default", "pod": {}}]))
        .set(
            "/spec/domain/devices/interfaces",
            json!([{"name": "default", "masquerade": {}}]),
        );
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}, "stringData": {"key": "abc"},
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [vmi.value(), secret]});
    let laptop = Laptop::of(vmi.clone());
    let home = &laptop.path("");
    std::fs::write(laptop.path("vmi.json"), list.to_string()).unwrap();
    let mut command = crate::launcherctl::launcherctl(home);
    command
        .args(["run", "--emulate", "--disk", &laptop.root_disk()])
        .arg(laptop.path("vmi.json"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let first = RunningVm(command.spawn().unwrap());
    until("run has made a directory", || {
        place(home, "mover").is_some()
    })
    .await;
    let console = format!("var/run/kubevirt-private/{}/virt-serial0", vmi.uid());
    let before = place(home, "mover").unwrap();
    let mut guest = Guest::connect(&before.join(console)).await;
    guest.until(crate::harness::UP).await;
    guest.until("guest# ").await;
    guest
        .run("mark=kept; echo written | dd of=/dev/vdc conv=fsync 2>/dev/null")
        .await;
    let read = "echo 3 >/proc/sys/vm/drop_caches; md5sum </dev/vdb; md5sum </dev/vdc";
    let content = guest.run(read).await;
    drop(guest);
    sync_what_needs_a_restart(home, &vmi).await;

    // The second time from a daemon to another one. Without a terminal the first one does not stay
    // either.
    let mut place_now = before;
    let mut texts = Vec::new();
    let mut ports = std::collections::BTreeSet::new();
    for more in [&[][..], &["--detach"]] {
        // So that it lasts longer than the time between two samples.
        let slowed = ["migrate", "--name", "mover", "--bandwidth", "32Mi"];
        let arguments = [&slowed, more].concat();
        let moved = verb(home, &arguments).await;
        let text = String::from_utf8_lossy(&moved.stderr).into_owned();
        assert!(moved.status.success(), "{text}");
        texts.push(text);
        until("it has moved", || {
            place(home, "mover").is_some_and(|now| now != place_now)
        })
        .await;
        place_now = place(home, "mover").unwrap();
        let status = done(home, &["status", "mover", "-o", "json"]).await;
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["state"], "Running", "{status}");
        let port = status["ports"][0]["host"].as_u64().unwrap();
        assert!(ports.insert(port), "{port} is that of the source");
        let port = u16::try_from(port).unwrap();
        std::net::TcpStream::connect(("127.0.0.1", port)).expect("leads to the guest");
    }
    let later = laptop.path("later.json");
    for words in [["plan"].as_slice(), &["plan", later.to_str().unwrap()]] {
        let plan = done(home, words).await;
        let expected = "needs a restart: spec.domain.cpu.sockets: 1 becomes 2";
        assert_eq!(plan.matches(expected).count(), 1, "{plan}");
    }
    let (success, text) = ended(first).await;
    assert!(success, "{text}");
    assert!(
        text.contains("the VM has migrated to another launcher"),
        "{text}"
    );
    for text in texts {
        let ready = text.find("launcher of the target is ready").unwrap();
        assert!(ready < text.find("migration begins").unwrap(), "{text}");
        assert!(text.contains("mover runs on"), "{text}");
    }
    let end = std::time::Instant::now() + crate::harness::TEST_TIMEOUT;
    loop {
        let asked = verb(home, &["guest", "exec", "--", "sh", "-c", read]).await;
        if asked.status.success() {
            let text = String::from_utf8(asked.stdout).unwrap();
            assert_eq!(text.trim(), content);
            break;
        }
        let message = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert!(
            std::time::Instant::now() < end,
            "the guest does not answer: {message}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    says(home, &["status"], "mover: Running").await;
    let processes = laptop.processes_of(place_now.to_str().unwrap()).into_iter();
    let is_daemon = |words: &str| words.contains("/libvirtd ") || words.contains("/virtqemud ");
    let libvirt = processes.filter(|(_, words)| is_daemon(words));
    let libvirt = Stopped::now(libvirt.map(|(pid, _)| pid).collect());
    let said = refused(home, &["stats", "mover"]).await;
    assert!(
        said.contains("libvirt (process ") && said.contains("kill -CONT"),
        "{said}"
    );
    drop(libvirt);
    // Without its supervisor, nobody but migrate ends the launcher that the VM leaves.
    let left = place_now;
    let control = std::os::unix::net::UnixStream::connect(left.join("control.sock")).unwrap();
    let supervisor = rustix::net::sockopt::socket_peercred(&control).unwrap().pid;
    signal(supervisor.as_raw_nonzero().get().cast_unsigned(), "KILL");
    done(home, &["migrate", "mover", "--detach"]).await;
    until("its files are removed", || !left.exists()).await;
    assert_eq!(laptop.processes_of(left.to_str().unwrap()), []);
    let place_now = place(home, "mover").unwrap();
    done(home, &["stop", "mover"]).await;
    assert!(place(home, "mover").is_none() && !place_now.exists());
}
