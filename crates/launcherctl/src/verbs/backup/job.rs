//! A backup from its start to its end.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::error::{CtlError, fail, text_error};
use crate::view::output::{Format, print_error, say};
use api::backup::BackupOptions;
use client::{CallError, Client, DomainChanges};
use domain::Domain;
use domain::metadata::BackupMetadata;
use os::signals::EndSignals;
use terminal::progress::waiting;

/// A backup that the launcher makes.
pub struct Job {
    pub client: Client,
    pub vmi: Value,
    /// The options of its start.
    pub options: BackupOptions,
    pub changes: DomainChanges,
    pub stop: EndSignals,
    /// The directory of its files.
    pub directory: PathBuf,
}

impl Job {
    /// Starts it and follows it to its end. Returns the launcher's report.
    ///
    /// # Errors
    /// It does not start, fails, or is cancelled.
    pub async fn run(mut self) -> Result<BackupMetadata, CtlError> {
        if let Err(error) = self.client.backup(&self.vmi, &self.options).await {
            // A start that takes longer than the call continues.
            let domain = self.client.domain().await.ok().flatten();
            if domain.is_none_or(|domain| self.report(&domain).is_none()) {
                self.remove_empty_vm_directory();
                return Err(self.not_begun(error));
            }
        }
        let followed = waiting("QEMU to write the backup", None, self.follow()).await;
        let (report, is_cancelled) = followed?;
        if !report.failed {
            return Ok(report);
        }
        // What QEMU has left is useless.
        let _ = fs::remove_dir_all(&self.directory);
        self.remove_empty_vm_directory();
        if is_cancelled {
            fail!("the backup is cancelled, its files are removed, and the guest runs on");
        }
        fail!(
            "the backup has failed, and its files are removed: {}",
            report.backup_msg
        );
    }

    fn not_begun(&self, error: CallError) -> CtlError {
        match &self.options.incremental {
            Some(checkpoint) => text_error!(
                "the incremental backup has not begun. If the VM was started anew or migrated, or a disk attached again, since {checkpoint}, make a full backup, without --incremental. The launcher says"
            )
            .caused_by(error)
            .into(),
            None => error.into(),
        }
    }

    /// Follows it to its end. Returns its last report, and whether it was cancelled.
    async fn follow(&mut self) -> Result<(BackupMetadata, bool), CtlError> {
        let mut is_cancelled = false;
        loop {
            let report = tokio::select! {
                change = self.changes.next() => {
                    let Some(domain) = change?.flatten() else {
                        fail!(
                            "the guest or its launcher has ended during the backup; {} is not complete: remove it, and make another backup when the VM runs again",
                            self.directory.display()
                        );
                    };
                    self.report(&domain)
                }
                _ = self.stop.next() => {
                    if is_cancelled {
                        fail!(
                            "the backup may go on without launcherctl; what it writes into {} is not complete: remove it when launcherctl launcher domain shows under Backup that it has ended",
                            self.directory.display()
                        );
                    }
                    is_cancelled = true;
                    say("cancelling the backup, whose files are then removed, unless it is complete before; the guest runs on. Ctrl-C again does not wait");
                    self.abort().await?
                }
            };
            if let Some(ended) = report.filter(|report| report.completed) {
                return Ok((ended, is_cancelled));
            }
        }
    }

    /// Aborts it. Returns the report if that is refused: then it has ended, or ends by itself.
    async fn abort(&self) -> Result<Option<BackupMetadata>, CtlError> {
        let abort = BackupOptions {
            cmd: "Abort".into(),
            ..self.options.clone()
        };
        let Err(error) = self.client.backup(&self.vmi, &abort).await else {
            return Ok(None);
        };
        let domain = self.client.domain().await?;
        let Some(report) = domain.and_then(|domain| self.report(&domain)) else {
            return Err(error.into());
        };
        if !report.completed {
            print_error(Format::Text, &os::logging::chain(&error), &[]);
        }
        Ok(Some(report))
    }

    /// The domain's report on this backup.
    fn report(&self, domain: &Domain) -> Option<BackupMetadata> {
        let report = domain.spec.metadata.kube_virt.backup.clone()?;
        let started = report.start_timestamp.map(|started| started.0.to_string());
        let is_ours =
            report.name == self.options.backup_name && started == self.options.backup_start_time;
        is_ours.then_some(report)
    }

    /// Removes the VM's directory, which the launcher makes for its first backup, if it has no
    /// other backup.
    fn remove_empty_vm_directory(&self) {
        let _ = self.directory.parent().map(fs::remove_dir);
    }
}
