//! What is wrong with a VM, why, and what to do next: rules over what is known of it, explained for
//! people.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::refusal::{on_one_line, plain, split_remedy};
use super::{GuestState, has_arrived};
use api::proto::inspect::v1::{DebugResponse, FailedDisk};
use domain::Domain;
use domain::object::DomainStatus;
use domain::status::{LifeCycle, StateChangeReason as Reason};

/// A console that stays blank for so long is explained.
const SILENCE: Duration = Duration::from_secs(20);
/// A guest without an agent for so many seconds probably has none.
const AGENT_SECONDS: i64 = 120;
/// A BIOS has looked for something to boot after so many seconds.
const BIOS_SECONDS: i64 = 5;

/// Something that is wrong with a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub what: String,
    pub cause: String,
    /// RFC 3339; `None` if unknown.
    pub since: Option<String>,
    /// What to do.
    pub next: String,
}

impl Problem {
    fn new(what: &str, cause: impl Into<String>, next: &str) -> Self {
        Self {
            what: what.to_owned(),
            cause: cause.into(),
            since: None,
            next: next.to_owned(),
        }
    }

    fn since(mut self, seconds: Option<i64>) -> Self {
        let since = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        self.since = since.map(|since| since.to_string());
        self
    }

    /// On one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}; {}", self.without_next(), self.next)
    }

    /// On one line, of a VM that is ended for it: a command for a VM that runs is of no use.
    #[must_use]
    pub fn of_ended(&self) -> String {
        match self.next.starts_with("launcherctl ") {
            true => self.without_next(),
            false => self.line(),
        }
    }

    fn without_next(&self) -> String {
        let since = self.since.as_ref();
        let since = since.map_or_else(String::new, |since| format!(" (since {since})"));
        format!("{}{since}: {}", self.what, self.cause)
    }
}

/// Whether a VM's launcher answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Condition {
    #[default]
    Answers,
    /// It accepts calls and does not answer them.
    Silent,
    /// It was killed. PID of a QEMU that still runs.
    Lost(Option<i32>),
    /// It has ended; why.
    Failed(String),
}

/// What is known of a VM; empty or `None` where nothing is.
#[derive(Debug, Clone, Default)]
pub struct VmFacts {
    /// The VM's name as the verbs take it; empty in a pod, whose VM needs none.
    pub name: String,
    pub condition: Condition,
    /// When it failed, in seconds since 1970; `None` if it did not.
    pub failed_at: Option<i64>,
    /// Seconds since 1970.
    pub now: i64,
    pub domain: Domain,
    pub launcher: DebugResponse,
    /// Whether KVM is to be used if it works.
    pub wants_kvm: bool,
    /// The end of the serial console's log; `None` without a console.
    pub console: Option<String>,
    /// The disk that a BIOS would boot, if its image has no boot sector.
    pub unbootable_disk: Option<String>,
    /// `memory.events` of QEMU's cgroup.
    pub memory_events: String,
}

type Rule = fn(&VmFacts) -> Option<Problem>;

/// The rules, the worst first. In a next step, `{vm}` stands for the VM's name.
const RULES: [Rule; 10] = [
    not_there,
    silent,
    hook_awaited,
    guest_stopped,
    memory_short,
    nothing_to_boot,
    console_blank,
    emulated,
    launcher_restarted,
    agent_missing,
];

/// What is wrong with the VM, the worst first.
#[must_use]
pub fn problems(facts: &VmFacts) -> Vec<Problem> {
    let found = RULES.iter().filter_map(|rule| rule(facts));
    found.map(|problem| facts.with_name(problem)).collect()
}

/// Why a guest does not come up.
#[must_use]
pub fn why_not_up(facts: &VmFacts) -> Option<Problem> {
    let rules: [Rule; 6] = [
        silent,
        guest_stopped,
        memory_short,
        nothing_to_boot,
        console_blank,
        emulated,
    ];
    let mut rules = rules.iter();
    rules.find_map(|rule| Some(facts.with_name(rule(facts)?)))
}

impl VmFacts {
    fn with_name(&self, mut problem: Problem) -> Problem {
        let space = if self.name.is_empty() { "" } else { " " };
        let name = format!("{space}{}", self.name);
        problem.next = problem.next.replace("{vm}", &name);
        problem
    }

    /// When the guest's phase began.
    fn phase_began(&self) -> Option<i64> {
        let seconds = self.launcher.phase_unix_micros / 1_000_000;
        (seconds > 0).then_some(seconds)
    }

    /// Whether the guest has run for so many seconds.
    fn has_run_for(&self, seconds: i64) -> bool {
        let runs = self.domain.status.status == LifeCycle::Running;
        let began = self.phase_began().filter(|_| runs);
        began.is_some_and(|began| self.now.saturating_sub(began) >= seconds)
    }
}

fn not_there(facts: &VmFacts) -> Option<Problem> {
    let problem = match &facts.condition {
        Condition::Failed(reason) => {
            let logs = "launcherctl run with its manifest starts it again, launcherctl logs{vm} (--console) has its logs until then, or until launcherctl stop{vm}";
            with_own_remedy("the VM has failed", reason, logs)
        }
        Condition::Lost(Some(pid)) => {
            let cause = format!(
                "its launcher was killed, and its guest still runs (QEMU is process {pid})"
            );
            let next =
                "shut it down from inside if you can (SSH), launcherctl stop{vm} forces it off";
            Problem::new("the VM is lost", cause, next)
        }
        Condition::Lost(None) => Problem::new(
            "the VM is lost",
            "its launcher was killed or has ended, and its guest does not run",
            "launcherctl stop{vm} removes what is left of it",
        ),
        Condition::Answers | Condition::Silent => return None,
    };
    Some(problem.since(facts.failed_at))
}

/// A problem whose reason may have a remedy of its own, which comes first.
fn with_own_remedy(what: &str, reason: &str, next: &str) -> Problem {
    let (cause, remedy) = split_remedy(reason);
    let next = match remedy {
        Some(remedy) => format!("{}; {next}", first_line(remedy)),
        None => next.to_owned(),
    };
    Problem::new(what, on_one_line(cause), &next)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn silent(facts: &VmFacts) -> Option<Problem> {
    let logs = "launcherctl logs{vm} shows its last steps";
    if facts.condition == Condition::Silent {
        let why = "it is stopped, or waits for libvirt or QEMU";
        return Some(Problem::new("the launcher does not answer", why, logs));
    }
    let why = plain(facts.launcher.problems.first()?);
    let why = on_one_line(split_remedy(&why).0);
    Some(Problem::new("libvirt does not answer", why, logs))
}

fn hook_awaited(facts: &VmFacts) -> Option<Problem> {
    let hook = Some(&*facts.launcher.called_hook).filter(|hook| !hook.is_empty())?;
    Some(Problem::new(
        "the start waits for a hook",
        format!("{hook} has not answered yet"),
        "launcherctl logs{vm} has the log of the start, launcherctl stop{vm} gives it up",
    ))
}

/// How a guest has ended, if that was without a shutdown.
#[must_use]
pub fn crash_cause(status: &DomainStatus) -> Option<&'static str> {
    match (&status.status, &status.reason) {
        (LifeCycle::Crashed, _) => Some("its kernel has panicked"),
        (LifeCycle::Shutoff, Reason::Crashed | Reason::Failed) if status.panic_count > 0 => {
            Some("its kernel has panicked")
        }
        (LifeCycle::Shutoff, Reason::Crashed | Reason::Failed) => {
            Some("its QEMU was killed (by the kernel, if memory ran out: dmesg) or has failed")
        }
        _ => None,
    }
}

fn guest_stopped(facts: &VmFacts) -> Option<Problem> {
    let status = &facts.domain.status;
    let problem = match (crash_cause(status), &status.reason) {
        (Some(cause), _) => Problem::new(
            "the guest has crashed",
            cause,
            "launcherctl logs{vm} --console shows what it wrote last, launcherctl logs{vm} the launcher's log",
        ),
        (_, reason) if GuestState::of(Some(&facts.domain)) == GuestState::Paused => {
            let (cause, next) = pause_cause(reason);
            let failed = facts.launcher.failed_disks.iter();
            let failed = failed.map(|failed| failed_disk(failed, facts));
            let failed = failed.collect::<Vec<_>>().join(", ");
            let cause = if failed.is_empty() { cause } else { &failed };
            Problem::new("the guest is paused", cause, next)
        }
        _ => return None,
    };
    Some(problem.since(facts.phase_began()))
}

/// Why a guest is paused, and what to do, with `{vm}` as in [`RULES`].
#[must_use]
pub(crate) fn pause_cause(reason: &Reason) -> (&'static str, &'static str) {
    const RESET: &str = "launcherctl reset{vm}, then launcherctl unpause{vm}";
    match reason {
        Reason::IoError => (
            "one of its disks cannot be read or written",
            "make space if the file system of its image is full (df), then launcherctl unpause{vm}",
        ),
        Reason::Crashed => ("its kernel has crashed", RESET),
        Reason::Watchdog => ("its watchdog was not reset in time", RESET),
        // libvirt has no reason for it.
        Reason::Unknown | Reason::Unset => (
            "QEMU has stopped it with an internal error",
            "launcherctl logs{vm} may have QEMU's reason, launcherctl reset{vm} starts the guest again",
        ),
        Reason::PostcopyFailed => (
            "its migration has failed after the switch to post-copy",
            "the guest's memory is not whole, so start the VM anew",
        ),
        _ => (
            "somebody has paused it",
            "launcherctl unpause{vm} resumes it",
        ),
    }
}

/// Which disk has failed, with its device and file.
fn failed_disk(failed: &FailedDisk, facts: &VmFacts) -> String {
    let volume = &failed.volume;
    let mut disks = facts.domain.spec.devices.disks.iter();
    let disk = disks.find(|disk| disk.volume() == volume);
    let device = disk.map_or("?", |disk| &disk.target.device);
    let own = disk.and_then(|disk| disk.source.backend_path());
    // A link of `run` leads to the user's file.
    let file = own.map(|own| Path::new(own).canonicalize().unwrap_or_else(|_| own.into()));
    let file = file.map_or_else(|| "its file".to_owned(), |it| it.display().to_string());
    match failed.has_no_space {
        true => format!("no space is left for disk {volume} ({device}), {file}"),
        false => format!("disk {volume} ({device}) cannot be read or written, {file}"),
    }
}

/// How often something has happened, by a cgroup's `memory.events`; `None` if it has not.
#[must_use]
pub fn memory_event(events: &str, name: &str) -> Option<u64> {
    let mut counts = events.lines().filter_map(|line| line.split_once(' '));
    let (_, count) = counts.find(|(event, _)| *event == name)?;
    count.parse().ok().filter(|count| *count > 0)
}

fn memory_short(facts: &VmFacts) -> Option<Problem> {
    let count = memory_event(&facts.memory_events, "oom_kill")?;
    Some(Problem::new(
        "memory has run out",
        format!("the kernel has killed processes of its cgroup: {count}"),
        "raise the limit of its cgroup (memory.max), or lower spec.domain.memory.guest",
    ))
}

fn nothing_to_boot(facts: &VmFacts) -> Option<Problem> {
    let console = facts.console.as_deref().unwrap_or_default();
    let cause = match &facts.unbootable_disk {
        _ if console.contains("No bootable") => "its firmware says so on the console".to_owned(),
        Some(disk) if console.is_empty() => format!("disk {disk} has no boot sector"),
        _ => return None,
    };
    let problem = Problem::new(
        "there is no bootable disk",
        cause,
        "run it with an image of an operating system (--disk), with that disk first (bootOrder: 1), or with firmware.bootloader.efi if the image needs that",
    );
    (facts.has_run_for(BIOS_SECONDS)).then(|| problem.since(facts.phase_began()))
}

fn console_blank(facts: &VmFacts) -> Option<Problem> {
    let is_blank = facts.console.as_deref() == Some("") && nothing_to_boot(facts).is_none();
    // One that has arrived by a migration wrote it elsewhere.
    let is_late = facts.has_run_for(SILENCE.as_secs().cast_signed()) && !has_arrived(&facts.domain);
    let slow = match facts.domain.spec.is_emulated() {
        true => "without KVM a start takes minutes; or ",
        false => "",
    };
    let name = match &*facts.name {
        "" => String::new(),
        name => format!(" --name {name}"),
    };
    let problem = Problem::new(
        "the serial console stays blank",
        format!(
            "nothing has appeared on it for {} s: {slow}the guest writes to its screen only (Linux needs console=ttyS0)",
            SILENCE.as_secs()
        ),
        &format!("launcherctl screenshot{name} screen.png shows the screen"),
    );
    (is_blank && is_late).then_some(problem)
}

fn emulated(facts: &VmFacts) -> Option<Problem> {
    let is_emulated = facts.wants_kvm && facts.domain.spec.is_emulated();
    is_emulated.then(|| Problem::new(
        "the guest runs without KVM",
        "/dev/kvm is missing, forbidden or does not work here, so its processor is emulated, which is slow",
        "launcherctl logs{vm} says why; run --emulate asks for it",
    ))
}

fn launcher_restarted(facts: &VmFacts) -> Option<Problem> {
    let cause = match &*facts.launcher.died_of {
        "" => "an earlier one has started the guest, which has run on".to_owned(),
        cause => format!("the earlier one has died ({cause}), and the guest has run on"),
    };
    let next = "launcherctl logs{vm} has the log of this one";
    (facts.launcher.is_adopted).then(|| Problem::new("the launcher was restarted", cause, next))
}

fn agent_missing(facts: &VmFacts) -> Option<Problem> {
    let is_missing = facts.has_run_for(AGENT_SECONDS) && !facts.domain.spec.devices.has_agent();
    is_missing.then(|| {
        Problem::new(
            "no guest agent is connected",
            "so there are no guest commands and no freezes, and addresses may be missing",
            "start qemu-guest-agent in the guest",
        )
    })
}

#[cfg(test)]
mod tests;
