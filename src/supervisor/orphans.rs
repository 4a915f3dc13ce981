//! Reaping what daemons leave behind.
//!
//! QEMU detaches itself from libvirt's daemon, and libvirt waits for its end by asking whether its process still
//! exists, which it does until somebody reaps it. In a pod this is virt-launcher-monitor, process 1, and virt-handler
//! looks for QEMU among *its* children, so there nothing is changed. Anywhere else who reaps may be slow, or nobody: a
//! launcher that is process 1 itself must reap, and one that has another parent takes the orphans to itself.

use std::io;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_child_subreaper, waitpid,
};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::timeout;

use os::children::{children, command_line};

/// For who has started a session leader to wait for it.
const WHILE: Duration = Duration::from_secs(1);
/// After an end, before a second look.
const AGAIN: Duration = Duration::from_millis(200);

/// Listens for the ends of children. From then on SIGCHLD is not ignored any more, should the parent have left it so,
/// here and in what is started later: to be called before that.
///
/// # Errors
/// If the handler can't be installed.
pub fn ends() -> io::Result<unix::Signal> {
    signal(SignalKind::child())
}

/// Reaps orphans for ever, if that is this process's business.
// D-sup-7 (docs/differences.md).
pub async fn reap(ends: unix::Signal) {
    let first = getpid() == Pid::INIT;
    if getppid() == Some(Pid::INIT) && !first {
        return;
    }
    if let Err(error) = reap_all(first, ends).await {
        tracing::warn!(reason = %error, "orphaned processes are not reaped");
    }
}

async fn reap_all(first: bool, mut ends: unix::Signal) -> io::Result<()> {
    if !first {
        set_child_subreaper(Some(getpid()))?;
    }
    let own = Process::look(getpid())
        .ok_or(io::ErrorKind::NotFound)?
        .session;
    loop {
        look(own);
        // A list of children that change meanwhile may lack one.
        let next = timeout(AGAIN, ends.recv()).await;
        let next = if let Ok(next) = next {
            next
        } else {
            look(own);
            ends.recv().await
        };
        if next.is_none() {
            return Ok(());
        }
    }
}

/// Reaps what is to be reaped now.
fn look(own: i32) {
    for process in children().into_iter().filter_map(Process::look) {
        match process.kind(own) {
            Kind::Orphan => wait(process.pid),
            Kind::Leader => drop(tokio::spawn(wait_later(process.pid))),
            Kind::Ours => {}
        }
    }
}

/// Ends those children that run no guest but tell libvirt what QEMU can do. They detach themselves from libvirt, and
/// when it ends in between they wait for it for ever.
pub fn end_probes() {
    for pid in children()
        .into_iter()
        .filter(|pid| is_probe(&command_line(*pid)))
    {
        // That it was faster is no harm.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// QEMU without a machine.
fn is_probe(command: &str) -> bool {
    command.contains(" -machine none")
}

/// Reaps a process that has ended.
fn wait(pid: Pid) {
    // That somebody was faster is no harm.
    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
}

/// Reaps a process that has ended, if nobody else has done so for a while.
async fn wait_later(pid: Pid) {
    tokio::time::sleep(WHILE).await;
    if Process::look(pid).is_some_and(|process| process.zombie) {
        wait(pid);
    }
}

/// What decides whether a child is an orphan that has come to us.
#[derive(Debug, PartialEq)]
struct Process {
    pid: Pid,
    /// 0 if it began outside this PID namespace.
    session: i32,
    zombie: bool,
}

impl Process {
    fn look(pid: Pid) -> Option<Self> {
        Self::parse(
            pid,
            &std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?,
        )
    }

    /// proc_pid_stat(5): the state is the third field, the session the sixth; the second is in brackets and may hold
    /// anything.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let zombie = fields.next()? == "Z";
        let session = fields.nth(2)?.parse().ok()?;
        Some(Self {
            pid,
            session,
            zombie,
        })
    }

    /// Who detaches itself begins a session and leaves its leader behind. Children that we have started are in our own
    /// session and belong to whoever waits for them. A leader can be one of those too, started by the embedded driver,
    /// which waits for it at once.
    fn kind(&self, own: i32) -> Kind {
        if !self.zombie || self.session == own {
            Kind::Ours
        } else if self.session == self.pid.as_raw_nonzero().get() {
            Kind::Leader
        } else {
            Kind::Orphan
        }
    }
}

/// Whose business a child is.
#[derive(Debug, PartialEq)]
enum Kind {
    Ours,
    Orphan,
    Leader,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pid() -> Pid {
        Pid::from_raw(42).unwrap()
    }

    #[test]
    fn name_of_a_process_may_hold_anything() {
        let stat = "42 (a) Z 1 7) S 1 40 39 0 -1 4194304 1";
        assert_eq!(
            Process::parse(pid(), stat),
            Some(Process {
                pid: pid(),
                session: 39,
                zombie: false
            })
        );
        assert_eq!(
            Process::parse(pid(), "42 (qemu) Z 1 40 39 0"),
            Some(Process {
                pid: pid(),
                session: 39,
                zombie: true
            })
        );
        assert_eq!(Process::parse(pid(), "42 (qemu) Z"), None);
    }

    #[test]
    // D-sup-7 (docs/differences.md).
    fn own_children_and_session_leaders_are_left_to_who_waits_for_them() {
        let process = |session| Process {
            pid: pid(),
            session,
            zombie: true,
        };
        assert_eq!(process(39).kind(7), Kind::Orphan);
        assert_eq!(process(7).kind(7), Kind::Ours);
        assert_eq!(process(0).kind(0), Kind::Ours);
        assert_eq!(process(39).kind(0), Kind::Orphan);
        assert_eq!(process(42).kind(7), Kind::Leader);
        assert_eq!(
            Process {
                zombie: false,
                ..process(39)
            }
            .kind(7),
            Kind::Ours
        );
    }

    #[test]
    fn a_qemu_without_a_machine_runs_no_guest() {
        assert!(is_probe(
            "/usr/bin/qemu-system-x86_64 -S -nodefaults -machine none,accel=kvm:tcg -qmp unix:/x"
        ));
        assert!(!is_probe(
            "/usr/bin/qemu-system-x86_64 -name guest=a -machine pc-q35-10.0,usb=off"
        ));
    }
}
