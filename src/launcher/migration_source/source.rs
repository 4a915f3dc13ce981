//! `MigrateVirtualMachine`, `CancelVirtualMachineMigration`: starts, aborts, ends a migration.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::Receiver;
use tokio::time::{Instant, timeout};

use super::document::{self, size_of_files};
use super::error::{MigrationError, failure_reason};
use super::monitor::{Monitor, MonitorAction, Rules};
use super::record::MigrationRecord;
use super::transfer::Transfer;
use super::{abort, plugins, sriov};
use crate::launcher::admit::look;
use crate::launcher::conversion::ConversionWithHooks;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{LibvirtDomain, blocking, within};
use crate::launcher::metadata_copy;
use crate::launcher::vm::{Job, JobKind};
use api::migration_options::MigrationOptions;
use api::proto::inspect::v1::MigrationBegan;
use api::vmi::Vmi;
use convert::migration::data_size_gigabytes;
use domain::metadata::MigrationMetadata;
use libvirt::{ChangeableDomain, Event, JobStats, Migration};
use os::failpoints;
use prost::bytes::Bytes;

/// Limit for libvirt to take the migration's metadata before virt-handler sees them.
const COPY_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of reading libvirt's final statistics, which must not delay the report of the end.
const COMPLETED_JOB_TIMEOUT: Duration = Duration::from_millis(50);
/// A functional test of KubeVirt sets this annotation to make the migration fail.
const FORCE_FAILURE: &str = "kubevirt.io/func-test-force-launcher-migration-failure";

/// The input of `MigrateVirtualMachine`.
#[derive(Debug)]
pub struct MigrateRequest {
    pub vmi: Arc<Vmi>,
    /// The VMI as received; plugins get these bytes.
    pub vmi_json: Bytes,
    pub options: MigrationOptions,
}

pub struct MigrationSource {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    pub(in crate::launcher) conversion: Arc<ConversionWithHooks>,
    pub(in crate::launcher) flags: pod::LauncherFlags,
    pub(in crate::launcher) events: broadcast::Sender<Event>,
    /// The record of the last migration.
    pub record: Arc<MigrationRecord>,
}

impl MigrationSource {
    /// `MigrateVirtualMachine`: starts the migration (a node's evacuation comes as one, too). A
    /// second call for the same migration (same UID) does nothing. The metadata get its result.
    ///
    /// # Errors
    /// The migration must not start now, or it has already ended.
    // D-mig-4 (docs/differences.md).
    pub async fn begin(self: &Arc<Self>, request: MigrateRequest) -> Result<(), LauncherError> {
        let uid = migration_uid(&request.vmi)?.to_owned();
        look(&self.libvirt.vm).await?;
        // There is no await from here to the metadata, so only one of several requests starts it.
        if has_begun(self.libvirt.vm.metadata().migration(), &uid)? {
            return Ok(());
        }
        let job = self.libvirt.vm.begin(JobKind::MigrationOut)?;
        self.record.begin(began(&uid, &request.options));
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.migration_out_began(&uid));
        tokio::spawn(self.clone().run(Arc::new(job), request, uid));
        Ok(())
    }

    /// Requests the abort of the migration in progress. The metadata get the result. Does nothing
    /// if no migration is in progress, or if it is being aborted.
    pub fn cancel(&self) {
        if abort::request(&self.libvirt.vm) {
            let why = "CancelVirtualMachineMigration was called".to_owned();
            self.record.decision(MonitorAction::Abort, why, true);
        } else {
            tracing::info!(
                "cancel migration ignored: the VMI is not migrating, or is being aborted already"
            );
        }
    }

    async fn run(self: Arc<Self>, job: Arc<Job>, request: MigrateRequest, uid: String) {
        let (this, its_job, its_uid) = (self.clone(), job.clone(), uid.clone());
        // The migration has a task of its own, so that a panic ends only this migration.
        let mut work =
            tokio::spawn(async move { this.migrate(&its_job, &request, &its_uid).await });
        let ended = timeout(COPY_TIMEOUT, &mut work).await;
        self.libvirt.vm.show_migration();
        let ended = match ended {
            Ok(ended) => ended,
            Err(_) => work.await,
        };
        let what = "the migration";
        let result = ended.unwrap_or(Err(LauncherError::Worker { what }));
        self.record.set_progress(None);
        failpoints::hit("migration.transferred");
        match &result {
            Ok(()) => tracing::info!("Live migration succeeded."),
            Err(error) => {
                tracing::error!(reason = %os::logging::chain(error), "Live migration failed.");
            }
        }
        // The job ends first: once virt-handler sees the end, other requests are admitted.
        abort::end(&self.libvirt.vm, job).await;
        let is_aborted = self.libvirt.vm.metadata().has_migration_abort();
        let failure = result.err().map(|error| failure_reason(&error, is_aborted));
        let completed = if failure.is_none() {
            self.completed_job().await
        } else {
            None
        };
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.migration_out_ended(&uid, failure.clone()));
        self.record.ended(failure, completed.as_ref());
    }

    /// libvirt's final statistics of the migration, if they arrive in time.
    async fn completed_job(&self) -> Option<JobStats> {
        let what = "reading what the migration took";
        let read = self.libvirt.read(what, |connection, name| {
            let domain = connection.lookup(name)?.ok_or(LauncherError::NoDomain)?;
            Ok(domain.completed_job_stats()?)
        });
        let read = within(what, COMPLETED_JOB_TIMEOUT, read).await;
        let log = |error: &LauncherError| {
            tracing::debug!(reason = %os::logging::chain(error), "{what} failed");
        };
        read.inspect_err(log).ok()
    }

    async fn migrate(
        &self,
        job: &Arc<Job>,
        request: &MigrateRequest,
        uid: &str,
    ) -> Result<(), LauncherError> {
        let MigrateRequest { vmi, options, .. } = request;
        if vmi.metadata.annotations.contains_key(FORCE_FAILURE) {
            return Err(MigrationError::FunctionalTest.into());
        }
        tracing::info!("Initiating live migration.");
        if options.unsafe_migration {
            tracing::info!(
                "UNSAFE_MIGRATION flag is set, libvirt's migration checks will be disabled!"
            );
        }
        let began = Instant::now();
        let mut events = self.events.subscribe();
        // D-mig-10 (docs/differences.md).
        let (domain, migration) = tokio::select! {
            prepared = self.prepare(job, request, &mut events) => prepared?,
            () = abort::wait_for_request(&self.libvirt.vm) => return Err(MigrationError::Aborted.into()),
        };
        let options = &MigrationOptions {
            allow_post_copy: migration.post_copy,
            ..options.clone()
        };
        let dir = self.flags.root.path(&self.flags.ephemeral_disk_dir);
        let what = "measuring the pod's disks";
        let files = blocking(what, move || Ok(size_of_files(&dir))).await?;
        let rules = Rules::new(options, vmi, data_size_gigabytes(vmi, files)?);
        let transfer = Transfer {
            libvirt: &self.libvirt,
            record: &self.record,
            job,
            domain,
            uid,
            began,
            events,
            monitor: Monitor::new(rules, options),
        };
        transfer.run(migration).await
    }

    /// Builds libvirt's parameters of the migration and lets plugins change them.
    async fn prepare(
        &self,
        job: &Job,
        request: &MigrateRequest,
        events: &mut Receiver<Event>,
    ) -> Result<(ChangeableDomain, Migration), LauncherError> {
        let (vmi, options) = (&request.vmi, &request.options);
        let (domain, migration) = self.detach_and_build(job, vmi, options, events).await?;
        let migration = plugins::run(&self.conversion, &request.vmi_json, &domain, migration);
        Ok((domain.clone(), migration.await?))
    }

    /// Writes the metadata to the domain, detaches the SR-IOV devices and builds libvirt's
    /// parameters. No other change may come in between. This waits for its turn without a limit: no
    /// caller waits.
    async fn detach_and_build(
        &self,
        job: &Job,
        vmi: &Vmi,
        options: &MigrationOptions,
        events: &mut Receiver<Event>,
    ) -> Result<(ChangeableDomain, Migration), LauncherError> {
        let what = "preparing the migration";
        let turn = job.turn().await;
        let found = self
            .libvirt
            .change(&turn, what, |domain| domain.ok_or(LauncherError::NoDomain));
        let domain = found.await?;
        // Once the domain is leaving, libvirt accepts no metadata. A later launcher learns of the
        // migration from this copy.
        if let Err(error) = metadata_copy::write(&self.libvirt, &turn).await {
            tracing::debug!(reason = %os::logging::chain(&error), "The domain's XML does not have the migration's metadata");
        }
        self.libvirt.vm.show_migration();
        sriov::detach(&domain, turn.clone(), events).await?;
        let (flags, vmi, options) = (self.flags.clone(), vmi.clone(), options.clone());
        blocking(what, move || {
            let migration = document::migration(&domain, &flags, &vmi, &options)?;
            Ok((domain, migration))
        })
        .await
    }
}

/// `launcherctl`'s view of the request.
fn began(uid: &str, options: &MigrationOptions) -> MigrationBegan {
    MigrationBegan {
        uid: uid.to_owned(),
        max_downtime_ms: options.max_downtime_ms,
        bandwidth_limit: options.bandwidth.bytes().unwrap_or(0),
        ..MigrationBegan::default()
    }
}

/// The UID of the requested migration.
///
/// # Errors
/// A backup is in progress, or there is no migration yet.
fn migration_uid(vmi: &Vmi) -> Result<&str, MigrationError> {
    let tracking = vmi.status.changed_block_tracking.as_ref();
    if let Some(backup) = tracking.and_then(|tracking| tracking.backup_status.as_ref()) {
        return Err(MigrationError::Backup(backup.backup_name.clone()));
    }
    let state = vmi.status.migration_state.as_ref();
    Ok(state.ok_or(MigrationError::NotReady)?.source_uid())
}

/// Whether this migration has begun. Refuses one that has ended: it is not started again.
fn has_begun(last: Option<&MigrationMetadata>, uid: &str) -> Result<bool, MigrationError> {
    let Some(last) = last.filter(|last| last.uid == uid) else {
        return Ok(false);
    };
    if last.end_timestamp.is_none() {
        return Ok(true);
    }
    let outcome = if last.failed {
        format!("failed: {}", last.failure_reason)
    } else {
        "succeeded".to_owned()
    };
    Err(MigrationError::AlreadyExecuted {
        uid: uid.to_owned(),
        outcome,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use domain::metadata::Time;

    fn uid(status: Value) -> Result<String, String> {
        let vmi: Vmi = serde_json::from_value(json!({"status": status})).unwrap();
        let uid = migration_uid(&vmi).map(ToOwned::to_owned);
        uid.map_err(|error| error.to_string())
    }

    #[test]
    fn a_migration_is_known_by_the_sources_uid() {
        let state = json!({"migrationUid": "m-1"});
        assert_eq!(uid(json!({"migrationState": state})).unwrap(), "m-1");
        let state = json!({"migrationUid": "m-1", "sourceState": {"migrationUID": "m-2"}});
        assert_eq!(uid(json!({"migrationState": state})).unwrap(), "m-2");
    }

    #[test]
    fn neither_a_backup_nor_a_migration_that_is_not_ready_begins() {
        let refused = uid(json!({})).unwrap_err();
        assert_eq!(refused, "cannot migrate VMI until migrationState is ready");
        let tracking = json!({"backupStatus": {"backupName": "b-1"}});
        let refused = uid(json!({"changedBlockTracking": tracking, "migrationState": {}}));
        let expected = "cannot migrate VMI until backup b-1 is completed";
        assert_eq!(refused.unwrap_err(), expected);
    }

    #[test]
    fn a_migration_runs_once() {
        let mut last = MigrationMetadata {
            uid: "m-1".into(),
            ..MigrationMetadata::default()
        };
        assert!(!has_begun(None, "m-1").unwrap());
        assert!(!has_begun(Some(&last), "m-2").unwrap());
        assert!(has_begun(Some(&last), "m-1").unwrap());
        last.end_timestamp = Some(Time::now());
        assert!(has_begun(Some(&last), "m-1").is_err());
        assert!(!has_begun(Some(&last), "m-2").unwrap());
    }
}
