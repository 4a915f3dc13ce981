//! Tests of single rules with their own samples.

mod recorded;

use std::time::Duration;

use super::*;
use api::migration_options::{DowntimeTuning, StallDetectorOptions};
use api::vmi::Factor;

const MIB: u64 = 1 << 20;

fn rules() -> Rules {
    Rules {
        acceptable_seconds: 100,
        progress_timeout: 20,
        max_downtime_ms: 1000,
        allow_post_copy: false,
        allow_disruption: false,
        has_vfio: false,
    }
}

fn stalls() -> StallDetectorOptions {
    StallDetectorOptions {
        stall_margin: 0.04,
        stall_progress_timeout: 10,
        switchover_timeout: 30,
        ewma_alpha: Factor::Number(0.4),
        precopy_possible_factor: Factor::Number(1.5),
        patience_window_decay_factor: Factor::Number(0.5),
        search_local_minima: true,
        completion_timeout_factor: Factor::Number(2.0),
    }
}

fn time_limits(rules: Rules) -> Monitor {
    Monitor::new(rules, &MigrationOptions::default())
}

fn stall_monitor(rules: Rules) -> Monitor {
    let options = MigrationOptions {
        stall_detector_options: Some(stalls()),
        ..MigrationOptions::default()
    };
    Monitor::new(rules, &options)
}

fn at(seconds: u64, remaining_mib: u64) -> Sample {
    Sample {
        elapsed: Duration::from_secs(seconds),
        stats: Some(JobStats {
            is_unbounded: true,
            data_remaining: Some(remaining_mib * MIB),
            time_elapsed_ms: Some(seconds * 1000),
            memory_iteration: Some(1),
            memory_bps: Some(100 * MIB),
            ..JobStats::default()
        }),
        ..Sample::default()
    }
}

fn iteration(seconds: u64, remaining_mib: u64) -> Sample {
    Sample {
        is_iteration: true,
        ..at(seconds, remaining_mib)
    }
}

/// The actions at a sample, all of them successful.
fn actions(monitor: &mut Monitor, sample: &Sample) -> Vec<MonitorAction> {
    let mut actions = Vec::new();
    let mut decision = monitor.observe(sample);
    while let Some(decided) = decision {
        actions.push(decided.action);
        decision = monitor.performed(true);
    }
    actions
}

#[test]
fn a_migration_that_goes_on_is_left_alone() {
    let mut monitor = time_limits(rules());
    for seconds in 0..100 {
        let found = actions(&mut monitor, &at(seconds, 1000 - seconds));
        assert_eq!(found, [], "{seconds}");
    }
    assert_eq!(monitor.mode(), MigrationMode::PreCopy);
}

#[test]
fn a_stuck_migration_is_aborted_once() {
    let mut monitor = time_limits(rules());
    assert_eq!(actions(&mut monitor, &at(1, 500)), []);
    assert_eq!(actions(&mut monitor, &at(21, 500)), []);
    assert_eq!(actions(&mut monitor, &at(22, 500)), [MonitorAction::Abort]);
    let aborting = Sample {
        is_aborting: true,
        ..at(23, 500)
    };
    assert_eq!(actions(&mut monitor, &aborting), []);
}

#[test]
// D-mig-35 (docs/differences.md).
fn the_time_before_libvirt_knows_what_is_left_is_not_without_progress() {
    let mut monitor = time_limits(rules());
    let prepared = Sample {
        elapsed: Duration::from_secs(50),
        ..Sample::default()
    };
    assert_eq!(actions(&mut monitor, &prepared), []);
    assert_eq!(actions(&mut monitor, &at(80, 500)), []);
    assert_eq!(actions(&mut monitor, &Sample::default()), []);
    assert_eq!(actions(&mut monitor, &at(100, 500)), []);
    let mut monitor = time_limits(rules());
    actions(&mut monitor, &at(50, 500));
    let unanswered = Sample {
        elapsed: Duration::from_secs(71),
        ..Sample::default()
    };
    assert_eq!(actions(&mut monitor, &unanswered), [MonitorAction::Abort]);
}

#[test]
fn a_late_migration_is_helped_as_far_as_that_is_allowed() {
    let late = at(101, 10);
    let done = |rules: Rules| {
        let mut monitor = time_limits(rules);
        (actions(&mut monitor, &late), monitor.mode())
    };
    assert_eq!(
        done(rules()),
        (vec![MonitorAction::Abort], MigrationMode::PreCopy)
    );
    let disruption = Rules {
        allow_disruption: true,
        ..rules()
    };
    assert_eq!(
        done(disruption),
        (vec![MonitorAction::Suspend], MigrationMode::Paused)
    );
    let post_copy = Rules {
        allow_post_copy: true,
        ..disruption
    };
    assert_eq!(
        done(post_copy),
        (vec![MonitorAction::StartPostCopy], MigrationMode::PostCopy)
    );
    let vfio = Rules {
        has_vfio: true,
        ..post_copy
    };
    assert_eq!(
        done(vfio),
        (
            vec![MonitorAction::SetMaxDowntime(200_000)],
            MigrationMode::Paused
        )
    );
}

#[test]
// D-mig-37 (docs/differences.md).
fn a_cancelled_migration_is_not_helped() {
    let mut monitor = time_limits(Rules {
        allow_disruption: true,
        allow_post_copy: true,
        ..rules()
    });
    let aborting = Sample {
        is_aborting: true,
        ..at(101, 10)
    };
    assert_eq!(actions(&mut monitor, &aborting), []);
    assert_eq!(monitor.mode(), MigrationMode::PreCopy);
    // libvirt could not abort it.
    assert_eq!(
        actions(&mut monitor, &at(102, 10)),
        [MonitorAction::StartPostCopy]
    );
}

#[test]
fn a_paused_migration_has_twice_the_time_and_one_in_post_copy_all_of_it() {
    let disruption = Rules {
        allow_disruption: true,
        progress_timeout: 0,
        ..rules()
    };
    let mut paused = time_limits(disruption);
    assert_eq!(actions(&mut paused, &at(101, 10)), [MonitorAction::Suspend]);
    assert_eq!(actions(&mut paused, &at(200, 10)), []);
    assert_eq!(actions(&mut paused, &at(201, 10)), [MonitorAction::Abort]);
    let post_copy = Rules {
        allow_post_copy: true,
        ..disruption
    };
    let mut post_copy = time_limits(post_copy);
    assert_eq!(
        actions(&mut post_copy, &at(101, 10)),
        [MonitorAction::StartPostCopy]
    );
    assert_eq!(actions(&mut post_copy, &at(100_000, 10)), []);
}

#[test]
fn help_that_fails_is_tried_again() {
    let disruption = Rules {
        allow_disruption: true,
        ..rules()
    };
    let mut monitor = time_limits(disruption);
    for seconds in [101, 102] {
        let decision = monitor.observe(&at(seconds, 10)).map(|it| it.action);
        assert_eq!(decision, Some(MonitorAction::Suspend));
        assert_eq!(monitor.performed(false), None);
        assert_eq!(monitor.mode(), MigrationMode::PreCopy);
    }
}

#[test]
fn without_a_limit_a_migration_may_last_for_ever() {
    let endless = Rules {
        acceptable_seconds: 0,
        progress_timeout: 0,
        allow_disruption: true,
        ..rules()
    };
    let mut monitor = time_limits(endless);
    assert_eq!(actions(&mut monitor, &at(1_000_000, 10)), []);
}

/// A stalled migration: 400 MiB remain repeatedly, four seconds at this bandwidth.
fn stalled(rules: Rules) -> Vec<MonitorAction> {
    let mut monitor = stall_monitor(rules);
    assert_eq!(
        actions(&mut monitor, &at(0, 4000)),
        [MonitorAction::SetMaxDowntime(300)]
    );
    assert_eq!(actions(&mut monitor, &iteration(1, 400)), []);
    actions(&mut monitor, &iteration(11, 400))
}

#[test]
fn a_stalled_migration_switches_over_at_a_local_minimum_as_far_as_that_is_allowed() {
    assert_eq!(stalled(rules()), [MonitorAction::Abort]);
    let patient = Rules {
        max_downtime_ms: 3000,
        ..rules()
    };
    assert_eq!(stalled(patient), [MonitorAction::SetMaxDowntime(3000)]);
    let disruption = Rules {
        allow_disruption: true,
        ..rules()
    };
    assert_eq!(
        stalled(disruption),
        [MonitorAction::SetMaxDowntime(MAX_DOWNTIME_MS)]
    );
    let post_copy = Rules {
        allow_post_copy: true,
        ..disruption
    };
    assert_eq!(stalled(post_copy), [MonitorAction::StartPostCopy]);
}

#[test]
fn a_stalled_migration_waits_for_a_local_minimum() {
    let mut monitor = stall_monitor(rules());
    assert_eq!(
        actions(&mut monitor, &at(0, 4000)),
        [MonitorAction::SetMaxDowntime(300)]
    );
    assert_eq!(actions(&mut monitor, &iteration(1, 100)), []);
    assert_eq!(actions(&mut monitor, &iteration(12, 200)), []);
    assert_eq!(actions(&mut monitor, &iteration(13, 150)), []);
    // The rest takes one second at this bandwidth, which is allowed.
    assert_eq!(
        actions(&mut monitor, &iteration(14, 100)),
        [MonitorAction::SetMaxDowntime(1000)]
    );
    assert_eq!(actions(&mut monitor, &iteration(15, 100)), []);
    // The switchover has not begun in time.
    assert_eq!(actions(&mut monitor, &at(44, 100)), []);
    assert_eq!(actions(&mut monitor, &at(45, 100)), [MonitorAction::Abort]);
}

#[test]
fn the_best_value_is_forgotten_when_patience_ends() {
    let mut monitor = stall_monitor(rules());
    actions(&mut monitor, &at(0, 4000));
    actions(&mut monitor, &iteration(1, 50));
    assert_eq!(actions(&mut monitor, &iteration(12, 120)), []);
    assert_eq!(actions(&mut monitor, &iteration(15, 110)), []);
    assert_eq!(
        actions(&mut monitor, &iteration(22, 110)),
        [MonitorAction::SetMaxDowntime(1000)]
    );
}

#[test]
fn the_memory_that_qemu_pauses_for_is_reported() {
    let mut monitor = stall_monitor(rules());
    let paused = Sample {
        is_paused_to_migrate: true,
        ..at(1, 10)
    };
    actions(&mut monitor, &paused);
    assert_eq!(monitor.mode(), MigrationMode::Paused);
}

/// A migration with `downtimeTuning`.
fn tuned(rules: Rules, options: DowntimeTuning) -> Monitor {
    let options = MigrationOptions {
        downtime_tuning: Some(options),
        ..MigrationOptions::default()
    };
    Monitor::new(rules, &options)
}

fn in_pass(pass: u64, seconds: u64) -> Sample {
    let mut sample = at(seconds, 1000 - seconds);
    sample.stats = sample.stats.map(|stats| JobStats {
        memory_iteration: Some(pass),
        ..stats
    });
    sample
}

#[test]
fn the_downtime_rises_in_steps_from_the_third_pass_on_with_a_pause_after_each() {
    let mut monitor = tuned(rules(), DowntimeTuning::default());
    let mut found = Vec::new();
    for (pass, seconds) in [
        (1, 0),
        (2, 20),
        (3, 21),
        (3, 22),
        (4, 30),
        (4, 31),
        (5, 41),
        (6, 51),
    ] {
        found.extend(actions(&mut monitor, &in_pass(pass, seconds)));
    }
    // (1000 - 150) / 7 is 121.
    let expected = [150, 271, 392, 513, 634].map(MonitorAction::SetMaxDowntime);
    assert_eq!(found, expected);
}

#[test]
fn the_downtime_rises_to_the_allowed_one_at_most() {
    let options = DowntimeTuning {
        initial_ms: Some(900),
        steps: Some(0),
        start_after_iteration: Some(0),
        cooldown_seconds: Some(-1),
    };
    let mut monitor = tuned(rules(), options);
    let found: Vec<_> = (0..5)
        .flat_map(|seconds| actions(&mut monitor, &in_pass(0, seconds)))
        .collect();
    assert_eq!(found, [900, 1000].map(MonitorAction::SetMaxDowntime));
}

#[test]
fn a_downtime_that_was_refused_is_tried_again_and_help_comes_in_time_all_the_same() {
    let mut monitor = tuned(rules(), DowntimeTuning::default());
    let refused = |monitor: &mut Monitor, sample: &Sample| {
        let decision = monitor.observe(sample)?;
        let next = monitor.performed(false).map(|decision| decision.action);
        Some((decision.action, next))
    };
    let first = refused(&mut monitor, &in_pass(3, 1));
    assert_eq!(first, Some((MonitorAction::SetMaxDowntime(150), None)));
    // From QEMU's own limit, which it still has.
    let second = refused(&mut monitor, &in_pass(3, 2));
    assert_eq!(second, Some((MonitorAction::SetMaxDowntime(421), None)));
    let late = refused(&mut monitor, &in_pass(3, 101));
    assert_eq!(
        late,
        Some((
            MonitorAction::SetMaxDowntime(421),
            Some(MonitorAction::Abort)
        ))
    );
}
