//! Replays traces of migrations with the actions of KubeVirt's own monitors at each sample:
//! `xml-fixtures/migration-monitor`. The traces are generated: migrations that converge, stall,
//! swing and slow down, under limits of all kinds, with missing samples and calls that fail.

use std::time::Duration;

use serde::Deserialize;

use super::super::*;
use api::migration_options::StallDetectorOptions;

/// A migration.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Trace {
    acceptable: i64,
    progress: i64,
    max_downtime: u64,
    post_copy: bool,
    disruption: bool,
    vfio: bool,
    stalls: Option<StallDetectorOptions>,
    /// Milliseconds since the start, [`Flags`], remaining bytes, milliseconds by QEMU's clock,
    /// iteration, bytes per second.
    steps: Vec<[u64; 6]>,
    /// Step, actions, mode; steps without any are left out.
    did: Option<Vec<(usize, String, String)>>,
}

/// The kind of a step, as bits.
struct Flags(u64);

impl Flags {
    const ITERATION: u64 = 1;
    const ANSWERED: u64 = 2;
    const UNBOUNDED: u64 = 4;
    const REMAINING: u64 = 8;
    const ELAPSED: u64 = 16;
    const ITERATION_KNOWN: u64 = 32;
    const BANDWIDTH: u64 = 64;
    const PAUSED: u64 = 128;
    const DOWNTIME_FAILS: u64 = 256;
    const POST_COPY_FAILS: u64 = 512;
    const SUSPEND_FAILS: u64 = 1024;
    /// An abort in progress failed before this step.
    const ABORT_FAILED: u64 = 2048;

    fn has(&self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn given(&self, flag: u64, value: u64) -> Option<u64> {
        self.has(flag).then_some(value)
    }
}

fn sample(step: &[u64; 6], is_aborting: bool) -> Sample {
    let [elapsed, flags, remaining, job_elapsed, iteration, bandwidth] = *step;
    let flags = Flags(flags);
    let stats = JobStats {
        is_unbounded: flags.has(Flags::UNBOUNDED),
        data_remaining: flags.given(Flags::REMAINING, remaining),
        time_elapsed_ms: flags.given(Flags::ELAPSED, job_elapsed),
        memory_iteration: flags.given(Flags::ITERATION_KNOWN, iteration),
        memory_bps: flags.given(Flags::BANDWIDTH, bandwidth),
        ..JobStats::default()
    };
    Sample {
        elapsed: Duration::from_millis(elapsed),
        is_iteration: flags.has(Flags::ITERATION),
        stats: flags.has(Flags::ANSWERED).then_some(stats),
        is_paused_to_migrate: flags.has(Flags::PAUSED),
        is_aborting,
    }
}

fn replay(trace: &Trace) -> Vec<(usize, String, String)> {
    let rules = Rules {
        acceptable_seconds: trace.acceptable,
        progress_timeout: trace.progress,
        max_downtime_ms: trace.max_downtime,
        allow_post_copy: trace.post_copy,
        allow_disruption: trace.disruption,
        has_vfio: trace.vfio,
    };
    let options = MigrationOptions {
        stall_detector_options: trace.stalls.clone(),
        ..MigrationOptions::default()
    };
    let mut monitor = Monitor::new(rules, &options);
    let (mut did, mut is_aborting) = (Vec::new(), false);
    for (number, step) in trace.steps.iter().enumerate() {
        let flags = Flags(step[1]);
        is_aborting &= !flags.has(Flags::ABORT_FAILED);
        let before = monitor.mode();
        let mut actions = Vec::new();
        let mut decision = monitor.observe(&sample(step, is_aborting));
        while let Some(Decision { action, .. }) = decision {
            let (name, failure) = match action {
                MonitorAction::SetMaxDowntime(ms) => (format!("D{ms}"), Flags::DOWNTIME_FAILS),
                MonitorAction::StartPostCopy => ("P".to_owned(), Flags::POST_COPY_FAILS),
                MonitorAction::Suspend => ("S".to_owned(), Flags::SUSPEND_FAILS),
                MonitorAction::Abort => {
                    is_aborting = true;
                    ("A".to_owned(), 0)
                }
            };
            actions.push(name);
            decision = monitor.performed(!flags.has(failure));
        }
        if !actions.is_empty() || monitor.mode() != before {
            did.push((
                number,
                actions.join(" "),
                monitor.mode().as_str().to_owned(),
            ));
        }
    }
    did
}

#[test]
fn traces_end_as_with_kubevirts_monitors() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/xml-fixtures/migration-monitor/traces.jsonl"
    );
    let traces = std::fs::read_to_string(path).unwrap();
    let mut actions = std::collections::BTreeMap::<char, usize>::new();
    for (number, line) in traces.lines().enumerate() {
        let trace: Trace = serde_json::from_str(line).unwrap();
        let found = replay(&trace);
        let mut expected = trace.did.unwrap_or_default();
        if trace.stalls.is_none() {
            // D-mig-35 (docs/differences.md).
            let mut steps = trace.steps.iter();
            let answered = steps.position(|step| Flags(step[1]).has(Flags::ANSWERED));
            expected.retain(|(step, ..)| answered.is_some_and(|first| first <= *step));
        }
        assert_eq!(found, expected, "trace {number}");
        let kinds = found.iter().flat_map(|(_, actions, _)| actions.split(' '));
        for kind in kinds.filter_map(|action| action.chars().next()) {
            *actions.entry(kind).or_default() += 1;
        }
    }
    assert!(traces.lines().count() >= 500);
    // The corpus is useful only if it contains every action.
    for kind in ['A', 'D', 'P', 'S'] {
        assert!(
            actions.get(&kind).is_some_and(|count| *count >= 20),
            "{actions:?}"
        );
    }
}
