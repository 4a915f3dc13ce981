//! From a ready launcher to the end of QEMU.
//!
//! ```text
//!   ready ──(--qemu-timeout)──► defined ──(as long as libvirt takes)──► started ─► QEMU's process ─► stop
//!             a signal until here, or a failure, ends the start ──────────► the pod ends
//! ```

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};

use super::guest::LauncherGuest;
use super::standalone;
use super::start::RunningParts;
use super::start_error::StartError;
use super::stop;
use crate::cmd::sync_request;
use crate::launcher::{Launcher, Phase, Snapshot};
use api::pod_paths::NOTIFY_SOCKET;
use os::process::Process;
use os::signals::EndSignals;

/// Delay before QEMU's process is looked for again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Limit for libvirt to end a start. QEMU is killed then.
const START_END_TIMEOUT: Duration = Duration::from_secs(5);

/// How the wait for the start has ended.
enum StartWait {
    Started,
    /// Name of the signal.
    Signal(&'static str),
    Failed(StartError),
}

impl RunningParts {
    /// Runs from ready to the end of QEMU and its dependents.
    pub(super) async fn run(
        &self,
        standalone: Option<standalone::StandaloneVmi>,
        signals: &mut EndSignals,
    ) -> Result<(), StartError> {
        let flags = &self.launcher.config.flags;
        let guest = &LauncherGuest {
            launcher: self.launcher.clone(),
            is_standalone: standalone.is_some(),
            notify_socket: flags.shared(NOTIFY_SOCKET),
        };
        let find_qemu = || self.launcher.killer.find_qemu().ok();
        let end_start = || stop::end_start(guest, find_qemu, START_END_TIMEOUT);
        let waited = tokio::select! {
            started = self.start_domain(standalone, flags.qemu_timeout) => {
                started.map_or_else(StartWait::Failed, |()| StartWait::Started)
            }
            name = signals.next() => StartWait::Signal(name),
            () = self.launcher.migration_target.wait_for_cleanup_request() => {
                StartWait::Failed(StartError::MigrationGivenUp)
            }
        };
        // A guest that runs although its start was to end is followed to its end.
        let runs = matches!(waited, StartWait::Started) || end_start().await;
        match waited {
            StartWait::Signal(name) if runs => follow(guest, signals, Some(name)).await,
            StartWait::Signal(name) => tracing::info!("Received signal {name}"),
            StartWait::Failed(error) if !runs => return Err(error),
            StartWait::Failed(_) | StartWait::Started => follow(guest, signals, None).await,
        }
        Ok(())
    }

    /// Starts the VMI of `STANDALONE_VMI`, if set, and waits until the domain has started.
    async fn start_domain(
        &self,
        standalone: Option<standalone::StandaloneVmi>,
        limit: Duration,
    ) -> Result<(), StartError> {
        if let Some(vmi) = standalone {
            tracing::info!("Standalone mode: syncing VMI");
            let request = sync_request(&self.launcher, vmi.json).await;
            let request = request.map_err(StartError::StandaloneSync)?;
            let synced = self.launcher.syncs.sync_to_end(request).await;
            synced.map_err(|error| StartError::StandaloneSync(error.into()))?;
        }
        let may_come = || {
            let phase = self.launcher.vm.snapshot().phase;
            phase.is_hidden() && self.launcher.killer.find_qemu().is_ok()
        };
        let begin_timer = || time_for_domain(limit, may_come);
        wait_until_started(self.launcher.vm.subscribe(), begin_timer).await
    }
}

/// Follows the guest to the end of QEMU and its dependents. The first signal, which may have been
/// `received` already, ends it.
async fn follow(guest: &LauncherGuest, signals: &mut EndSignals, received: Option<&'static str>) {
    let (launcher, domain) = (&guest.launcher, &guest.launcher.libvirt.name);
    let grace = launcher.config.flags.grace_period.duration();
    let find_qemu = || launcher.killer.find_qemu().ok();
    let (qemu, mut received) = tokio::select! {
        found = wait_for_qemu(launcher), if received.is_none() => (found, None),
        name = signals.next(), if received.is_none() => (find_qemu(), Some(name)),
        else => (find_qemu(), received),
    };
    // With neither, the domain has ended already. A target that is given up has a QEMU that waits,
    // so that request is looked for only now.
    if qemu.is_some() || received.is_some() {
        let signal = async || match received.take() {
            Some(name) => name,
            None => signals.next().await,
        };
        tokio::select! {
            () = stop::follow(qemu.as_ref(), guest, signal, grace) => {}
            () = launcher.migration_target.wait_for_cleanup_request() => {
                tracing::info!("received early exit signal - stop waiting for {domain}");
                stop::end_failed_arrival(qemu.as_ref(), guest).await;
            }
        }
    }
    if let Some(qemu) = qemu {
        tracing::info!("Process {domain} and pid {} is gone!", qemu.pid());
    }
    stop::finish(guest).await;
}

/// Waits for the QEMU process of a started domain. `None` if the domain has ended already.
async fn wait_for_qemu(launcher: &Launcher) -> Option<Process> {
    let domain = &launcher.libvirt.name;
    let mut state = launcher.vm.subscribe();
    let has_ended = |vm: &Snapshot| matches!(vm.phase, Phase::Ended | Phase::Gone);
    while !has_ended(&state.borrow()) {
        match launcher.killer.find_qemu() {
            Ok(qemu) => {
                tracing::info!("Found PID for {domain}: {}", qemu.pid());
                return Some(qemu);
            }
            Err(error) => tracing::info!("Still missing PID for {domain}, {error}"),
        }
        // If QEMU exited while there was no launcher, libvirt is about to find out, and sends no
        // event.
        launcher.refresh();
        let _ = timeout(RETRY_DELAY, state.wait_for(has_ended)).await;
    }
    None
}

/// Waits for `limit`, and on as long as the domain `may_come`: QEMU runs, and libvirt does not show
/// the domain yet, such as one that arrives, for which an earlier launcher has prepared the pod.
async fn time_for_domain(limit: Duration, may_come: impl Fn() -> bool) {
    sleep_until(os::time::deadline(limit)).await;
    while may_come() {
        sleep(RETRY_DELAY).await;
    }
}

/// Waits until the domain has started. The domain must be defined before a timer ends. After that
/// the start may take as long as libvirt needs (hugepages, VFIO). A failed start may be repeated
/// until the end of a second timer, which begins with the first definition.
///
/// # Errors
/// [`StartError::NoDomain`].
async fn wait_until_started<T: Future<Output = ()>>(
    mut state: watch::Receiver<Snapshot>,
    begin_timer: impl Fn() -> T,
) -> Result<(), StartError> {
    wait_for_definition(&mut state, begin_timer()).await?;
    let mut time_for_retries = std::pin::pin!(begin_timer());
    loop {
        let has_ended = |vm: &Snapshot| vm.phase != Phase::Starting;
        let outcome = state.wait_for(has_ended).await;
        if outcome.is_ok_and(|vm| vm.phase.has_run()) {
            return Ok(());
        }
        wait_for_definition(&mut state, &mut time_for_retries).await?;
    }
}

/// Waits until the domain is defined or has run.
async fn wait_for_definition(
    state: &mut watch::Receiver<Snapshot>,
    timer: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let is_defined = |vm: &Snapshot| vm.phase == Phase::Starting || vm.phase.has_run();
    tokio::select! {
        biased;
        // An error means that the launcher has ended.
        defined = state.wait_for(is_defined) => defined.map(drop).map_err(|_| StartError::NoDomain),
        () = timer => Err(StartError::NoDomain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::Agent;
    use crate::launcher::tests::{TestLauncher, play};
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::task::Poll;

    fn snapshot(phase: Phase) -> Snapshot {
        Snapshot {
            generation: 1,
            phase,
            phase_since: jiff::Timestamp::now(),
            agent: Agent::Away,
            jobs: Vec::new(),
            document: None,
        }
    }

    /// The result of [`wait_until_started`] after these snapshots; `None` if it still waits. The
    /// first `timers` timers never end, the next one ends at once.
    async fn outcome(snapshots: &[Phase], timers: u32) -> Option<Result<(), StartError>> {
        let left = Cell::new(timers);
        let begin_timer = || {
            let is_endless = left.get() > 0;
            left.set(left.get().saturating_sub(1));
            async move {
                if is_endless {
                    pending().await
                }
            }
        };
        let (state, receiver) = watch::channel(snapshot(Phase::Absent));
        let mut waiting = Box::pin(wait_until_started(receiver, begin_timer));
        let mut polled = Poll::Pending;
        for phase in snapshots {
            state.send_replace(snapshot(*phase));
            let once = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context)));
            polled = once.await;
        }
        match polled {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_guest_that_has_not_been_shown_yet_is_not_over() {
        play(|| async {
            let mut test = TestLauncher::defined();
            let start = test.start_at_once();
            let launcher = test.launcher.clone();
            // This test has no pid file.
            let mut waiting = std::pin::pin!(wait_for_qemu(&launcher));
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("the guest runs"),
                event = test.handler.next() => assert_eq!(event, "ADDED Running"),
            }
            drop(start);
            test.domain().unwrap().destroy(false).unwrap();
            assert!(waiting.await.is_none());
        });
    }

    #[tokio::test(start_paused = true)]
    // D-sup-16 (docs/differences.md).
    async fn time_for_a_domain_does_not_end_while_it_may_come() {
        let (limit, begin) = (Duration::from_secs(180), tokio::time::Instant::now());
        let may_come = || begin.elapsed() < limit * 2;
        let begin_timer = || time_for_domain(limit, may_come);
        let (_state, receiver) = watch::channel(snapshot(Phase::Expected));
        let outcome = wait_until_started(receiver, begin_timer).await;
        assert!(matches!(outcome, Err(StartError::NoDomain)));
        assert_eq!(begin.elapsed(), limit * 2);
    }

    #[tokio::test]
    async fn a_domain_must_be_defined_in_time() {
        let preparing = [Phase::Preparing];
        assert!(outcome(&preparing, 1).await.is_none());
        assert!(matches!(
            outcome(&preparing, 0).await,
            Some(Err(StartError::NoDomain))
        ));
    }

    #[tokio::test]
    async fn a_definition_is_started_for_as_long_as_libvirt_takes() {
        let starting = Phase::Starting;
        assert!(outcome(&[starting], 0).await.is_none());
        let running = Phase::Running;
        assert!(matches!(
            outcome(&[starting, running], 0).await,
            Some(Ok(()))
        ));
    }

    #[tokio::test]
    async fn a_start_that_fails_may_be_repeated_for_as_long_again() {
        let starting = Phase::Starting;
        let failed = Phase::StartFailed;
        assert!(
            outcome(&[starting, failed, starting, failed], 2)
                .await
                .is_none()
        );
        assert!(matches!(
            outcome(&[starting, failed], 1).await,
            Some(Err(StartError::NoDomain))
        ));
    }
}
