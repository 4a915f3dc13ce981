//! What is wrong with a VM, why, and what to do next: rules over what is known of it, explained for
//! people.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod removed_image;

pub use self::removed_image::{LastOfImage, Loss, RemovedImage};
use super::refusal::{self, on_one_line, plain, split_remedy};
use super::{GuestState, has_arrived, is_migrating};
use api::proto::inspect::v1::{DebugResponse, FailedDisk};
use domain::Domain;
use domain::status::{LifeCycle, StateChangeReason as Reason};

/// A console that stays blank for so long is explained.
pub const SILENCE: Duration = Duration::from_secs(20);
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
pub struct Facts {
    /// The VM's name as the verbs take it; empty in a pod, whose VM needs none.
    pub name: String,
    pub condition: Condition,
    /// When it failed, in seconds since 1970; `None` if it did not.
    pub failed_at: Option<i64>,
    /// Why a VM that should have a supervisor has none.
    pub unsupervised: Option<&'static str>,
    /// Whether `run` has started the VM and no `stop` is under way: nobody then forces it off.
    pub is_ended_by_nobody: bool,
    /// When the stop that is under way asked the guest to shut down, in seconds since 1970: another
    /// `shutdown` may have asked it before.
    pub stop_began: Option<i64>,
    /// Seconds since 1970.
    pub now: i64,
    pub domain: Domain,
    pub launcher: DebugResponse,
    /// Those for which a launcher that starts waits, with the reasons.
    pub missing_sidecars: Option<String>,
    /// The launcher's metrics, as OpenMetrics text.
    pub metrics: String,
    /// Whether KVM is to be used if it works.
    pub wants_kvm: bool,
    /// The user's files of volumes.
    pub files: BTreeMap<String, String>,
    /// PIDs of a supervisor, a launcher, a daemon of libvirt's and a QEMU whose process is stopped
    /// (SIGSTOP).
    pub stopped_supervisor: Option<i32>,
    pub stopped_launcher: Option<i32>,
    pub stopped_libvirt: Option<i32>,
    pub stopped_qemu: Option<i32>,
    /// Like the last one, of the QEMU to which a guest migrates.
    pub stopped_target: Option<i32>,
    /// The end of the serial console's log; `None` without a console.
    pub console: Option<String>,
    /// The VM's directory, if somebody has removed or moved it.
    pub missing_directory: Option<PathBuf>,
    pub removed_images: Vec<RemovedImage>,
    /// The disk that a BIOS would boot, if its image has no boot sector.
    pub unbootable_disk: Option<String>,
    /// The hook sidecars that have changed the domain.
    pub changed_by: Vec<String>,
    /// `memory.events` of QEMU's cgroup.
    pub memory_events: String,
}

/// The next step for a paused or lost guest while only QEMU has one of its images.
const COPY_FIRST: &str = "first copy the image that only QEMU has, as said below";

/// Where the launcher's advice for a repeated call begins in its message.
const IN_BACKGROUND: &str = "; it continues in the background";

type Rule = fn(&Facts) -> Option<Problem>;

/// The rules that come before removed images, the worst first. In a next step, `{vm}` stands for
/// the VM's name.
const GRAVE: [Rule; 8] = [
    not_there,
    without_supervisor,
    stopped_supervisor,
    silent,
    hook_awaited,
    stopped_qemu,
    guest_stopped,
    memory_short,
];

/// The rules that come after removed images, the worst first.
const LESSER: [Rule; 10] = [
    shutdown_ignored,
    migration,
    nothing_to_boot,
    console_blank,
    emulated,
    launcher_restarted,
    libvirt_restarted,
    agent_missing,
    agent_silent,
    parts_ignored,
];

/// What is wrong with the VM, the worst first.
#[must_use]
pub fn problems(facts: &Facts) -> Vec<Problem> {
    let of = |rules: &'static [Rule]| rules.iter().filter_map(|rule| rule(facts));
    let images = facts.removed_images.iter();
    let images = images.map(|image| image_removed(image, facts));
    let found = of(&GRAVE).chain(images).chain(of(&LESSER));
    found.map(|problem| facts.with_name(problem)).collect()
}

/// Why a guest does not come up.
#[must_use]
pub fn why_not_up(facts: &Facts) -> Option<Problem> {
    let rules: [Rule; 7] = [
        silent,
        stopped_qemu,
        guest_stopped,
        memory_short,
        nothing_to_boot,
        console_blank,
        emulated,
    ];
    let problem = rules.iter().find_map(|rule| rule(facts))?;
    Some(facts.with_name(problem))
}

/// Why the guest does not go on by itself: it is paused, or has crashed.
#[must_use]
pub fn stop_of(facts: &Facts) -> Option<Problem> {
    guest_stopped(facts).map(|problem| facts.with_name(problem))
}

impl Facts {
    fn with_name(&self, mut problem: Problem) -> Problem {
        let space = if self.name.is_empty() { "" } else { " " };
        let name = format!("{space}{}", self.name);
        problem.next = problem.next.replace("{vm}", &name);
        problem
    }

    /// Whether an image would go with its VM.
    fn has_lost_image(&self) -> bool {
        self.removed_images.iter().any(RemovedImage::is_lost)
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

fn not_there(facts: &Facts) -> Option<Problem> {
    let problem = match &facts.condition {
        Condition::Failed(reason) if is_kvm_failure(reason) => Problem::new(
            "KVM has failed",
            first_line(reason),
            "run --emulate does without it, launcherctl logs{vm} has the log until then, or until launcherctl stop{vm}",
        ),
        Condition::Failed(reason) => {
            let logs = "launcherctl run with its manifest starts it again, launcherctl logs{vm} (--console) and launcherctl debug{vm} have its logs until then, or until launcherctl stop{vm}";
            with_own_remedy("the VM has failed", reason, logs)
        }
        Condition::Lost(Some(pid)) => {
            let (cause, next) = match &facts.missing_directory {
                Some(directory) => (
                    format!("{} was removed or moved", directory.display()),
                    "if it was moved, move it back; else shut the guest down from inside if you can (SSH), launcherctl stop{vm} forces it off",
                ),
                None if facts.has_lost_image() => {
                    ("its launcher was killed".to_owned(), COPY_FIRST)
                }
                None => (
                    "its launcher was killed".to_owned(),
                    "shut it down from inside if you can (SSH), launcherctl stop{vm} forces it off",
                ),
            };
            let cause = format!("{cause}, and its guest still runs (QEMU is process {pid})");
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

fn without_supervisor(facts: &Facts) -> Option<Problem> {
    Some(Problem::new(
        "the VM has no supervisor",
        facts.unsupervised?,
        match facts.has_lost_image() {
            true => COPY_FIRST,
            false => "launcherctl stop{vm} shuts it down",
        },
    ))
}

fn stopped_supervisor(facts: &Facts) -> Option<Problem> {
    stopped("the supervisor", facts.stopped_supervisor)
}

fn silent(facts: &Facts) -> Option<Problem> {
    let logs = "launcherctl logs{vm} shows its last steps, launcherctl debug{vm} has libvirt's and QEMU's logs";
    match facts.launcher.problems.first() {
        _ if facts.stopped_launcher.is_some() => stopped("the launcher", facts.stopped_launcher),
        _ if facts.condition == Condition::Silent => Some(Problem::new(
            "the launcher does not answer",
            "it is stopped, or waits for libvirt or QEMU",
            logs,
        )),
        // libvirt waits for it.
        _ if facts.stopped_qemu.is_some() => None,
        Some(_) if facts.stopped_libvirt.is_some() => stopped("libvirt", facts.stopped_libvirt),
        Some(why) => {
            let why = plain(why);
            let why = split_remedy(&why).0.split(IN_BACKGROUND).next();
            let why = why.unwrap_or_default().replace('\n', " ");
            Some(Problem::new("libvirt does not answer", why, logs))
        }
        None => None,
    }
}

fn hook_awaited(facts: &Facts) -> Option<Problem> {
    let next = "launcherctl logs{vm} has the log of the start, launcherctl stop{vm} gives it up";
    match (&facts.missing_sidecars, &*facts.launcher.called_hook) {
        (Some(missing), _) => Some(Problem::new(
            "the start waits for hook sidecars",
            format!("not ready: {missing}"),
            next,
        )),
        (None, "") => None,
        (None, hook) => Some(Problem::new(
            "the start waits for a hook",
            format!("{hook} has not answered yet"),
            next,
        )),
    }
}

fn stopped_qemu(facts: &Facts) -> Option<Problem> {
    stopped("QEMU", facts.stopped_qemu)
}

fn stopped(who: &str, pid: Option<i32>) -> Option<Problem> {
    let pid = pid?;
    Some(Problem::new(
        &format!("{who} does not answer"),
        format!("its process {pid} was stopped by a signal or a debugger"),
        &format!("kill -CONT {pid} lets it go on, launcherctl stop{{vm}} --force ends it"),
    ))
}

fn guest_stopped(facts: &Facts) -> Option<Problem> {
    let status = &facts.domain.status;
    let problem = match (&status.status, &status.reason) {
        (LifeCycle::Crashed, _) | (LifeCycle::Shutoff, Reason::Crashed | Reason::Failed) => {
            let has_panicked = status.status == LifeCycle::Crashed || status.panic_count > 0;
            let cause = match has_panicked {
                true => "its kernel has panicked",
                false => {
                    "its QEMU was killed (by the kernel, if memory ran out: dmesg) or has failed"
                }
            };
            Problem::new(
                "the guest has crashed",
                cause,
                "launcherctl logs{vm} --console shows what it wrote last, launcherctl logs{vm} the launcher's log",
            )
        }
        (_, reason) if GuestState::of(Some(&facts.domain)) == GuestState::Paused => {
            let (cause, next) = pause_cause(reason);
            let failed = facts.launcher.failed_disks.iter();
            let failed = failed.map(|failed| failed_disk(failed, facts));
            let failed = failed.collect::<Vec<_>>().join(", ");
            let cause = if failed.is_empty() { cause } else { &failed };
            let next = match reason {
                Reason::User if facts.has_lost_image() => COPY_FIRST,
                _ => next,
            };
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
            "launcherctl debug{vm} has QEMU's log, launcherctl reset{vm} starts the guest again",
        ),
        Reason::PostcopyFailed => (
            "its migration has failed after the switch to post-copy",
            "launcherctl migration{vm} shows how it went; the guest's memory is not whole, so start the VM anew",
        ),
        _ => (
            "somebody has paused it",
            "launcherctl unpause{vm} resumes it",
        ),
    }
}

/// Which disk has failed, with its device and file.
fn failed_disk(failed: &FailedDisk, facts: &Facts) -> String {
    let volume = &failed.volume;
    let mut disks = facts.domain.spec.devices.disks.iter();
    let disk = disks.find(|disk| disk.volume() == volume);
    let device = disk.map_or("?", |disk| &disk.target.device);
    let of_user = facts.files.get(volume).map(String::as_str);
    let own = disk.and_then(|disk| disk.source.backend_path());
    let image = of_user.or(own);
    // The guest writes to an overlay, and the user's file is only read.
    let below = disk.and_then(|disk| disk.backing_store.as_ref()?.source.as_ref());
    let overlay = own.filter(|_| below.is_some());
    let shown = |file: Option<&str>| file.unwrap_or("its file").to_owned();
    match failed.has_no_space {
        true => {
            let file = shown(overlay.or(image));
            format!("no space is left for disk {volume} ({device}), {file}")
        }
        false => {
            let file = shown(image);
            format!("disk {volume} ({device}) cannot be read or written, {file}")
        }
    }
}

/// How often something has happened, by a cgroup's `memory.events`; `None` if it has not.
#[must_use]
pub fn memory_event(events: &str, name: &str) -> Option<u64> {
    let mut counts = events.lines().filter_map(|line| line.split_once(' '));
    let (_, count) = counts.find(|(event, _)| *event == name)?;
    count.parse().ok().filter(|count| *count > 0)
}

fn memory_short(facts: &Facts) -> Option<Problem> {
    let count = |event| memory_event(&facts.memory_events, event);
    let next = "raise the limit of its cgroup (memory.max), or lower spec.domain.memory.guest";
    match (count("oom_kill"), count("max")) {
        (Some(count), _) => Some(Problem::new(
            "memory has run out",
            format!("the kernel has killed processes of its cgroup: {count}"),
            next,
        )),
        (None, Some(count)) => Some(Problem::new(
            "memory is nearly out",
            format!("its cgroup has been at its limit {count}×"),
            next,
        )),
        (None, None) => None,
    }
}

fn image_removed(image: &RemovedImage, facts: &Facts) -> Problem {
    let loss = match facts.condition {
        Condition::Lost(_) => Loss::EndWithoutLauncher,
        _ => Loss::EndOfVm,
    };
    let (cause, next) = image.explained(loss);
    let what = match image.is_replaced {
        true => "a disk's image was replaced",
        false => "a disk's image was removed",
    };
    Problem::new(what, cause, &next)
}

fn shutdown_ignored(facts: &Facts) -> Option<Problem> {
    let grace = facts.domain.spec.metadata.kube_virt.grace_period.as_ref()?;
    let asked = grace.deletion_timestamp?.as_second();
    let began = facts.stop_began.unwrap_or(asked);
    let end = began.saturating_add(grace.deletion_grace_period_seconds);
    let left = end.saturating_sub(facts.now).max(0);
    let is_paused = GuestState::of(Some(&facts.domain)) == GuestState::Paused;
    let sees = if is_paused {
        ", which it sees once it is resumed"
    } else {
        ""
    };
    let (forced, next) = match facts.is_ended_by_nobody {
        true => (
            "nobody forces it off".to_owned(),
            "launcherctl stop{vm} asks again, and forces it off after its grace period",
        ),
        false => (
            match left {
                0 => "is being forced off".to_owned(),
                left => format!("is forced off in {left} s"),
            },
            "launcherctl stop{vm} --force forces it off now",
        ),
    };
    let problem = Problem::new(
        "the guest has not shut down yet",
        format!("it was asked to{sees}, and {forced}"),
        next,
    );
    let has_vcpus = [LifeCycle::Running, LifeCycle::ShuttingDown];
    let runs = is_paused || has_vcpus.contains(&facts.domain.status.status);
    runs.then(|| problem.since(Some(asked)))
}

fn migration(facts: &Facts) -> Option<Problem> {
    let migration = facts.domain.spec.metadata.kube_virt.migration.as_ref()?;
    let problem = if is_migrating(Some(&facts.domain)) {
        let cause = match facts.stopped_target {
            Some(pid) => format!(
                "the target's QEMU (process {pid}) was stopped by a signal or a debugger, and kill -CONT {pid} lets it go on"
            ),
            None => "the guest moves to another launcher".to_owned(),
        };
        Problem::new(
            "a migration is under way",
            cause,
            "launcherctl migration{vm} --follow shows how far it is, Ctrl-C cancels it where launcherctl migrate runs",
        )
    } else if migration.failed && !refusal::is_cancelled(&migration.failure_reason) {
        let report = "launcherctl migration{vm} shows how it went";
        let reason = plain(&migration.failure_reason);
        with_own_remedy("the last migration has failed", &reason, report)
    } else {
        return None;
    };
    let since = migration.end_timestamp.or(migration.start_timestamp);
    Some(problem.since(since.map(|time| time.as_second())))
}

fn nothing_to_boot(facts: &Facts) -> Option<Problem> {
    let console = facts.console.as_deref().unwrap_or_default();
    let cause = match &facts.unbootable_disk {
        _ if console.contains("No bootable") => "its firmware says so on the console".to_owned(),
        Some(disk) if console.is_empty() => format!("disk {disk} has no boot sector"),
        _ => return None,
    };
    let problem = Problem::new(
        "there is no bootable disk",
        cause + &after_hooks(facts),
        "run it with an image of an operating system (--disk), with that disk first (bootOrder: 1), or with firmware.bootloader.efi if the image needs that",
    );
    (facts.has_run_for(BIOS_SECONDS)).then(|| problem.since(facts.phase_began()))
}

/// What a guest that does not boot may be due to.
fn after_hooks(facts: &Facts) -> String {
    match facts.changed_by.as_slice() {
        [] => String::new(),
        hooks => format!(
            ", and the domain was changed by {}, as launcherctl launcher hooks shows",
            hooks.join(", ")
        ),
    }
}

fn console_blank(facts: &Facts) -> Option<Problem> {
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
            "nothing has appeared on it for {} s: {slow}the guest writes to its screen only (Linux needs console=ttyS0){}",
            SILENCE.as_secs(),
            after_hooks(facts)
        ),
        &format!("launcherctl screenshot{name} screen.png shows the screen"),
    );
    (is_blank && is_late).then_some(problem)
}

fn emulated(facts: &Facts) -> Option<Problem> {
    let is_emulated = facts.wants_kvm && facts.domain.spec.is_emulated();
    is_emulated.then(|| Problem::new(
        "the guest runs without KVM",
        "/dev/kvm is missing, forbidden or does not work here, so its processor is emulated, which is slow",
        "launcherctl logs{vm} says why; run --emulate asks for it",
    ))
}

fn launcher_restarted(facts: &Facts) -> Option<Problem> {
    facts.launcher.is_adopted.then(|| {
        Problem::new(
            "the launcher was restarted",
            "an earlier one has started the guest, which has run on",
            "launcherctl debug{vm} has the logs",
        )
    })
}

fn libvirt_restarted(facts: &Facts) -> Option<Problem> {
    let daemons = facts.metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("virt_launcher_daemon_restarts_total{daemon=\"")?;
        let (daemon, count) = rest.split_once("\"} ")?;
        (count != "0").then(|| format!("{daemon} has ended {count}×, and was started again"))
    });
    let next = "launcherctl debug{vm} has the logs";
    let daemons: Vec<_> = daemons.collect();
    (!daemons.is_empty()).then(|| Problem::new("libvirt was restarted", daemons.join(", "), next))
}

fn agent_missing(facts: &Facts) -> Option<Problem> {
    let is_missing = facts.has_run_for(AGENT_SECONDS) && !facts.domain.spec.devices.has_agent();
    is_missing.then(|| {
        Problem::new(
            "no guest agent is connected",
            "so there are no guest commands and no freezes, and addresses may be missing",
            "start qemu-guest-agent in the guest",
        )
    })
}

fn agent_silent(facts: &Facts) -> Option<Problem> {
    let micros = facts.launcher.agent_silent_unix_micros;
    let problem = Problem::new(
        "the guest agent does not answer",
        "it hung or was busy when it was asked last, so what is known of the guest may be old",
        "launcherctl guest ping{vm} asks it again; restart qemu-guest-agent in the guest",
    );
    // A stopped QEMU keeps it from answering.
    let is_silent = micros > 0 && facts.stopped_qemu.is_none();
    is_silent.then(|| problem.since(Some(micros / 1_000_000)))
}

fn parts_ignored(facts: &Facts) -> Option<Problem> {
    let cause = plain(&facts.launcher.ignored_by_libvirt);
    (!cause.is_empty()).then(|| {
        Problem::new(
            "a part of the domain has no effect",
            cause,
            "a sidecar may have misspelt it, or an attribute of it, or not declared its prefix; or libvirt is too old for it",
        )
    })
}

/// Whether a start failed because of KVM.
#[must_use]
pub fn is_kvm_failure(message: &str) -> bool {
    let signs = [
        "failed to initialize kvm",
        "Could not access KVM kernel module",
        "KVM is not supported",
        "KVM not supported",
        "KVM has stopped the guest",
        "ioctl(KVM_CREATE_VM)",
        "/dev/kvm",
        // QEMU's assertions: target/i386/kvm/kvm.c, accel/kvm/kvm-all.c.
        "/kvm/kvm",
        "failed to set MSR",
    ];
    signs.iter().any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests;
