//! The terminal of `launcherctl run`: leaving it, losing it, and coming back to the console.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{directory, laptop, laptop_with_linux, processes, rows, run_arguments, supervisor};
use crate::harness::{Guest, TEST_TIMEOUT};
use crate::launcherctl::{Laptop, done, signal};

#[tokio::test]
async fn ctrl_bracket_leaves_the_console_and_the_vm_runs_on() {
    let (laptop, home, _stop) = laptop_with_linux();
    let mut terminal = Terminal::run(&laptop);
    terminal.master.write_all(b"echo typed-$((1+1))\n").unwrap();
    read_until(&mut terminal.master, "typed-2");
    terminal.master.write_all(b"\x1d").unwrap();
    read_until(&mut terminal.master, "laptop runs on");
    assert!(terminal.child.wait().unwrap().success());
    assert_eq!(rows(&laptop).await[0]["state"], "Running");

    // A job in the background that has the console's output is not stopped by the terminal, and
    // reads nothing of it.
    let console =
        "set -m; exec 2>&1; \"$0\" launcherctl console laptop & echo job; wait $!; echo status $?";
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
}

#[tokio::test]
async fn a_terminal_whose_supervisor_is_killed_says_so_and_leaves_the_guest() {
    let (laptop, home, _stop) = laptop();
    let mut terminal = Terminal::run(&laptop);
    signal(supervisor(&laptop), "KILL");
    // It is wrapped at words.
    read_until(&mut terminal.master, "launcherctl stop laptop shuts");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(1));
    let row = &rows(&laptop).await[0];
    assert_eq!(row["state"], "Running");
    done(&home, &["stop", "laptop"]).await;
    assert_eq!(processes(&laptop), Vec::<u32>::new());
}

/// Reads until `text` has come; what came with it is returned.
pub(super) fn read_until(stream: &mut (impl Read + AsFd), text: &str) -> String {
    let (mut seen, mut buffer) = (String::new(), [0; 4096]);
    let limit = Timespec::try_from(TEST_TIMEOUT).unwrap();
    while !seen.contains(text) {
        let ready = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&limit));
        assert_eq!(ready, Ok(1), "{text:?} has not come, but\n{seen}");
        let length = stream.read(&mut buffer).unwrap_or(0);
        assert!(length > 0, "{text:?} has not come, but\n{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    seen
}

fn pod_tools() -> &'static str {
    env!("CARGO_BIN_EXE_pod-tools")
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
