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
use super::monitor::{Action, Decision, Monitor, Sample};
use super::progress;
use super::record::MigrationRecord;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{CHANGE_TIMEOUT, LibvirtDomain, blocking};
use crate::launcher::reads::observe;
use crate::launcher::vm::{Job, Vm};
use libvirt::{
    ChangeableDomain, DomainState, Event, JobStats, Migration, PausedReason, ShutoffReason,
};
use os::failpoints;

/// Interval of samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(400);
/// Number of samples for each logged one.
const SAMPLES_PER_LINE: u32 = 10;

/// A migration that is ready to start.
pub(super) struct Transfer<'a> {
    pub libvirt: &'a LibvirtDomain,
    pub vm: &'a Vm,
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
        if self.vm.metadata().is_migration_aborting() {
            return Err(MigrationError::Aborted.into());
        }
        match self.transfer(migration).await {
            Err(error) if error.is_connection_lost() && self.has_left().await => Ok(()),
            result => result,
        }
    }

    async fn transfer(&mut self, migration: Migration) -> Result<(), LauncherError> {
        let mut metadata = self.vm.metadata_changes();
        let domain = self.domain.clone();
        self.record.step("transfer");
        let mut call = pin!(blocking("migrating the domain", move || {
            Ok(domain.migrate(&migration)?)
        }));
        let mut sampling: Option<JoinHandle<Seen>> = None;
        let mut aborting: JoinSet<bool> = JoinSet::new();
        let mut next_sample = self.began;
        let mut samples = 0;
        loop {
            tokio::select! {
                biased;
                result = &mut call => {
                    self.record.step("returned");
                    return result;
                }
                seen = finished(&mut sampling) => if let Some(seen) = seen {
                    samples += u32::from(!seen.is_iteration);
                    self.follow(seen, samples).await;
                },
                Some(aborted) = aborting.join_next() => self.set_abort_status(matches!(aborted, Ok(true))),
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
            if aborting.is_empty() && self.vm.metadata().is_migration_aborting() {
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
    async fn follow(&mut self, seen: Seen, samples: u32) {
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
            is_aborting: self.vm.metadata().has_migration_abort(),
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
        self.vm
            .change_metadata(|metadata| metadata.migration_mode(mode.as_str()));
    }

    /// Carries out what the monitor decided (`virDomainMigrateStartPostCopy`,
    /// `virDomainMigrateSetMaxDowntime`, `virDomainSuspend`).
    async fn perform(&self, Decision { action, why }: Decision) -> bool {
        tracing::info!(?action, %why, "Steering the migration");
        let (libvirt, permit) = (self.libvirt, self.job.permit());
        let done = match action {
            Action::Abort => {
                abort::request(self.vm);
                return true;
            }
            Action::StartPostCopy => {
                let start =
                    |domain: Option<ChangeableDomain>| Ok(found(domain)?.start_post_copy()?);
                libvirt.change(&permit, "starting post-copy", start).await
            }
            Action::SetMaxDowntime(ms) => {
                let downtime = Duration::from_millis(ms);
                let set = move |domain: Option<ChangeableDomain>| {
                    Ok(found(domain)?.set_max_downtime(downtime)?)
                };
                libvirt
                    .change(&permit, "setting the maximum downtime", set)
                    .await
            }
            // D-mig-6 (docs/differences.md).
            Action::Suspend => {
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
        self.vm
            .change_metadata(|metadata| metadata.migration_abort_ended(succeeded));
    }

    /// Whether the guest had left when libvirt's daemon ended in the middle of the migration.
    // D-mig-5 (docs/differences.md).
    async fn has_left(&self) -> bool {
        let mut connections = self.libvirt.connections();
        let mut seen = observe(self.libvirt).await;
        // The target's daemon may have ended instead: libvirt's error is the same for both.
        if seen.as_ref().is_err_and(LauncherError::is_connection_lost) {
            // If no new connection comes in time, the guest's state is unknown.
            let Ok(Ok(())) = timeout(CHANGE_TIMEOUT, connections.changed()).await else {
                return false;
            };
            seen = observe(self.libvirt).await;
        }
        matches!(seen, Ok(Some(seen)) if seen.state == DomainState::Shutoff(ShutoffReason::Migrated))
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
