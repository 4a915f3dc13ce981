//! The schedule of polls. Pure: time comes from outside.
//!
//! Each poll runs at once. Once it is answered, it runs at its configured interval. Until then it
//! runs again after 10 s, and then at intervals that double up to the configured one. So does the
//! poll of the interfaces, also when it is answered: a new guest gets its addresses late. A wake-up
//! serves all due polls, and also those that would soon need a wake-up of their own.

use std::time::Duration;

use tokio::time::Instant;

use domain::guest_agent::FreezeStatus;
use pod::LauncherFlags;

/// A poll's first interval, unless the configured one is shorter.
const FIRST_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of polling the freeze status while file systems are thawed: only the launcher freezes.
// D-agent-1 (docs/differences.md).
const THAWED_INTERVAL: Duration = Duration::from_secs(120);
/// Interval of polling the users while nobody reads them.
// D-agent-1 (docs/differences.md).
const UNREAD_INTERVAL: Duration = Duration::from_secs(60);
/// First and longest delay before a silent agent is polled again.
const SILENCE_DELAYS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

/// The kinds of polls, by the data that they ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Poll {
    /// The agent's version and commands.
    Agent,
    /// Mounted file systems.
    Filesystems,
    /// Whether file systems are frozen.
    FreezeStatus,
    /// Interfaces with their addresses.
    Interfaces,
    /// Operating system, host name, time zone and load average.
    System,
    /// Users who are logged in.
    Users,
}

/// The times of one poll.
#[derive(Debug)]
struct Entry {
    poll: Poll,
    /// Longest time between two polls.
    interval: Duration,
    /// The interval that currently applies.
    present: Duration,
    asked: Instant,
    due: Instant,
}

impl Entry {
    /// Records that the poll runs now.
    fn take(&mut self, now: Instant, thawed: bool, read: bool) {
        self.asked = now;
        self.due = after(now, self.present);
        self.present = self.present.saturating_mul(2).min(self.interval);
        match self.poll {
            Poll::FreezeStatus if thawed => {
                self.due = self.due.max(after(now, THAWED_INTERVAL));
            }
            Poll::Users if !read => self.due = self.due.max(after(now, UNREAD_INTERVAL)),
            _ => {}
        }
    }

    /// Whether the poll may run now, before it is due, to save a wake-up.
    fn may_be_early(&self, now: Instant) -> bool {
        let early = self.due.saturating_duration_since(now);
        early <= self.present.checked_div(4).unwrap_or_default()
    }
}

#[derive(Debug)]
pub(super) struct Schedule {
    entries: Vec<Entry>,
    /// Delay before the next poll if the agent is silent now.
    silence_delay: Duration,
    /// Nothing is due before this time.
    not_before: Instant,
}

impl Schedule {
    /// All polls are due now. Flags such as `--qemu-agent-sys-interval` have their intervals.
    pub fn begin(flags: &LauncherFlags, now: Instant) -> Self {
        let entries = [
            (Poll::Interfaces, flags.qemu_agent_sys_interval),
            (Poll::System, flags.qemu_agent_sys_interval),
            (Poll::Agent, flags.qemu_agent_version_interval),
            (Poll::FreezeStatus, flags.qemu_fsfreeze_status_interval),
            (Poll::Filesystems, flags.qemu_agent_file_interval),
            (Poll::Users, flags.qemu_agent_user_interval),
        ];
        let entry = |(poll, interval): (Poll, Duration)| {
            // A flag of zero would poll without a pause.
            let interval = interval.max(Duration::from_secs(1));
            Entry {
                poll,
                interval,
                present: interval.min(FIRST_INTERVAL),
                asked: now,
                due: now,
            }
        };
        Self {
            entries: entries.into_iter().map(entry).collect(),
            silence_delay: SILENCE_DELAYS.0,
            not_before: now,
        }
    }

    /// When the next poll is due.
    pub fn next(&self) -> Instant {
        let first = self.entries.iter().map(|entry| entry.due).min();
        first.unwrap_or(self.not_before).max(self.not_before)
    }

    /// Returns the due polls and schedules each one's next run: its current interval after `now`,
    /// or later if `freeze_status` is thawed or the users are not `read`.
    pub fn take_due(
        &mut self,
        now: Instant,
        freeze_status: Option<FreezeStatus>,
        read: bool,
    ) -> Vec<Poll> {
        let thawed = freeze_status == Some(FreezeStatus::Thawed);
        let mut taken = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| entry.due <= now) {
            entry.take(now, thawed, read);
            taken.push(entry.poll);
        }
        let is_taken = |entry: &&Entry| taken.contains(&entry.poll);
        let next = self.entries.iter().filter(is_taken).map(|entry| entry.due);
        let next = next.min().unwrap_or(now);
        for entry in &mut self.entries {
            if entry.may_be_early(now) && entry.due < next {
                entry.take(now, thawed, read);
                taken.push(entry.poll);
            }
        }
        taken
    }

    /// Notes that the agent answered these polls.
    // D-agent-1 (docs/differences.md).
    pub fn answered(&mut self, polls: &[Poll]) {
        self.silence_delay = SILENCE_DELAYS.0;
        for entry in &mut self.entries {
            if entry.poll != Poll::Interfaces && polls.contains(&entry.poll) {
                entry.present = entry.interval;
                entry.due = entry.due.max(after(entry.asked, entry.interval));
            }
        }
    }

    /// Notes a silent agent: all polls wait, longer each time. `unasked` were due and not made;
    /// they are due after the wait.
    pub fn silent(&mut self, now: Instant, unasked: &[Poll]) {
        self.not_before = after(now, self.silence_delay);
        self.silence_delay = self.silence_delay.saturating_mul(2).min(SILENCE_DELAYS.1);
        let entries = self.entries.iter_mut();
        for entry in entries.filter(|entry| unasked.contains(&entry.poll)) {
            entry.due = self.not_before;
        }
    }

    /// Polls the changed freeze status at the configured interval from now on.
    pub fn freeze_status_changed(&mut self, now: Instant) {
        self.bring_forward(Poll::FreezeStatus, now);
    }

    /// Polls the users, which are read again, at the configured interval from now on.
    pub fn users_are_read(&mut self, now: Instant) {
        self.bring_forward(Poll::Users, now);
    }

    /// Makes the poll due one interval after its last run.
    fn bring_forward(&mut self, poll: Poll, now: Instant) {
        for entry in self.entries.iter_mut().filter(|entry| entry.poll == poll) {
            let due = after(entry.asked, entry.interval);
            entry.due = entry.due.min(due.max(now));
        }
    }
}

/// Adds without overflow.
fn after(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay)
        .unwrap_or_else(|| os::time::deadline(delay))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THAWED: Option<FreezeStatus> = Some(FreezeStatus::Thawed);
    const FROZEN: Option<FreezeStatus> = Some(FreezeStatus::Frozen);

    /// The polls of this many seconds, each with its second.
    fn play(seconds: u64, status: Option<FreezeStatus>, read: bool) -> Vec<(u64, Vec<Poll>)> {
        let begin = Instant::now();
        let mut schedule = Schedule::begin(&LauncherFlags::default(), begin);
        let mut wakes = Vec::new();
        loop {
            let now = schedule.next();
            let second = now.saturating_duration_since(begin).as_secs();
            if second >= seconds {
                return wakes;
            }
            let due = schedule.take_due(now, status, read);
            schedule.answered(&due);
            wakes.push((second, due));
        }
    }

    fn times(wakes: &[(u64, Vec<Poll>)], poll: Poll) -> Vec<u64> {
        let with = wakes.iter().filter(|(_, due)| due.contains(&poll));
        with.map(|(second, _)| *second).collect()
    }

    #[test]
    // D-agent-1 (docs/differences.md).
    fn all_is_polled_at_once_and_the_interfaces_soon_again() {
        let wakes = play(700, THAWED, true);
        assert_eq!(wakes.first().map(|(_, due)| due.len()), Some(6));
        assert_eq!(
            times(&wakes, Poll::Interfaces),
            [0, 10, 30, 70, 150, 270, 390, 510, 630]
        );
        assert_eq!(times(&wakes, Poll::System), [0, 120, 240, 360, 480, 600]);
        assert_eq!(times(&wakes, Poll::Filesystems), [0, 300, 600]);
    }

    #[test]
    fn what_is_not_answered_is_polled_soon_again() {
        let begin = Instant::now();
        let mut schedule = Schedule::begin(&LauncherFlags::default(), begin);
        let mut seconds = Vec::new();
        while seconds.len() < 5 {
            let now = schedule.next();
            let due = schedule.take_due(now, FROZEN, true);
            if due.contains(&Poll::Filesystems) {
                seconds.push(now.saturating_duration_since(begin).as_secs());
            }
            schedule.answered(&[Poll::FreezeStatus]);
        }
        assert_eq!(seconds, [0, 10, 30, 70, 150]);
    }

    #[test]
    fn one_wake_up_serves_all_that_is_due() {
        let wakes = play(600, THAWED, true);
        assert_eq!(wakes.len(), 60, "as often as users are asked for");
    }

    #[test]
    fn an_idle_guest_is_asked_once_a_minute() {
        let wakes = play(1200, THAWED, false);
        let late: Vec<u64> = wakes
            .iter()
            .map(|(second, _)| *second)
            .filter(|second| *second > 300)
            .collect();
        assert!(late.len() <= 16, "{late:?}");
        let interfaces = times(&wakes, Poll::Interfaces);
        assert!(interfaces.len() <= 14, "{interfaces:?}");
    }

    #[test]
    // D-agent-1 (docs/differences.md).
    fn users_that_nobody_reads_are_asked_for_every_minute() {
        assert_eq!(
            times(&play(200, THAWED, false), Poll::Users),
            [0, 60, 120, 180]
        );
        assert_eq!(times(&play(40, THAWED, true), Poll::Users), [0, 10, 20, 30]);
    }

    #[test]
    fn a_read_after_a_time_without_asks_for_the_users_at_once() {
        let begin = Instant::now();
        let mut schedule = Schedule::begin(&LauncherFlags::default(), begin);
        schedule.take_due(begin, THAWED, false);
        let later = after(begin, Duration::from_secs(25));
        schedule.take_due(later, THAWED, false);
        schedule.users_are_read(later);
        assert_eq!(schedule.take_due(later, THAWED, true), [Poll::Users]);
        schedule.users_are_read(later);
        assert_eq!(schedule.take_due(later, THAWED, true), []);
    }

    #[test]
    // D-agent-1 (docs/differences.md).
    fn frozen_file_systems_are_watched_at_the_flags_interval() {
        assert_eq!(
            times(&play(30, FROZEN, true), Poll::FreezeStatus),
            [0, 5, 10, 15, 20, 25]
        );
        assert_eq!(
            times(&play(300, THAWED, true), Poll::FreezeStatus),
            [0, 120, 240]
        );
    }

    #[test]
    fn a_freeze_ends_the_long_interval() {
        let begin = Instant::now();
        let mut schedule = Schedule::begin(&LauncherFlags::default(), begin);
        schedule.take_due(begin, THAWED, true);
        schedule.freeze_status_changed(begin);
        assert_eq!(schedule.next(), after(begin, Duration::from_secs(5)));
    }

    #[test]
    fn a_silent_agent_is_asked_less_and_less() {
        let begin = Instant::now();
        let mut schedule = Schedule::begin(&LauncherFlags::default(), begin);
        let mut asked = Vec::new();
        for _ in 0..6 {
            let now = schedule.next();
            asked.push(now.saturating_duration_since(begin).as_secs());
            let due = schedule.take_due(now, None, true);
            schedule.silent(now, &due);
        }
        assert_eq!(asked, [0, 10, 30, 70, 150, 270]);
        schedule.answered(&[]);
        let now = schedule.next();
        let due = schedule.take_due(now, None, true);
        assert_eq!(due.len(), 6, "what was not asked is still due");
        schedule.silent(now, &due);
        assert_eq!(schedule.next(), after(now, Duration::from_secs(10)));
    }

    #[test]
    fn an_interval_of_zero_does_not_spin() {
        let flags = LauncherFlags {
            qemu_agent_user_interval: Duration::ZERO,
            ..LauncherFlags::default()
        };
        let begin = Instant::now();
        let mut schedule = Schedule::begin(&flags, begin);
        schedule.take_due(begin, THAWED, true);
        assert_eq!(schedule.next(), after(begin, Duration::from_secs(1)));
    }
}
