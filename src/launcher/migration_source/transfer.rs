//! Makes libvirt's migration call and, until it returns, takes samples, carries out the monitor's
//! decisions, and aborts on request.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};

use super::abort::{self, abort};
use super::error::MigrationError;
use super::monitor::{Decision, Monitor, MonitorAction, Sample};
use super::progress;
use super::record::MigrationRecord;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{LibvirtDomain, blocking};
use crate::launcher::reads::observe;
use crate::launcher::requests::pause_as_requested;
use crate::launcher::vm::{Job, Observed};
use libvirt::{
    ChangeableDomain, DomainState, Event, JobStats, Migration, PausedReason, ShutoffReason,
};
use os::failpoints;

/// Interval of samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(400);
/// Limit for libvirt to say whether the guest has left: its daemon may be restarting, and is busy
/// after that. A migration that counts as failed costs the guest on the target.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay before libvirt is asked again, if it is not back on a new connection before.
const ANSWER_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of samples for each logged one.
const SAMPLES_PER_LINE: u32 = 10;

/// A migration that is ready to start.
pub(super) struct Transfer<'a> {
    pub libvirt: &'a LibvirtDomain,
    pub record: &'a MigrationRecord,
    pub job: &'a Arc<Job>,
    pub domain: ChangeableDomain,
    pub uid: &'a str,
    pub began: Instant,
    pub events: Receiver<Event>,
    pub monitor: Monitor,
}

/// libvirt's report on the migration.
struct Seen {
    stats: Result<JobStats, libvirt::Error>,
    state: Result<DomainState, libvirt::Error>,
    is_iteration: bool,
}

impl Transfer<'_> {
    /// Migrates. Returns when the guest runs on the target or the migration has failed.
    pub async fn run(mut self, migration: Migration) -> Result<(), LauncherError> {
        failpoints::hit("migration.prepared");
        if self.libvirt.vm.metadata().is_migration_aborting() {
            return Err(MigrationError::Aborted.into());
        }
        match self.transfer(migration).await {
            Err(error) if error.is_connection_lost() && self.has_left().await => Ok(()),
            Err(error) => {
                pause_as_requested(self.libvirt, self.job).await;
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    async fn transfer(&mut self, migration: Migration) -> Result<(), LauncherError> {
        let mut metadata = self.libvirt.vm.metadata_changes();
        let (domain, job) = (self.domain.clone(), self.job.clone());
        self.record.step("transfer");
        let mut call = pin!(blocking("migrating the domain", move || {
            let _job = job;
            Ok(domain.migrate(&migration)?)
        }));
        let mut sampling: Option<JoinHandle<Seen>> = None;
        let mut aborting: JoinSet<bool> = JoinSet::new();
        let mut next_sample = self.began;
        let mut samples = 0;
        loop {
            tokio::select! {
                // First, whether the migration has ended.
                biased;
                result = &mut call => {
                    self.record.step("returned");
                    return result;
                }
                seen = finished(&mut sampling) => if let Some(seen) = seen {
                    samples += u32::from(!seen.is_iteration);
                    self.take_sample(seen, samples).await;
                },
                Some(aborted) = aborting.join_next() => self.set_abort_status(matches!(aborted, Ok(true))),
                // Someone may have asked to abort, which is looked for below.
                _ = metadata.changed() => {}
                event = self.events.recv(), if sampling.is_none() && self.monitor.wants_iterations() => {
                    if matches!(event, Ok(Event::MigrationIteration { .. })) {
                        sampling = Some(self.sample(true));
                    }
                }
                () = sleep_until(next_sample), if sampling.is_none() => {
                    sampling = Some(self.sample(false));
                    next_sample = os::time::deadline(SAMPLE_INTERVAL);
                }
            }
            if aborting.is_empty() && self.libvirt.vm.metadata().is_migration_aborting() {
                aborting.spawn(abort(self.domain.clone(), self.job.clone()));
            }
        }
    }

    /// Asks libvirt for the progress (`virDomainGetJobStats`). The caller makes one query at a
    /// time. It has no time limit.
    fn sample(&self, is_iteration: bool) -> JoinHandle<Seen> {
        let domain = self.domain.clone();
        spawn_blocking(move || Seen {
            stats: domain.job_stats(),
            state: domain.state(),
            is_iteration,
        })
    }

    /// Passes a sample to the monitor and carries out its decisions.
    async fn take_sample(&mut self, seen: Seen, samples: u32) {
        let stats = seen
            .stats
            .inspect_err(|error| tracing::info!(reason = %error, "failed to get domain job info"));
        let stats = stats.ok();
        if let Some(stats) = stats.filter(|stats| stats.is_unbounded) {
            self.record.set_progress(Some(stats));
            if seen.is_iteration || samples.is_multiple_of(SAMPLES_PER_LINE) {
                tracing::info!("{}", progress::line(self.uid, &stats));
            }
        }
        let sample = Sample {
            elapsed: self.began.elapsed(),
            is_iteration: seen.is_iteration,
            stats,
            is_paused_to_migrate: matches!(
                seen.state,
                Ok(DomainState::Paused(PausedReason::Migration))
            ),
            is_aborting: self.libvirt.vm.metadata().has_migration_abort(),
        };
        let mut decision = self.monitor.observe(&sample);
        self.report_mode();
        // QEMU has started only once it knows the total.
        let known = sample.running().filter(|stats| stats.data_total > Some(0));
        if let Some(stats) = known {
            let mode = self.monitor.mode();
            self.record.sample(stats, mode, sample.is_paused_to_migrate);
        }
        while let Some(decided) = decision {
            let succeeded = self.perform(decided).await;
            let Decision { action, why } = decided;
            self.record.decision(action, why.to_string(), succeeded);
            decision = self.monitor.performed(succeeded);
            self.report_mode();
        }
    }

    fn report_mode(&self) {
        let mode = self.monitor.mode();
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.migration_mode(mode.as_str()));
    }

    /// Carries out what the monitor decided (`virDomainMigrateStartPostCopy`,
    /// `virDomainMigrateSetMaxDowntime`, `virDomainSuspend`).
    async fn perform(&self, Decision { action, why }: Decision) -> bool {
        tracing::info!(?action, %why, "Steering the migration");
        let (libvirt, permit) = (self.libvirt, self.job.permit());
        let done = match action {
            MonitorAction::Abort => {
                abort::request(&self.libvirt.vm);
                return true;
            }
            MonitorAction::StartPostCopy => {
                let start =
                    |domain: Option<ChangeableDomain>| Ok(found(domain)?.start_post_copy()?);
                libvirt.change(&permit, "starting post-copy", start).await
            }
            MonitorAction::SetMaxDowntime(ms) => {
                let downtime = Duration::from_millis(ms);
                let set = move |domain: Option<ChangeableDomain>| {
                    Ok(found(domain)?.set_max_downtime(downtime)?)
                };
                libvirt
                    .change(&permit, "setting the maximum downtime", set)
                    .await
            }
            // D-mig-6 (docs/differences.md).
            MonitorAction::Suspend => {
                let suspend = |domain: Option<ChangeableDomain>| Ok(found(domain)?.suspend()?);
                libvirt
                    .change(&permit, "pausing the guest for its migration", suspend)
                    .await
            }
        };
        if let Err(error) = &done {
            tracing::error!(reason = %os::logging::chain(error), ?action, "The migration could not be steered");
        }
        done.is_ok()
    }

    fn set_abort_status(&self, succeeded: bool) {
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.migration_abort_ended(succeeded));
    }

    /// Whether the guest had left (`VIR_DOMAIN_SHUTOFF_MIGRATED`) when libvirt's daemon ended in
    /// the middle of the migration.
    // D-mig-5 (docs/differences.md).
    async fn has_left(&self) -> bool {
        // If libvirt does not answer in time, the guest's state is unknown.
        let seen = timeout(ANSWER_TIMEOUT, answer(self.libvirt)).await;
        matches!(seen, Ok(Some(seen)) if seen.state == DomainState::Shutoff(ShutoffReason::Migrated))
    }
}

/// The domain, if libvirt knows it, as soon as libvirt answers.
async fn answer(libvirt: &LibvirtDomain) -> Option<Observed> {
    let mut connections = libvirt.connections();
    loop {
        match observe(libvirt).await {
            Ok(seen) => return seen,
            Err(error) => {
                tracing::info!(reason = %os::logging::chain(&error), "Could not read how the migration has ended");
            }
        }
        let _ = timeout(ANSWER_RETRY_DELAY, connections.changed()).await;
    }
}

fn found(domain: Option<ChangeableDomain>) -> Result<ChangeableDomain, LauncherError> {
    domain.ok_or(LauncherError::NoDomain)
}

/// Waits for a task, if any. `None` if it panicked.
async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> Option<T> {
    match task {
        Some(handle) => {
            let done = handle.await;
            *task = None;
            done.ok()
        }
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::libvirt_domain::MAX_READS;
    use crate::launcher::vm::Vm;
    use libvirt::{Connection, start_event_loop};

    #[tokio::test(start_paused = true)]
    async fn a_libvirt_that_is_busy_is_asked_again_how_the_migration_has_ended() {
        start_event_loop().unwrap();
        let connection = Connection::open("test:///default").unwrap();
        let vm = Vm::new("ns1", "vm1", "u-1", Arc::default());
        let libvirt = LibvirtDomain::new("test".into(), connection, vm);
        let reads = u32::try_from(MAX_READS).unwrap();
        let busy = libvirt.reads.clone().acquire_many_owned(reads).await;
        let hangs = async {
            tokio::time::sleep(Duration::from_secs(30)).await;
            drop(busy.unwrap());
        };
        let (seen, ()) = tokio::join!(answer(&libvirt), hangs);
        assert!(seen.is_some());
    }
}
