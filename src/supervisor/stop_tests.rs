use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::launcher::{find_qemu, process_like_qemu};

/// A guest that records the calls; its QEMU is a shell that waits.
struct Fake {
    calls: RefCell<Vec<&'static str>>,
    handler: bool,
    /// The handler removes its socket while the sidecars are called.
    leaves: bool,
    /// The handler takes no event.
    is_deaf: bool,
    /// The call that ends QEMU.
    ends_at: Option<&'static str>,
    pid: i32,
    libvirt_works: bool,
    /// QEMU is stopped when libvirt is asked to kill it.
    hangs: bool,
    starts: bool,
    /// The start ends with a guest that runs.
    has_run: bool,
}

impl Fake {
    fn call(&self, name: &'static str) {
        self.calls.borrow_mut().push(name);
        if self.ends_at == Some(name) {
            kill_process(Pid::from_raw(self.pid).unwrap(), Signal::KILL).unwrap();
        }
    }
}

impl GuestAtPodEnd for Fake {
    type Error = std::io::Error;

    async fn mark_for_graceful_shutdown(&self) {
        self.call("mark");
    }
    async fn shut_down(&self) -> Result<(), Self::Error> {
        self.call("shutdown");
        Ok(())
    }
    async fn kill(&self) -> Result<(), Self::Error> {
        self.call("kill");
        if self.hangs {
            kill_process(Pid::from_raw(self.pid).unwrap(), Signal::STOP).unwrap();
        }
        if self.libvirt_works {
            Ok(())
        } else {
            Err(std::io::Error::other("no libvirt"))
        }
    }
    async fn delete(&self) -> Result<(), Self::Error> {
        self.call("delete");
        Ok(())
    }
    fn refuse_starts(&self) -> bool {
        self.call("refuse starts");
        self.starts
    }
    async fn start_ended(&self) -> bool {
        if self.starts && !self.has_run {
            self.ended().await;
        }
        self.has_run
    }
    fn has_handler(&self) -> bool {
        self.handler && !(self.leaves && self.calls.borrow().contains(&"sidecars"))
    }
    fn has_told_handler(&self) -> bool {
        self.handler
    }
    async fn ended(&self) {
        let pid = Pid::from_raw(self.pid).unwrap();
        os::process::Process::open(pid).unwrap().ended().await;
    }
    async fn last_event_sent(&self) {
        self.call("last event");
        if self.is_deaf {
            std::future::pending().await
        }
    }
    async fn shut_down_sidecars(&self) {
        self.call("sidecars");
    }
}

/// Runs to the end and returns the calls. With `signal` the launcher gets one; without, QEMU exits
/// by itself.
async fn run(fake: Fake, signal: bool) -> Vec<&'static str> {
    let again = Fake {
        calls: RefCell::default(),
        ..fake
    };
    let without_pid_file = run_with(again, signal, false).await;
    let calls = run_with(fake, signal, true).await;
    assert_eq!(calls, without_pid_file);
    calls
}

/// The guest's QEMU: the directory of the pid file, that file, and the process.
fn process(fake: Fake) -> (tempfile::TempDir, PathBuf, Child, Fake) {
    let dir = tempfile::tempdir().unwrap();
    let (child, file) = process_like_qemu(dir.path());
    let pid = i32::try_from(child.id()).unwrap();
    (dir, file, child, Fake { pid, ..fake })
}

async fn run_with(fake: Fake, signal: bool, with_pid_file: bool) -> Vec<&'static str> {
    let (_dir, file, mut child, fake) = process(fake);
    let qemu = find_qemu(&file, "ns_vm").unwrap();
    if !signal {
        child.kill().unwrap();
    }
    let signals = async || {
        if signal {
            "terminated"
        } else {
            std::future::pending().await
        }
    };
    // A guest that the shutdown ends has unlimited time, as the flag allows. Nobody waits for
    // another guest.
    let ends_at = matches!(fake.ends_at, Some("mark" | "shutdown"));
    let grace = if ends_at {
        Duration::from_secs(i64::MAX as u64)
    } else {
        Duration::from_millis(1)
    };
    follow(with_pid_file.then_some(&qemu), &fake, signals, grace).await;
    finish(&fake).await;
    child.wait().unwrap();
    fake.calls.into_inner()
}

fn fake() -> Fake {
    Fake {
        calls: RefCell::default(),
        handler: true,
        leaves: false,
        is_deaf: false,
        ends_at: None,
        pid: 0,
        libvirt_works: true,
        hangs: false,
        starts: false,
        has_run: false,
    }
}

#[tokio::test]
async fn guest_that_ends_by_itself() {
    assert_eq!(run(fake(), false).await, ["sidecars", "last event"]);
}

#[tokio::test]
async fn a_virt_handler_that_removes_its_socket_gets_the_final_event() {
    let fake = Fake {
        leaves: true,
        ..fake()
    };
    assert_eq!(run(fake, false).await, ["sidecars", "last event"]);
}

/// Nothing asks for the removal of the definition: the VM would be Failed.
#[tokio::test(start_paused = true)]
async fn a_virt_handler_that_takes_no_event_is_waited_for_twice() {
    let deaf = Fake {
        is_deaf: true,
        ..fake()
    };
    finish(&deaf).await;
    assert_eq!(
        deaf.calls.into_inner(),
        ["sidecars", "last event", "kill", "last event"]
    );
}

#[tokio::test]
async fn virt_handler_asks_the_guest_when_it_sees_the_mark() {
    let fake = Fake {
        ends_at: Some("mark"),
        ..fake()
    };
    assert_eq!(run(fake, true).await, ["mark", "sidecars", "last event"]);
}

#[tokio::test]
// D-sup-4 (docs/differences.md).
async fn without_virt_handler_the_launcher_asks_and_cleans_up() {
    let fake = Fake {
        ends_at: Some("shutdown"),
        handler: false,
        ..fake()
    };
    assert_eq!(
        run(fake, true).await,
        ["mark", "shutdown", "sidecars", "delete"]
    );
}

#[tokio::test]
async fn a_guest_that_ignores_the_request_is_forced_off() {
    let fake = Fake {
        ends_at: Some("kill"),
        ..fake()
    };
    assert_eq!(
        run(fake, true).await,
        ["mark", "kill", "sidecars", "last event"]
    );
}

/// Ends a start. Returns the calls, and whether QEMU has exited.
async fn end(fake: Fake) -> (Vec<&'static str>, bool) {
    let (_dir, file, mut child, fake) = process(fake);
    let find_qemu = || find_qemu(&file, "ns_vm").ok();
    let has_run = end_start(&fake, find_qemu, Duration::from_millis(100)).await;
    assert_eq!(has_run, fake.has_run);
    let ended = child.try_wait().unwrap().is_some();
    child.kill().unwrap();
    child.wait().unwrap();
    (fake.calls.into_inner(), ended)
}

#[tokio::test]
async fn a_start_in_progress_is_killed() {
    assert_eq!(end(fake()).await, (vec!["refuse starts"], false));
    for (ends_at, libvirt_works) in [(Some("kill"), true), (None, true), (None, false)] {
        let starting = Fake {
            starts: true,
            ends_at,
            libvirt_works,
            ..fake()
        };
        let killed = (vec!["refuse starts", "kill"], true);
        assert_eq!(end(starting).await, killed, "{ends_at:?} {libvirt_works}");
    }
}

#[tokio::test]
async fn a_guest_that_has_started_meanwhile_is_left_to_be_shut_down() {
    let started = Fake {
        starts: true,
        has_run: true,
        libvirt_works: false,
        ..fake()
    };
    let calls = vec!["refuse starts", "kill"];
    assert_eq!(end(started).await, (calls, false));
}

#[tokio::test]
async fn qemu_is_signalled_when_libvirt_fails() {
    // SIGTERM ends the shell, as it ends QEMU, unless it is stopped.
    for hangs in [false, true] {
        let fake = Fake {
            libvirt_works: false,
            hangs,
            ..fake()
        };
        let calls = run_with(fake, true, true).await;
        assert_eq!(calls, ["mark", "kill", "sidecars", "last event"]);
    }
}
