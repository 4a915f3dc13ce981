//! VMs of `launcherctl run` that outlive their terminal, and the verbs that find them by name.

mod console;
mod diagnosis;
mod lost;
mod stop;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use self::console::read_until;
use crate::harness::{Guest, TEST_TIMEOUT, UP, output_of, until};
use crate::launcherctl::{Laptop, done, launcherctl, refuses, says, signal};

/// The arguments of `run` for the test guest.
fn run_arguments(laptop: &Laptop) -> Vec<String> {
    let manifest = laptop.path("vmi.json").display().to_string();
    let disk = laptop.root_disk();
    let arguments = [
        "run",
        "--emulate",
        "--disk",
        &disk,
        "--until",
        UP,
        &manifest,
    ];
    arguments.map(str::to_owned).into()
}

/// Starts the VM and leaves it running, in a directory that goes with it.
pub(crate) async fn start_detached(laptop: &Laptop) {
    let mut command = launcherctl(&laptop.path(""));
    command
        .args(run_arguments(laptop))
        .arg("--detach")
        .env("TMPDIR", laptop.path(""));
    let output = output_of(command).await;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("guest is up"),
        "{text}"
    );
    assert!(text.contains("launcherctl stop laptop"), "{text}");
}

/// Stops the laptop's VMs, also when the test fails.
pub(crate) struct StopAll(pub PathBuf);

impl Drop for StopAll {
    fn drop(&mut self) {
        let mut stop = launcherctl(&self.0);
        let _ = stop.args(["stop", "--all", "--force"]).output();
    }
}

/// A laptop whose guest counts, its home directory, and what stops its VMs.
pub(crate) fn laptop() -> (Laptop, PathBuf, StopAll) {
    stopped_at_the_end(Laptop::new())
}

/// A laptop whose guest is Linux, its home directory, and what stops its VMs.
pub(crate) fn laptop_with_linux() -> (Laptop, PathBuf, StopAll) {
    stopped_at_the_end(Laptop::new().with_linux())
}

fn stopped_at_the_end(laptop: Laptop) -> (Laptop, PathBuf, StopAll) {
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
    let all = laptop.processes_of("");
    all.into_iter().map(|(pid, _)| pid).collect()
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

/// The process of this VM whose command line has this.
fn process_of(laptop: &Laptop, program: &str) -> u32 {
    let all = laptop.processes_of("");
    let found = all.iter().find(|(_, line)| line.contains(program));
    found.unwrap_or_else(|| panic!("{program}: {all:?}")).0
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

/// Waits until the laptop's VMs, as `launcherctl list` has them, are as wanted.
async fn rows_until(laptop: &Laptop, wanted: impl Fn(&[Value]) -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        let rows = rows(laptop).await;
        if wanted(&rows) {
            return;
        }
        assert!(Instant::now() < end, "{rows:#?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until nothing of the laptop's VMs runs any more.
async fn nothing_runs(laptop: &Laptop) {
    until("nothing runs", || processes(laptop).is_empty()).await;
}

#[tokio::test]
async fn of_several_runs_at_once_one_gets_the_name() {
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
}

#[tokio::test]
async fn a_detached_vm_is_found_by_its_name() {
    let (laptop, home, _stop) = laptop_with_linux();
    assert!(
        done(&home, &["list"])
            .await
            .starts_with("no VM of this user runs here")
    );
    start_detached(&laptop).await;
    let root = directory(&laptop).await;

    let row = &rows(&laptop).await[0];
    assert_eq!(
        (&row["name"], &row["state"]),
        (&"laptop".into(), &"Running".into())
    );
    // libvirt's reason says nothing more.
    assert!(row["reason"].is_null(), "{row}");
    let qemu = row["guestPid"].as_u64().unwrap();
    assert!(processes(&laptop).contains(&u32::try_from(qemu).unwrap()));
    assert!(
        done(&home, &["status", "laptop"])
            .await
            .starts_with("laptop: Running")
    );
    says(
        &home,
        &["launcher", "dumpxml", "laptop"],
        "<name>default_laptop</name>",
    )
    .await;
    while !done(&home, &["logs", "laptop"])
        .await
        .contains("The guest is up")
    {}
    says(&home, &["logs", "--console"], UP).await;
    refuses(&home, &["status", "other"], "no VM named other").await;
    refuses(
        &home,
        &["launcher", "ping", "labtop"],
        "did you mean laptop?",
    )
    .await;

    shows_two_terminals_the_same(&root).await;
    types_what_the_verb_reads(&home).await;
    leads_to_the_screen(&home);

    // It waits for the supervisor too.
    assert_eq!(
        done(&home, &["shutdown"]).await,
        "the guest of default/laptop is down"
    );
    assert!(rows(&laptop).await.is_empty() && !root.exists());
    assert_eq!(processes(&laptop), Vec::<u32>::new());
}

/// Two terminals at once, and what was written before they came.
async fn shows_two_terminals_the_same(root: &Path) {
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
}

/// The verb console, which has been given this to type.
fn typing_console(home: &Path, typed: &str) -> Child {
    let mut console = launcherctl(home)
        .args(["console", "laptop"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = console.stdin.as_mut().unwrap();
    stdin.write_all(typed.as_bytes()).unwrap();
    console
}

/// The verb console without a terminal types what it reads, and prints what the guest writes.
async fn types_what_the_verb_reads(home: &Path) {
    let mut verb = typing_console(home, "echo $((40+2))\n");
    // The shell's prompt may stand before it.
    read_until(verb.stdout.as_mut().unwrap(), "42\r\n");
    signal(verb.id(), "TERM");
    assert!(verb.wait().unwrap().success());
    // It ends with its input; or when an answer has come, which it has not read before.
    done(home, &["console", "laptop"]).await;
    for answer in ["answer-1", "answer-2", "answer-2"] {
        let number = answer.split('-').nth(1).unwrap();
        let mut verb = launcherctl(home)
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
    let why = "\"never\" has not appeared on the console after 1 s";
    refuses(home, &never, why).await;
}

/// The address of `vnc` is a VNC server's.
fn leads_to_the_screen(home: &Path) {
    let mut proxy = launcherctl(home)
        .args(["vnc", "laptop", "-o", "json"])
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
}
