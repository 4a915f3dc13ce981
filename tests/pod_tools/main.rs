//! The small tools as real processes, with real signals: `container-disk` and `virt-tail` as a pod
//! runs them, and what `launcherctl` does without a launcher.

mod container_disk;
#[path = "../image/elf.rs"]
mod elf;
#[path = "../executable/mod.rs"]
mod executable;
mod monitor;
mod programs;
mod virt_tail;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const POD_TOOLS: &str = env!("CARGO_BIN_EXE_pod-tools");

/// What takes longer counts as not happening.
const NEVER: Duration = Duration::from_secs(60);

fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begun.elapsed() < NEVER, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn tool(name: &str) -> Command {
    let mut command = Command::new(POD_TOOLS);
    command.arg(name);
    command
}

/// A tool that runs; it is killed with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn ended(&mut self) -> (ExitStatus, String) {
        let status = until("the end", || self.0.try_wait().unwrap());
        let mut said = String::new();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (status, said)
    }

    fn wake_ups(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .unwrap();
        count.trim().parse().unwrap()
    }

    fn sleeps(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit(')')
            .next()
            .unwrap()
            .trim_start()
            .starts_with('S')
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn error_of(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
