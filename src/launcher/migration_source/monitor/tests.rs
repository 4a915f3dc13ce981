//! Tests of single rules with their own samples.

use std::time::Duration;

use super::*;

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
        ewma_alpha: 0.4,
        precopy_possible_factor: 1.5,
        patience_window_decay_factor: 0.5,
        search_local_minima: true,
        completion_timeout_factor: 2.0,
    }
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
fn actions(monitor: &mut Monitor, sample: &Sample) -> Vec<Action> {
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
    let mut monitor = Monitor::new(rules(), None);
    for seconds in 0..100 {
        let found = actions(&mut monitor, &at(seconds, 1000 - seconds));
        assert_eq!(found, [], "{seconds}");
    }
    assert_eq!(monitor.mode(), Mode::PreCopy);
}

#[test]
fn a_stuck_migration_is_aborted_once() {
    let mut monitor = Monitor::new(rules(), None);
    assert_eq!(actions(&mut monitor, &at(1, 500)), []);
    assert_eq!(actions(&mut monitor, &at(21, 500)), []);
    assert_eq!(actions(&mut monitor, &at(22, 500)), [Action::Abort]);
    let aborting = Sample {
        is_aborting: true,
        ..at(23, 500)
    };
    assert_eq!(actions(&mut monitor, &aborting), []);
}

#[test]
fn a_late_migration_is_helped_as_far_as_that_is_allowed() {
    let late = at(101, 10);
    let done = |rules: Rules| {
        let mut monitor = Monitor::new(rules, None);
        (actions(&mut monitor, &late), monitor.mode())
    };
    assert_eq!(done(rules()), (vec![Action::Abort], Mode::PreCopy));
    let disruption = Rules {
        allow_disruption: true,
        ..rules()
    };
    assert_eq!(done(disruption), (vec![Action::Suspend], Mode::Paused));
    let post_copy = Rules {
        allow_post_copy: true,
        ..disruption
    };
    assert_eq!(
        done(post_copy),
        (vec![Action::StartPostCopy], Mode::PostCopy)
    );
    let vfio = Rules {
        has_vfio: true,
        ..post_copy
    };
    assert_eq!(
        done(vfio),
        (vec![Action::SetMaxDowntime(200_000)], Mode::Paused)
    );
}

#[test]
fn a_paused_migration_has_twice_the_time_and_one_in_post_copy_all_of_it() {
    let disruption = Rules {
        allow_disruption: true,
        progress_timeout: 0,
        ..rules()
    };
    let mut paused = Monitor::new(disruption, None);
    assert_eq!(actions(&mut paused, &at(101, 10)), [Action::Suspend]);
    assert_eq!(actions(&mut paused, &at(200, 10)), []);
    assert_eq!(actions(&mut paused, &at(201, 10)), [Action::Abort]);
    let post_copy = Rules {
        allow_post_copy: true,
        ..disruption
    };
    let mut post_copy = Monitor::new(post_copy, None);
    assert_eq!(
        actions(&mut post_copy, &at(101, 10)),
        [Action::StartPostCopy]
    );
    assert_eq!(actions(&mut post_copy, &at(100_000, 10)), []);
}

#[test]
fn help_that_fails_is_tried_again() {
    let disruption = Rules {
        allow_disruption: true,
        ..rules()
    };
    let mut monitor = Monitor::new(disruption, None);
    for seconds in [101, 102] {
        let decision = monitor.observe(&at(seconds, 10)).map(|it| it.action);
        assert_eq!(decision, Some(Action::Suspend));
        assert_eq!(monitor.performed(false), None);
        assert_eq!(monitor.mode(), Mode::PreCopy);
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
    let mut monitor = Monitor::new(endless, None);
    assert_eq!(actions(&mut monitor, &at(1_000_000, 10)), []);
}

/// A stalled migration: 400 MiB remain repeatedly, four seconds at this bandwidth.
fn stalled(rules: Rules) -> Vec<Action> {
    let mut monitor = Monitor::new(rules, Some(stalls()));
    assert_eq!(
        actions(&mut monitor, &at(0, 4000)),
        [Action::SetMaxDowntime(300)]
    );
    assert_eq!(actions(&mut monitor, &iteration(1, 400)), []);
    actions(&mut monitor, &iteration(11, 400))
}

#[test]
fn a_stalled_migration_switches_over_at_a_local_minimum_as_far_as_that_is_allowed() {
    assert_eq!(stalled(rules()), [Action::Abort]);
    let patient = Rules {
        max_downtime_ms: 3000,
        ..rules()
    };
    assert_eq!(stalled(patient), [Action::SetMaxDowntime(3000)]);
    let disruption = Rules {
        allow_disruption: true,
        ..rules()
    };
    assert_eq!(
        stalled(disruption),
        [Action::SetMaxDowntime(MAX_DOWNTIME_MS)]
    );
    let post_copy = Rules {
        allow_post_copy: true,
        ..disruption
    };
    assert_eq!(stalled(post_copy), [Action::StartPostCopy]);
}

#[test]
fn a_stalled_migration_waits_for_a_local_minimum() {
    let mut monitor = Monitor::new(rules(), Some(stalls()));
    assert_eq!(
        actions(&mut monitor, &at(0, 4000)),
        [Action::SetMaxDowntime(300)]
    );
    assert_eq!(actions(&mut monitor, &iteration(1, 100)), []);
    assert_eq!(actions(&mut monitor, &iteration(12, 200)), []);
    assert_eq!(actions(&mut monitor, &iteration(13, 150)), []);
    // The rest takes one second at this bandwidth, which is allowed.
    assert_eq!(
        actions(&mut monitor, &iteration(14, 100)),
        [Action::SetMaxDowntime(1000)]
    );
    assert_eq!(actions(&mut monitor, &iteration(15, 100)), []);
    // The switchover has not begun in time.
    assert_eq!(actions(&mut monitor, &at(44, 100)), []);
    assert_eq!(actions(&mut monitor, &at(45, 100)), [Action::Abort]);
}

#[test]
fn the_best_value_is_forgotten_when_patience_ends() {
    let mut monitor = Monitor::new(rules(), Some(stalls()));
    actions(&mut monitor, &at(0, 4000));
    actions(&mut monitor, &iteration(1, 50));
    assert_eq!(actions(&mut monitor, &iteration(12, 120)), []);
    assert_eq!(actions(&mut monitor, &iteration(15, 110)), []);
    assert_eq!(
        actions(&mut monitor, &iteration(22, 110)),
        [Action::SetMaxDowntime(1000)]
    );
}

#[test]
fn the_memory_that_qemu_pauses_for_is_reported() {
    let mut monitor = Monitor::new(rules(), Some(stalls()));
    let paused = Sample {
        is_paused_to_migrate: true,
        ..at(1, 10)
    };
    actions(&mut monitor, &paused);
    assert_eq!(monitor.mode(), Mode::Paused);
}
