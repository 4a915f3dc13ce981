//! Records when each step of a start began and how long it took, from the launcher's start to a
//! guest that is up.
//!
//! ```text
//!   directories ─► daemons ─► connect ─┐            convert ─► … ─► define ─► start ─► running
//!               └► sidecars ───────────┴► ready ─ ─ ─┴── a sync of virt-handler's      └► console, login, agent
//! ```
//!
//! Each [`StartStep`] is recorded once: a repeated start replaces its last attempt, so the record
//! does not grow.

use api::proto::inspect::v1;
use os::lock::lock;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A step of the start, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StartStep {
    /// Makes the pod's directories.
    Directories,
    /// Writes libvirt's configuration and starts its daemons.
    Daemons,
    /// Waits for the daemons and connects.
    Connect,
    /// Waits for the hook sidecars' sockets and queries each sidecar.
    Sidecars,
    /// virt-handler may call. Has no duration.
    Ready,
    /// Converts the VMI to a domain.
    Convert,
    /// The sidecars' hook PreCloudInitIso.
    CloudInitHooks,
    /// Tap devices and DHCP servers.
    Network,
    /// Images and files that the domain opens.
    Prepare,
    /// The sidecars' hook OnDefineDomain, and plugins.
    DefineHooks,
    /// Defines the domain in libvirt.
    Define,
    /// libvirt starts QEMU.
    Start,
    /// The domain runs. Has no duration.
    Running,
    /// First output on the serial console. Has no duration.
    Console,
    /// The serial console asks for a login. Has no duration.
    Login,
    /// The guest agent has connected. Has no duration.
    Agent,
}

impl StartStep {
    /// The name in logs and in `launcherctl launcher timeline`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Directories => "directories",
            Self::Daemons => "daemons",
            Self::Connect => "connect",
            Self::Sidecars => "sidecars",
            Self::Ready => "ready",
            Self::Convert => "convert",
            Self::CloudInitHooks => "cloud-init-hooks",
            Self::Network => "network",
            Self::Prepare => "prepare",
            Self::DefineHooks => "define-hooks",
            Self::Define => "define",
            Self::Start => "start",
            Self::Running => "running",
            Self::Console => "console",
            Self::Login => "login",
            Self::Agent => "agent",
        }
    }

    /// The group of the step.
    fn part(self) -> &'static str {
        match self {
            step if step <= Self::Ready => "pod",
            step if step <= Self::Running => "domain",
            _ => "guest",
        }
    }

    /// Whether the step shows that the guest is up.
    fn shows_guest_up(self) -> bool {
        matches!(self, Self::Login | Self::Agent)
    }
}

/// When a step began, measured from the launcher's start, and how long it took; `None` while it
/// goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    began: Duration,
    took: Option<Duration>,
}

#[derive(Debug, Default)]
struct Steps {
    spans: BTreeMap<StartStep, Span>,
    attempts: u32,
}

#[derive(Debug)]
pub struct Timeline {
    began: Instant,
    began_at: SystemTime,
    steps: Mutex<Steps>,
}

/// A step in progress, which ends on drop.
#[must_use]
pub struct StepTimer<'t> {
    timeline: &'t Timeline,
    step: StartStep,
}

impl Drop for StepTimer<'_> {
    fn drop(&mut self) {
        let now = self.timeline.began.elapsed();
        if let Some(span) = lock(&self.timeline.steps).spans.get_mut(&self.step) {
            span.took = Some(now.saturating_sub(span.began));
        }
    }
}

impl Timeline {
    /// Starts the timeline.
    pub fn begin() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            began_at: SystemTime::now(),
            steps: Mutex::default(),
        })
    }

    /// Starts a step.
    pub fn step(&self, step: StartStep) -> StepTimer<'_> {
        let began = self.began.elapsed();
        let span = Span { began, took: None };
        lock(&self.steps).spans.insert(step, span);
        StepTimer {
            timeline: self,
            step,
        }
    }

    /// Measures `work` as a step.
    pub async fn measure<T>(&self, step: StartStep, work: impl Future<Output = T>) -> T {
        let _running = self.step(step);
        work.await
    }

    /// Records an event without duration; only the first time counts. Logs the first sign of a
    /// guest that is up.
    pub fn mark(&self, step: StartStep) {
        let mut steps = lock(&self.steps);
        let was_up = steps.spans.keys().any(|step| step.shows_guest_up());
        let began = self.began.elapsed();
        let Entry::Vacant(entry) = steps.spans.entry(step) else {
            return;
        };
        entry.insert(Span {
            began,
            took: Some(Duration::ZERO),
        });
        let started = steps.spans.get(&StartStep::Start).map(|span| span.began);
        if let Some(started) = started.filter(|_| step.shows_guest_up() && !was_up) {
            let milliseconds = os::time::milliseconds(began.saturating_sub(started));
            tracing::info!(sign = step.name(), milliseconds, "The guest is up");
        }
    }

    /// Removes an earlier attempt's steps when a sync starts the domain.
    pub fn begin_start(&self) {
        let mut steps = lock(&self.steps);
        steps.spans.retain(|step, _| *step < StartStep::Convert);
        steps.attempts = steps.attempts.saturating_add(1);
    }

    /// Logs all steps so far in one line, with their times in milliseconds since the launcher's
    /// start.
    pub fn log(&self) {
        let mut text = String::new();
        for (step, span) in self.in_order() {
            let began = span.began.as_secs_f64() * 1000.0;
            let separator = if text.is_empty() { "" } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(text, "{separator}{} {began:.1}", step.name());
            if let Some(took) = span.took.filter(|took| !took.is_zero()) {
                let _ = write!(text, "-{:.1}", began + took.as_secs_f64() * 1000.0);
            }
        }
        tracing::info!(steps = text, "Timeline of the start, in milliseconds");
    }

    /// In the form of launcherctl's protocol.
    pub fn to_message(&self) -> v1::TimelineResponse {
        let steps = self.in_order().into_iter().map(|(step, span)| v1::Step {
            name: step.name().to_owned(),
            began_micros: micros(span.began),
            took_micros: span.took.map(micros),
            part: step.part().to_owned(),
        });
        let began_at = self.began_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        v1::TimelineResponse {
            began_unix_micros: i64::try_from(began_at.as_micros()).unwrap_or(i64::MAX),
            attempts: lock(&self.steps).attempts,
            steps: steps.collect(),
        }
    }

    /// In the order they began.
    fn in_order(&self) -> Vec<(StartStep, Span)> {
        let spans = lock(&self.steps).spans.clone();
        let mut spans: Vec<_> = spans.into_iter().collect();
        spans.sort_by_key(|(_, span)| span.began);
        spans
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(timeline: &Timeline) -> Vec<String> {
        let steps = timeline.to_message().steps;
        steps.into_iter().map(|step| step.name).collect()
    }

    #[test]
    fn a_step_has_no_duration_until_it_ends() {
        let timeline = Timeline::begin();
        let running = timeline.step(StartStep::Daemons);
        assert_eq!(timeline.to_message().steps[0].took_micros, None);
        drop(running);
        assert!(timeline.to_message().steps[0].took_micros.is_some());
        timeline.mark(StartStep::Ready);
        assert_eq!(timeline.to_message().steps[1].took_micros, Some(0));
        assert_eq!(names(&timeline), ["daemons", "ready"]);
    }

    #[test]
    fn another_attempt_replaces_what_the_last_one_left() {
        let timeline = Timeline::begin();
        timeline.mark(StartStep::Ready);
        for _ in 0..3 {
            timeline.begin_start();
            drop(timeline.step(StartStep::Convert));
            timeline.mark(StartStep::Running);
        }
        assert_eq!(names(&timeline), ["ready", "convert", "running"]);
        assert_eq!(timeline.to_message().attempts, 3);
    }

    #[test]
    fn only_the_first_time_counts() {
        let timeline = Timeline::begin();
        timeline.mark(StartStep::Agent);
        let first = timeline.to_message();
        timeline.mark(StartStep::Agent);
        assert_eq!(timeline.to_message(), first);
    }
}
