//! VMs of `launcherctl run` that outlive their terminal, and the verbs that find them by name.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::harness::{Guest, UP, run};
use crate::launcherctl::{Laptop, done, launcherctl, refused, signal};

/// The arguments of `run` for the test guest.
fn run_arguments(laptop: &Laptop) -> Vec<String> {
    let disk = format!("rootdisk={}", laptop.path("guest.img").display());
    let manifest = laptop.path("vmi.json").display().to_string();
    [
        "run",
        "--emulate",
        "--disk",
        &disk,
        "--until",
        UP,
        &manifest,
    ]
    .map(str::to_owned)
    .into()
}

/// Starts the VM and leaves it running, in a directory that goes with it.
pub(crate) async fn start_detached(laptop: &Laptop) {
    let mut command = launcherctl(&laptop.path(""));
    command
        .args(run_arguments(laptop))
        .arg("--detach")
        .env("TMPDIR", laptop.path(""));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("guest is up"),
        "{text}"
    );
    assert!(text.contains("launcherctl stop laptop"), "{text}");
}

/// Stops the laptop's VMs, also when the test fails.
pub(crate) struct StopAll(PathBuf);

impl Drop for StopAll {
    fn drop(&mut self) {
        let mut stop = launcherctl(&self.0);
        let _ = stop.args(["stop", "--all", "--force"]).output();
    }
}

/// A laptop, its home directory, and what stops its VMs.
pub(crate) fn laptop() -> (Laptop, PathBuf, StopAll) {
    let laptop = Laptop::new();
    let home = laptop.path("");
    let stop = StopAll(home.clone());
    (laptop, home, stop)
}

pub(crate) async fn rows(laptop: &Laptop) -> Vec<Value> {
    let list = done(&laptop.path(""), &["list", "-o", "json"]).await;
    serde_json::from_str(&list).unwrap()
}

/// The directory of the only VM.
pub(crate) async fn directory(laptop: &Laptop) -> PathBuf {
    rows(laptop).await[0]["root"].as_str().unwrap().into()
}

/// Processes other than launcherctl with something of the laptop in their arguments.
fn processes(laptop: &Laptop) -> Vec<u32> {
    laptop
        .processes_of("")
        .into_iter()
        .map(|(pid, _)| pid)
        .collect()
}

pub(crate) fn supervisor(laptop: &Laptop) -> u32 {
    let root = laptop.path("").display().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let mut found = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        (words.contains("supervise") && words.contains(&root)).then_some(pid)
    });
    found.next().unwrap()
}

#[test]
fn of_several_runs_at_once_one_gets_the_name() {
    run(async {
        let (laptop, home, _stop) = laptop();
        let start = || {
            launcherctl(&home)
                .args(run_arguments(&laptop))
                .arg("--detach")
                .env("TMPDIR", &home)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let runs: Vec<_> = (0..4).map(|_| start()).collect();
        let ended = tokio::task::spawn_blocking(|| {
            let ended = runs.into_iter().map(|run| run.wait_with_output().unwrap());
            ended.collect::<Vec<_>>()
        });
        let (started, refused): (Vec<_>, Vec<_>) = ended
            .await
            .unwrap()
            .into_iter()
            .partition(|run| run.status.success());
        let texts: Vec<_> = refused
            .iter()
            .map(|run| String::from_utf8_lossy(&run.stderr))
            .collect();
        assert_eq!(started.len(), 1, "{texts:?}");
        for text in texts {
            assert!(text.contains("a VM named laptop is running"), "{text}");
        }
        assert_eq!(rows(&laptop).await.len(), 1);
        done(&home, &["stop", "laptop", "--force"]).await;
        assert_eq!(processes(&laptop), Vec::<u32>::new());
    });
}

#[test]
fn a_detached_vm_is_found_by_its_name() {
    run(async {
        let (laptop, home, _stop) = laptop();
        assert!(done(&home, &["list"]).await.starts_with("no VM runs here"));
        start_detached(&laptop).await;
        let root = directory(&laptop).await;

        let row = &rows(&laptop).await[0];
        assert_eq!(
            (&row["name"], &row["state"]),
            (&"laptop".into(), &"Running".into())
        );
        assert_eq!(row["supervised"], true);
        // libvirt's reason says nothing more.
        assert!(row["reason"].is_null(), "{row}");
        let qemu = row["guestPid"].as_u64().unwrap();
        assert!(processes(&laptop).contains(&u32::try_from(qemu).unwrap()));
        let domain = done(&home, &["domain"]).await;
        assert!(domain.starts_with("default_laptop  Running\n"), "{domain}");
        assert!(
            done(&home, &["status", "laptop"])
                .await
                .starts_with("laptop: Running")
        );
        assert!(
            done(&home, &["dumpxml", "laptop"])
                .await
                .contains("<name>default_laptop</name>")
        );
        while !done(&home, &["logs", "laptop"])
            .await
            .contains("The guest is up")
        {}
        assert!(done(&home, &["logs", "--console"]).await.contains(UP));
        assert!(
            refused(&home, &["status", "other"])
                .await
                .contains("no VM named other")
        );
        let error = refused(&home, &["watch", "labtop"]).await;
        assert!(error.contains("did you mean laptop?"), "{error}");

        // Two terminals at once, and what was written before they came.
        let console = root.join("console.sock");
        let (mut first, mut second) = (
            Guest::connect(&console).await,
            Guest::connect(&console).await,
        );
        for guest in [&mut first, &mut second] {
            guest.until(UP).await;
        }
        assert_eq!(first.run("echo one").await, "one");
        second.until("<<\r\none\r\n>>").await;
        drop(first);
        assert_eq!(second.run("echo two").await, "two");

        // The verb, without a terminal: it types what it reads, and prints what the guest writes.
        let mut verb = launcherctl(&home)
            .args(["console", "laptop"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        verb.stdin
            .as_mut()
            .unwrap()
            .write_all(b"echo $((40+2))\n")
            .unwrap();
        read_until(verb.stdout.as_mut().unwrap(), "\n42");
        signal(verb.id(), "TERM");
        assert!(verb.wait().unwrap().success());
        // It ends with its input; or when an answer has come, which it has not read before.
        done(&home, &["console", "laptop"]).await;
        for answer in ["answer-1", "answer-2", "answer-2"] {
            let number = answer.split('-').nth(1).unwrap();
            let mut verb = launcherctl(&home)
                .args(["console", "laptop", "--until", answer])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = verb.stdin.take().unwrap();
            writeln!(stdin, "echo hello; echo answer-$(({number}))").unwrap();
            drop(stdin);
            let output = verb.wait_with_output().unwrap();
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{shown}");
            // The shell's prompt may stand before it.
            let expected = format!("hello\r\n{answer}");
            assert!(shown.contains(&expected) && !shown.contains(UP), "{shown}");
        }
        let never = ["console", "laptop", "--until", "never", "--timeout", "1"];
        assert!(
            refused(&home, &never)
                .await
                .contains("\"never\" has not appeared on the console after 1 s")
        );

        // The address is a VNC server's.
        let mut proxy = launcherctl(&home)
            .args(["vnc", "laptop", "--proxy-only", "-o", "json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = read_until(proxy.stdout.as_mut().unwrap(), "\n");
        let address: Value = serde_json::from_str(&line).unwrap();
        let address = address["address"]
            .as_str()
            .unwrap()
            .strip_prefix("vnc://")
            .unwrap();
        let mut viewer = std::net::TcpStream::connect(address).unwrap();
        read_until(&mut viewer, "RFB 003.");
        signal(proxy.id(), "TERM");
        assert!(proxy.wait().unwrap().success());

        // It waits for the supervisor too.
        assert_eq!(
            done(&home, &["shutdown", "--wait"]).await,
            "the guest of default/laptop is down"
        );
        assert!(rows(&laptop).await.is_empty() && !root.exists());
        assert_eq!(processes(&laptop), Vec::<u32>::new());
    });
}

#[test]
fn a_vm_without_its_supervisor_runs_on_and_is_shut_down_by_stop() {
    run(async {
        let (laptop, home, _stop) = laptop();
        start_detached(&laptop).await;
        let root = directory(&laptop).await;
        signal(supervisor(&laptop), "KILL");
        while rows(&laptop).await[0]["supervised"] == true {}
        assert!(
            done(&home, &["list"])
                .await
                .contains("laptop: its supervisor was killed")
        );
        // Its console is QEMU's own now.
        let mut verb = launcherctl(&home)
            .args(["console", "laptop"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = verb.stdin.as_mut().unwrap();
        stdin.write_all(b"echo typed-$((1+1))\n").unwrap();
        read_until(verb.stdout.as_mut().unwrap(), "typed-2");
        signal(verb.id(), "TERM");
        verb.wait().unwrap();
        assert_eq!(
            done(&home, &["stop"]).await,
            "laptop: has ended; it had no supervisor"
        );
        assert!(rows(&laptop).await.is_empty() && !root.exists());
        assert_eq!(processes(&laptop), Vec::<u32>::new());
    });
}

/// Kills the process whose arguments begin with this program's name.
fn kill_process_of(laptop: &Laptop, program: &str) {
    let all = laptop.processes_of("");
    let is_it = |words: &&(u32, String)| {
        let first = words.1.split(' ').next().unwrap_or_default();
        first.rsplit('/').next().unwrap().starts_with(program)
    };
    signal(all.iter().find(is_it).unwrap().0, "KILL");
}

#[test]
fn a_detached_vm_that_fails_leaves_its_reason_and_its_log() {
    run(async {
        let (laptop, home, _stop) = laptop();
        let mut former = None;
        for (program, reason) in [
            ("qemu", "its QEMU was killed"),
            ("virt-launcher", "ended on its own (signal: 9"),
        ] {
            start_detached(&laptop).await;
            let root = directory(&laptop).await;
            // What the VM before has left went with its name.
            assert!(former.is_none_or(|former: PathBuf| !former.exists()));
            kill_process_of(&laptop, program);
            while rows(&laptop).await[0]["state"] != "Failed" {}
            let status = done(&home, &["status", "laptop"]).await;
            assert!(
                status.starts_with("laptop: Failed: ") && status.contains(reason),
                "{status}"
            );
            let list = done(&home, &["list"]).await;
            assert!(list.contains("laptop has failed: "), "{list}");
            for verb in [
                ["console", "laptop"].as_slice(),
                &["dumpxml", "laptop"],
                &["pause", "laptop"],
                &["ssh", "laptop"],
                &["volumes"],
            ] {
                let error = refused(&home, verb).await;
                assert!(error.contains("laptop has failed: "), "{verb:?}: {error}");
            }
            // It is the only VM.
            assert_eq!(done(&home, &["status"]).await, status);
            let log = done(&home, &["logs"]).await;
            assert!(log.contains("Domain started."), "{log}");
            let console = done(&home, &["logs", "--console"]).await;
            assert!(console.contains(UP), "{console}");
            while !processes(&laptop).is_empty() {}
            former = Some(root);
        }
        let root = former.unwrap();
        assert!(root.join("launcher.log").exists() && !root.join("vmi.json").exists());
        assert_eq!(
            done(&home, &["stop", "laptop"]).await,
            "laptop: had failed; its logs are removed"
        );
        assert!(rows(&laptop).await.is_empty() && !root.exists());
    });
}

/// A VM of which only QEMU is left.
#[test]
fn the_name_of_a_lost_vm_is_free_once_its_guest_has_ended() {
    run(async {
        let (laptop, home, _stop) = laptop();
        start_detached(&laptop).await;
        let root = directory(&laptop).await;
        signal(supervisor(&laptop), "KILL");
        kill_process_of(&laptop, "virt-launcher");
        while rows(&laptop).await[0]["state"] != "lost" {}
        let pid = rows(&laptop).await[0]["guestPid"].as_u64().unwrap();
        for verb in ["list", "status laptop", "status"] {
            let shown = done(&home, &verb.split(' ').collect::<Vec<_>>()).await;
            assert!(shown.contains("its guest still runs"), "{verb}: {shown}");
        }
        let arguments = run_arguments(&laptop);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let error = refused(&home, &arguments).await;
        let expected = format!("its guest still runs (QEMU is process {pid}); launcherctl stop");
        assert!(error.contains(&expected), "{error}");
        assert!(root.exists());
        kill_process_of(&laptop, "qemu");
        while !processes(&laptop).is_empty() {}
        start_detached(&laptop).await;
        assert!(!root.exists(), "the lost VM's directory is left");
        assert_eq!(done(&home, &["stop", "laptop"]).await, "laptop: has ended");
    });
}

#[test]
fn a_guest_that_boots_is_asked_to_shut_down_until_it_is_down() {
    run(async {
        let (laptop, home, _stop) = laptop();
        let mut vmi: Value =
            serde_json::from_slice(&std::fs::read(laptop.path("vmi.json")).unwrap()).unwrap();
        vmi["spec"]["terminationGracePeriodSeconds"] = 240.into();
        std::fs::write(laptop.path("vmi.json"), vmi.to_string()).unwrap();
        let disk = format!("rootdisk={}", laptop.path("guest.img").display());
        let manifest = laptop.path("vmi.json").display().to_string();
        let arguments = ["run", "--emulate", "--detach", "--disk", &disk, &manifest];
        done(&home, &arguments).await;
        // Its kernel does not run yet.
        let stop = launcherctl(&home)
            .arg("stop")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while rows(&laptop).await[0]["state"] != "stopping" {}
        let output = stop.wait_with_output().unwrap();
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{notes}");
        assert!(!notes.contains("has not shut down within"), "{notes}");
    });
}

/// Its launcher never serves.
#[test]
fn a_stop_before_the_guest_is_started_is_no_failure_of_the_stop() {
    run(async {
        let laptop = Laptop::new();
        let _stop = StopAll(laptop.path(""));
        let home = laptop.path("");
        let launcher = laptop.path("launcher.sh");
        std::fs::write(&launcher, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&launcher, executable).unwrap();
        let started = launcherctl(&home)
            .args(run_arguments(&laptop))
            .arg("--launcher")
            .arg(&launcher)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let state = async || {
            let rows = rows(&laptop).await;
            rows.first().map(|row| row["state"].clone())
        };
        while state().await.is_none_or(|state| state != "starting") {}
        let error = refused(&home, &["pause"]).await;
        assert!(error.contains("laptop is starting or stopping"), "{error}");
        let stop = launcherctl(&home).arg("stop").output().unwrap();
        assert_eq!(stop.stdout, b"laptop: has ended\n");
        assert_eq!(String::from_utf8_lossy(&stop.stderr), "");
        let output = started.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("the VM was stopped before its guest was started"),
            "{said}"
        );
        assert!(rows(&laptop).await.is_empty());
    });
}

#[test]
fn a_second_stop_waits_and_only_force_forces() {
    run(async {
        let (laptop, home, _stop) = laptop();
        // Longer than all of this takes.
        let manifest = laptop.path("vmi.json");
        let mut vmi: Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
        vmi["spec"]["terminationGracePeriodSeconds"] = 120.into();
        std::fs::write(&manifest, vmi.to_string()).unwrap();
        start_detached(&laptop).await;
        // A paused guest does not shut down.
        done(&home, &["pause"]).await;
        let stop = || {
            launcherctl(&home)
                .args(["stop", "laptop"])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut first = stop();
        read_until(first.stderr.as_mut().unwrap(), "to shut down");
        let mut waiting = [first, stop()];
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(waiting[1].try_wait().unwrap().is_none());
        assert_eq!(rows(&laptop).await[0]["state"], "Paused");
        assert_eq!(
            done(&home, &["stop", "laptop", "--force"]).await,
            "laptop: has ended"
        );
        for mut stop in waiting {
            assert!(stop.wait().unwrap().success());
        }
        assert!(rows(&laptop).await.is_empty());
    });
}

/// The process of this VM whose command line has this.
fn process_of(laptop: &Laptop, program: &str) -> u32 {
    let all = laptop.processes_of("");
    let mut found = all.iter().filter(|(_, line)| line.contains(program));
    found
        .next()
        .unwrap_or_else(|| panic!("{program}: {all:?}"))
        .0
}

#[test]
fn force_ends_a_vm_whose_supervisor_hangs() {
    run(async {
        let (laptop, home, _stop) = laptop();
        start_detached(&laptop).await;
        let root = directory(&laptop).await;
        let stopped = supervisor(&laptop);
        signal(stopped, "STOP");
        let error = refused(&home, &["stop", "laptop"]).await;
        assert!(error.contains("stop laptop --force kills it"), "{error}");
        let said = done(&home, &["stop", "laptop", "--force"]).await;
        assert_eq!(
            said,
            "laptop: was lost; what was left of it is ended and removed"
        );
        assert_eq!(processes(&laptop), Vec::<u32>::new());
        assert!(!root.exists() && !Path::new(&format!("/proc/{stopped}/exe")).exists());
        assert!(rows(&laptop).await.is_empty());
    });
}

#[test]
fn force_ends_a_vm_whose_launcher_hangs() {
    run(async {
        let (laptop, home, _stop) = laptop();
        start_detached(&laptop).await;
        let root = directory(&laptop).await;
        signal(process_of(&laptop, "virt-launcher --name"), "STOP");
        let said = done(&home, &["stop", "laptop", "--force"]).await;
        assert_eq!(said, "laptop: has ended");
        assert_eq!(processes(&laptop), Vec::<u32>::new());
        assert!(!root.exists() && rows(&laptop).await.is_empty());
    });
}

#[test]
fn a_terminal_whose_supervisor_is_killed_says_so_and_leaves_the_guest() {
    run(async {
        let (laptop, home, _stop) = laptop();
        let mut terminal = Terminal::run(&laptop);
        signal(supervisor(&laptop), "KILL");
        read_until(
            &mut terminal.master,
            "launcherctl stop laptop shuts it down",
        );
        assert_eq!(terminal.child.wait().unwrap().code(), Some(1));
        let row = &rows(&laptop).await[0];
        assert_eq!(
            (&row["state"], &row["supervised"]),
            (&"Running".into(), &false.into())
        );
        done(&home, &["stop", "laptop"]).await;
        assert_eq!(processes(&laptop), Vec::<u32>::new());
    });
}

#[test]
fn ctrl_bracket_leaves_the_console_and_the_vm_runs_on() {
    run(async {
        let (laptop, home, _stop) = laptop();
        let mut terminal = Terminal::run(&laptop);
        terminal.master.write_all(b"echo typed-$((1+1))\n").unwrap();
        read_until(&mut terminal.master, "typed-2");
        terminal.master.write_all(b"\x1d").unwrap();
        read_until(&mut terminal.master, "laptop runs on");
        assert!(terminal.child.wait().unwrap().success());
        assert_eq!(rows(&laptop).await[0]["state"], "Running");

        // A job in the background that has the console's output is not stopped by the terminal, and reads nothing of it.
        let console = "set -m; exec 2>&1; \"$0\" launcherctl console laptop & echo job; wait $!; echo status $?";
        let mut terminal = Terminal::start(&laptop, &["bash", "-c", console, pod_tools()]);
        read_until(&mut terminal.master, "typed-2");
        terminal
            .master
            .write_all(b"echo not-$((1+1))-the-guests\n")
            .unwrap();
        let mut guest = Guest::connect(&directory(&laptop).await.join("console.sock")).await;
        assert_eq!(guest.run("echo hello").await, "hello");
        read_until(&mut terminal.master, "hello");
        done(&home, &["stop", "laptop", "--force"]).await;
        let rest = read_until(&mut terminal.master, "status 0");
        assert!(!rest.contains("not-2-the-guests"), "{rest}");
        assert!(terminal.child.wait().unwrap().success());
    });
}

#[test]
fn a_killed_run_takes_its_vm_with_it() {
    run(async {
        let (laptop, _home, _stop) = laptop();
        let mut child = launcherctl(&laptop.path(""))
            .args(run_arguments(&laptop))
            .env("TMPDIR", laptop.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The guest writes: it runs.
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let root = directory(&laptop).await;
        child.kill().unwrap();
        child.wait().unwrap();
        while !rows(&laptop).await.is_empty() {}
        assert_eq!(processes(&laptop), Vec::<u32>::new());
        assert!(!root.exists());
    });
}

fn pod_tools() -> &'static str {
    env!("CARGO_BIN_EXE_pod-tools")
}

/// Reads until `text` has come; what came with it is returned.
fn read_until(stream: &mut impl Read, text: &str) -> String {
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    while !seen.contains(text) {
        let length = stream.read(&mut buffer).unwrap_or(0);
        assert!(length > 0, "{text:?} has not come, but\n{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    seen
}

/// A program in a session of its own with a terminal.
struct Terminal {
    master: File,
    child: std::process::Child,
}

impl Terminal {
    /// `launcherctl run`, once the guest is up.
    fn run(laptop: &Laptop) -> Self {
        let mut arguments = run_arguments(laptop);
        arguments.insert(0, pod_tools().to_owned());
        arguments.insert(1, "launcherctl".to_owned());
        let mut terminal = Self::start(laptop, &arguments);
        read_until(&mut terminal.master, "guest is up");
        terminal
    }

    fn start(laptop: &Laptop, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = || {
            let mut options = File::options();
            options.read(true).write(true);
            Stdio::from(options.open(Path::new(&name)).unwrap())
        };
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", laptop.path(""))
            .env("TMPDIR", laptop.path(""))
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        Self {
            master: File::from(master),
            child,
        }
    }
}
