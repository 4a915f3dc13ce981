//! Reaps the processes that libvirt's daemons leave behind.
//!
//! QEMU detaches itself from libvirt's daemon. libvirt waits for QEMU's end by checking whether the
//! process exists, which it does until its parent reaps it. In a pod the parent is
//! virt-launcher-monitor, and virt-handler looks for QEMU among *its* children, so nothing changes
//! there. Elsewhere the parent may reap late or never: a launcher that is process 1 must reap
//! itself, and one with another parent adopts orphans.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, getppid, kill_process, waitpid};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::timeout;

use os::process::adopt_orphans;
use os::procfs::{Stat, arguments, children, command_line};

/// Delay before reaping a session leader, so that its own parent can reap it first.
const LEADER_REAP_DELAY: Duration = Duration::from_secs(1);
/// Delay between a child's exit and a second reading of the list of children. The list may lack a
/// child if it changes while it is read.
const RESCAN_DELAY: Duration = Duration::from_millis(200);
/// Limit of the wait for processes that are killed at the end of the pod. A process that waits for
/// a dead disk does not exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before processes are listed again.
const KILL_RETRY_DELAY: Duration = Duration::from_millis(10);
const MONITOR: &str = "virt-launcher-monitor";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaper {
    /// The parent, which is the monitor.
    Parent,
    /// This process, as process 1.
    Init,
    /// This process, as a child subreaper.
    Subreaper,
}

impl Reaper {
    /// With shareProcessNamespace the monitor is not process 1, and adopts orphans as a subreaper.
    fn of(own: Pid, parent: Option<Pid>, parent_arguments: &[String]) -> Self {
        let is_monitor = |name: &String| name.rsplit('/').next() == Some(MONITOR);
        if own == Pid::INIT {
            Self::Init
        } else if parent == Some(Pid::INIT) || parent_arguments.first().is_some_and(is_monitor) {
            Self::Parent
        } else {
            Self::Subreaper
        }
    }
}

/// Reaps orphans from now on, if this process has to.
///
/// # Errors
/// The handler for SIGCHLD cannot be installed.
// D-sup-7 (docs/differences.md).
pub fn reap() -> io::Result<()> {
    let ends = signal(SignalKind::child())?;
    if adopt() {
        tokio::spawn(reap_all(ends));
    }
    Ok(())
}

/// Whether this process has to reap orphans. Makes this process adopt them if so.
fn adopt() -> bool {
    let parent = getppid();
    let parent_arguments = parent.and_then(|parent| arguments(parent).ok());
    match Reaper::of(getpid(), parent, &parent_arguments.unwrap_or_default()) {
        Reaper::Parent => false,
        Reaper::Init => true,
        Reaper::Subreaper => adopt_orphans()
            .inspect_err(
                |error| tracing::warn!(reason = %error, "Orphaned processes are not reaped"),
            )
            .is_ok(),
    }
}

async fn reap_all(mut ends: unix::Signal) {
    let Some(own) = Stat::of(getpid()) else {
        tracing::warn!("Orphaned processes are not reaped: /proc is not there");
        return;
    };
    loop {
        reap_ended(own.session);
        let next = match timeout(RESCAN_DELAY, ends.recv()).await {
            Ok(next) => next,
            Err(_) => {
                reap_ended(own.session);
                ends.recv().await
            }
        };
        if next.is_none() {
            return;
        }
    }
}

/// Reaps the children that have exited.
fn reap_ended(own_session: i32) {
    for pid in children() {
        match Stat::of(pid).map(|stat| Kind::of(pid, stat, own_session)) {
            Some(Kind::Orphan) => wait(pid),
            Some(Kind::SessionLeader) => drop(tokio::spawn(wait_later(pid))),
            Some(Kind::Running | Kind::OwnChild) | None => {}
        }
    }
}

/// At the end of the pod, kills the remaining processes that this process and libvirt have started.
/// The guest has ended, and the other processes have nothing to save. A QEMU that libvirt probes
/// would wait forever once libvirt is gone.
///
/// Call this when the launcher starts no more programs.
pub async fn kill_children() {
    if timeout(KILL_TIMEOUT, kill_all(children, libvirt::forbid_forks))
        .await
        .is_err()
    {
        tracing::warn!("Processes that libvirt has started do not end");
    }
}

/// Kills processes until none exist and none can appear: until `forbid` has returned true, because
/// this process can start no more, and two lists in a row are empty. One empty list is not enough,
/// because a process that is about to become QEMU may be missing while it changes parents.
async fn kill_all(list: impl Fn() -> Vec<Pid>, forbid: impl Fn() -> bool) {
    let is_alive = |pid: &Pid| Stat::of(*pid).is_some_and(|stat| !stat.is_zombie);
    let (mut is_forbidden, mut empty_lists) = (false, 0);
    while empty_lists < 2 {
        is_forbidden = is_forbidden || forbid();
        let alive: Vec<Pid> = list().into_iter().filter(is_alive).collect();
        let is_empty = is_forbidden && alive.is_empty();
        empty_lists = if is_empty { empty_lists + 1 } else { 0 };
        for pid in alive {
            tracing::debug!(
                "Killing process {}: {}",
                pid.as_raw_nonzero(),
                command_line(pid)
            );
            // The process may have exited by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(KILL_RETRY_DELAY).await;
    }
}

/// Reaps a process that has exited.
fn wait(pid: Pid) {
    // Another thread may have reaped it.
    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
}

/// Reaps a session leader that has exited, unless its own parent does.
async fn wait_later(pid: Pid) {
    tokio::time::sleep(LEADER_REAP_DELAY).await;
    if Stat::of(pid).is_some_and(|stat| stat.is_zombie) {
        wait(pid);
    }
}

/// Who has to reap a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The child has not exited.
    Running,
    /// Code in this process started the child and waits for it.
    OwnChild,
    /// The child's first parent has exited.
    Orphan,
    /// The child leads a session. It is an orphan, or the embedded driver has started it and waits
    /// for it at once.
    SessionLeader,
}

impl Kind {
    /// A process that detaches itself starts a session, and its leader exits. This process's own
    /// children are in its session.
    fn of(pid: Pid, stat: Stat, own_session: i32) -> Self {
        if !stat.is_zombie {
            Self::Running
        } else if stat.session == own_session {
            Self::OwnChild
        } else if stat.session == pid.as_raw_nonzero().get() {
            Self::SessionLeader
        } else {
            Self::Orphan
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    #[test]
    // D-sup-7 (docs/differences.md).
    fn own_children_and_session_leaders_are_left_to_who_waits_for_them() {
        let kind = |session, own_session| {
            let stat = Stat {
                is_zombie: true,
                session,
            };
            Kind::of(pid(42), stat, own_session)
        };
        assert_eq!(kind(39, 7), Kind::Orphan);
        assert_eq!(kind(7, 7), Kind::OwnChild);
        assert_eq!(kind(0, 0), Kind::OwnChild);
        assert_eq!(kind(39, 0), Kind::Orphan);
        assert_eq!(kind(42, 7), Kind::SessionLeader);
        let running = Stat {
            is_zombie: false,
            session: 39,
        };
        assert_eq!(Kind::of(pid(42), running, 7), Kind::Running);
    }

    #[test]
    fn orphans_are_the_monitors_also_where_it_is_not_process_1() {
        let reaper = |own, parent, line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            Reaper::of(pid(own), Pid::from_raw(parent), &arguments)
        };
        assert_eq!(reaper(1, 0, ""), Reaper::Init);
        assert_eq!(reaper(12, 1, "/pause"), Reaper::Parent);
        for monitor in [
            "/usr/bin/virt-launcher-monitor --name vm",
            "virt-launcher-monitor",
        ] {
            assert_eq!(reaper(40, 39, monitor), Reaper::Parent, "{monitor}");
        }
        for other in ["bash", "launcherctl run virt-launcher-monitor", ""] {
            assert_eq!(reaper(40, 39, other), Reaper::Subreaper, "{other}");
        }
    }

    #[tokio::test]
    async fn processes_are_killed_also_those_that_come_late() {
        let sleeps: Vec<_> = (0..3)
            .map(|_| {
                let sleep = std::process::Command::new("/bin/sleep").arg("600").spawn();
                sleep.unwrap()
            })
            .collect();
        let all: Vec<Pid> = sleeps.iter().map(Pid::from_child).collect();
        let lists = std::cell::Cell::new(0);
        let attempts = std::cell::Cell::new(0);
        // From the tenth attempt on nothing can be forked; until then empty lists do not count.
        let forbid = || {
            attempts.set(attempts.get() + 1);
            attempts.get() >= 10
        };
        let list = || {
            lists.set(lists.get() + 1);
            let late = usize::checked_sub(lists.get(), 8);
            all.iter().copied().take(late.unwrap_or(0)).collect()
        };
        kill_all(list, forbid).await;
        for mut sleep in sleeps {
            let status = sleep.wait().unwrap();
            assert_eq!(status.signal(), Some(9));
        }
    }
}
