//! `MigrateVirtualMachine`: begins the migration, and reports its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::time::Instant;

use super::super::libvirt_domain::{CHANGE_TIMEOUT, blocking, within};
use super::super::vm::{Job, JobKind};
use super::super::{Launcher, LauncherError, lock, metadata_copy};
use super::MigrationError;
use super::document::{self, size_of_files};
use super::error::failure_reason;
use super::monitor::{Monitor, Rules};
use super::transfer::Transfer;
use api::migration_options::MigrationOptions;
use api::proto::inspect::v1::MigrationBegan;
use api::vmi::Vmi;
use convert::migration::data_size_gigabytes;
use domain::metadata::MigrationMetadata;
use libvirt::{Domain, Event, JobStats, Migration};
use os::failpoints;

/// What libvirt has measured is asked for before the end is reported, and must not delay that.
const COMPLETED_JOB_TIMEOUT: Duration = Duration::from_millis(50);
/// The wish of a functional test of KubeVirt's: the migration fails.
const FORCE_FAILURE: &str = "kubevirt.io/func-test-force-launcher-migration-failure";

impl Launcher {
    /// Begins the migration. Success says that it has begun, also if it had already; what becomes of it is in the metadata.
    ///
    /// # Errors
    /// It is not to be migrated now, or this migration has ended.
    // D-mig-4 (docs/differences.md).
    pub async fn migrate(
        self: &Arc<Self>,
        vmi: Arc<Vmi>,
        options: MigrationOptions,
    ) -> Result<(), LauncherError> {
        let uid = migration_uid(&vmi)?.to_owned();
        let what = "reading the domain for the first time";
        within(what, CHANGE_TIMEOUT, self.known()).await?;
        // No await from here to the metadata, so that of several requests one begins it.
        if has_begun(self.vm.metadata().migration(), &uid)? {
            return Ok(());
        }
        let job = self.vm.begin(JobKind::MigrationOut)?;
        self.migration_record.begin(began(&uid, &options));
        self.vm
            .change_metadata(|metadata| metadata.migration_out_began(&uid));
        tokio::spawn(self.clone().run_migration(job, vmi, options, uid));
        Ok(())
    }

    async fn run_migration(
        self: Arc<Self>,
        job: Job,
        vmi: Arc<Vmi>,
        options: MigrationOptions,
        uid: String,
    ) {
        let (launcher, of) = (self.clone(), uid.clone());
        // A task of its own, so that a panic is the end of this migration only.
        let work = tokio::spawn(async move { launcher.migrate_to_end(&vmi, &options, &of).await });
        let what = "the migration";
        let result = work.await.unwrap_or(Err(LauncherError::Worker { what }));
        lock(&self.statistics.migration).take();
        failpoints::hit("migration.transferred");
        match &result {
            Ok(()) => tracing::info!("Live migration succeeded."),
            Err(error) => {
                tracing::error!(reason = %os::logging::chain(error), "Live migration failed.");
            }
        }
        // With the document that shows the end, other requests are admitted again.
        drop(job);
        let is_aborted = self.vm.metadata().has_migration_abort();
        let failure = result.err().map(|error| failure_reason(&error, is_aborted));
        let completed = if failure.is_none() {
            self.completed_job().await
        } else {
            None
        };
        self.vm
            .change_metadata(|metadata| metadata.migration_out_ended(&uid, failure.clone()));
        self.migration_record.ended(failure, completed.as_ref());
    }

    /// What libvirt has measured of the migration that is over, if it says so in time.
    async fn completed_job(&self) -> Option<JobStats> {
        let what = "reading what the migration took";
        let read = self.domain.read(what, |connection, name| {
            let domain = connection.lookup(name)?.ok_or(LauncherError::NoDomain)?;
            Ok(domain.completed_job_stats()?)
        });
        let read = within(what, COMPLETED_JOB_TIMEOUT, read).await;
        let log = |error: &LauncherError| {
            tracing::debug!(reason = %os::logging::chain(error), "{what} failed");
        };
        read.inspect_err(log).ok()
    }

    async fn migrate_to_end(
        self: &Arc<Self>,
        vmi: &Vmi,
        options: &MigrationOptions,
        uid: &str,
    ) -> Result<(), LauncherError> {
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
        let mut events = self.libvirt_events.subscribe();
        // D-mig-10 (docs/differences.md).
        let (domain, migration) = tokio::select! {
            prepared = self.prepare_migration(vmi, options, &mut events) => prepared?,
            () = self.abort_requested() => return Err(MigrationError::Aborted.into()),
        };
        let dir = self
            .config
            .pod
            .root
            .path(&self.config.pod.ephemeral_disk_dir);
        let what = "measuring the pod's disks";
        let files = blocking(what, move || Ok(size_of_files(&dir))).await?;
        let rules = Rules::new(options, vmi, data_size_gigabytes(vmi, files)?);
        let transfer = Transfer {
            launcher: self,
            domain,
            uid,
            began,
            events,
            monitor: Monitor::new(rules, options.stall_detector_options.clone()),
        };
        transfer.run(migration).await
    }

    /// The domain as it can leave, and what libvirt is told. No other change may come between the two, and it waits for those
    /// that are in progress: there is no caller to whom it would take too long.
    async fn prepare_migration(
        &self,
        vmi: &Vmi,
        options: &MigrationOptions,
        events: &mut Receiver<Event>,
    ) -> Result<(Domain, Migration), LauncherError> {
        let what = "preparing the migration";
        let _turn = self.vm.turn().await;
        let found = self
            .domain
            .change(what, |domain| domain.ok_or(LauncherError::NoDomain));
        let domain = found.await?;
        // libvirt takes no copy any more once the domain leaves. By this one a later launcher knows of the migration.
        if let Err(error) = metadata_copy::write(self, self.vm.metadata().get()).await {
            tracing::debug!(reason = %os::logging::chain(&error), "the domain's XML does not say that it migrates");
        }
        self.detach_sriov(&domain, events).await?;
        let (config, vmi, options) = (self.config.clone(), vmi.clone(), options.clone());
        blocking(what, move || {
            let migration = document::migration(&domain, &config, &vmi, &options)?;
            Ok((domain, migration))
        })
        .await
    }
}

/// What `launcherctl` shows of the request.
fn began(uid: &str, options: &MigrationOptions) -> MigrationBegan {
    MigrationBegan {
        uid: uid.to_owned(),
        max_downtime_ms: options.max_downtime_ms,
        bandwidth_limit: options.bandwidth.bytes().unwrap_or(0),
        ..MigrationBegan::default()
    }
}

/// The migration that virt-handler asks for.
fn migration_uid(vmi: &Vmi) -> Result<&str, MigrationError> {
    let tracking = vmi.status.changed_block_tracking.as_ref();
    if let Some(backup) = tracking.and_then(|tracking| tracking.backup_status.as_ref()) {
        return Err(MigrationError::Backup(backup.backup_name.clone()));
    }
    let state = vmi.status.migration_state.as_ref();
    Ok(state.ok_or(MigrationError::NotReady)?.source_uid())
}

/// Whether the last migration is this one. One that has ended is not begun again.
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
    #![allow(clippy::unwrap_used)]
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
