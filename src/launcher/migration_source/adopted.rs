//! Adopts a migration that an earlier launcher has started and libvirt continues: reports its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::abort::{self, abort};
use super::error::{MigrationError, failure_reason};
use super::monitor::MigrationMode;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use crate::launcher::requests::pause_as_requested;
use crate::launcher::vm::{Job, JobKind};
use libvirt::{
    ChangeableDomain, Connection, DomainState, JobOperation, PausedReason, ShutoffReason, WhichJob,
};

/// Interval of checking the migration. libvirt reports its end only to the client that started it,
/// and that was the earlier launcher.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// libvirt's report on the migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The migration runs, in this mode as far as the domain's state tells.
    Running(MigrationMode),
    /// The guest runs on the target.
    HasLeft,
    /// The guest is still here or has ended. `is_post_copy`: a part of its memory is on the target.
    Failed { is_post_copy: bool },
}

pub(in crate::launcher) struct AdoptedMigration {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
}

impl AdoptedMigration {
    /// Follows an earlier launcher's migration, if there is one, to its end.
    // D-sup-16 (docs/differences.md).
    pub async fn run(self) {
        self.libvirt.vm.wait_until_shown().await;
        let Some(job) = self.libvirt.vm.take_adopted_job(JobKind::MigrationOut) else {
            return;
        };
        let uid = self
            .libvirt
            .vm
            .metadata()
            .unfinished_migration()
            .unwrap_or_default();
        tracing::info!(
            uid,
            "Following the migration that an earlier launcher has begun"
        );
        let job = Arc::new(job);
        let result = self.follow(&job).await;
        if result.is_err() {
            pause_as_requested(&self.libvirt, &job).await;
        }
        abort::end(&self.libvirt.vm, job).await;
        let is_aborted = self.libvirt.vm.metadata().has_migration_abort();
        let failure = result.err().map(|error| failure_reason(&error, is_aborted));
        tracing::info!(uid, reason = failure, "The adopted migration has ended");
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.migration_out_ended(&uid, failure));
    }

    async fn follow(&self, job: &Arc<Job>) -> Result<(), LauncherError> {
        let mut changes = self.libvirt.vm.metadata_changes();
        let mut aborting: JoinSet<bool> = JoinSet::new();
        let mut last = MigrationMode::PreCopy;
        loop {
            match self.libvirt.read("asking for the migration", seen).await {
                Ok(Seen::Running(mode)) => {
                    // A guest is paused for a moment at the end of each migration.
                    if mode == MigrationMode::PostCopy || mode == last {
                        self.report_mode(mode);
                    }
                    last = mode;
                }
                Ok(Seen::HasLeft) => return Ok(()),
                Ok(Seen::Failed { is_post_copy }) => {
                    if is_post_copy {
                        self.report_mode(MigrationMode::PostCopy);
                    }
                    return Err(MigrationError::LauncherRestarted.into());
                }
                // The loop tries again, as libvirt may be restarting.
                Err(error) => {
                    tracing::debug!(reason = %os::logging::chain(&error), "Could not read the migration's state");
                }
            }
            if let Some(aborted) = aborting.try_join_next() {
                let succeeded = matches!(aborted, Ok(true));
                let vm = &self.libvirt.vm;
                vm.change_metadata(|metadata| metadata.migration_abort_ended(succeeded));
            }
            if aborting.is_empty()
                && self.libvirt.vm.metadata().is_migration_aborting()
                && let Ok(Some(domain)) = self.found(job).await
            {
                aborting.spawn(abort(domain, job.clone()));
            }
            let _ = timeout(WATCH_INTERVAL, changes.changed()).await;
        }
    }

    async fn found(&self, job: &Job) -> Result<Option<ChangeableDomain>, LauncherError> {
        let permit = job.permit();
        let found = move |connection: &Connection, name: &str| {
            let domain = connection.lookup(name)?;
            Ok(domain.map(|domain| domain.changeable(&permit)))
        };
        self.libvirt.read("finding the domain", found).await
    }

    fn report_mode(&self, mode: MigrationMode) {
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.migration_mode(mode.as_str()));
    }
}

fn seen(connection: &Connection, name: &str) -> Result<Seen, LauncherError> {
    let Some(domain) = connection.lookup(name)? else {
        return Ok(Seen::Failed {
            is_post_copy: false,
        });
    };
    // The state is read last: it is the migration's result once the job is over.
    let is_running = domain.is_active()?
        && domain.job_state(WhichJob::Running)?.operation == JobOperation::MigrationOut;
    Ok(match domain.state()? {
        DomainState::Shutoff(ShutoffReason::Migrated) => Seen::HasLeft,
        // libvirt keeps the job of a failed post-copy.
        DomainState::Paused(PausedReason::PostcopyFailed) => Seen::Failed { is_post_copy: true },
        DomainState::Paused(PausedReason::Postcopy) if is_running => {
            Seen::Running(MigrationMode::PostCopy)
        }
        DomainState::Paused(PausedReason::Migration) if is_running => {
            Seen::Running(MigrationMode::Paused)
        }
        _ if is_running => Seen::Running(MigrationMode::PreCopy),
        _ => Seen::Failed {
            is_post_copy: false,
        },
    })
}
