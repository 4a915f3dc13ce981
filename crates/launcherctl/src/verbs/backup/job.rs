//! A backup from its start to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use crate::error::{CtlError, fail, text_error};
use crate::json::{copy_at, is_true_at, text_at};
use crate::view::output::{Format, print_error, say};
use crate::view::size_progress::SizeProgress;
use api::backup::BackupOptions;
use client::{CallError, Client, DomainChanges};
use os::signals::EndSignals;

/// Interval of updates on the written size.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// A backup has ended without its files.
#[derive(Debug, thiserror::Error)]
enum BackupError {
    /// QEMU or libvirt failed.
    #[error("the backup has failed, and its files are removed: {0}")]
    Failed(String),
    /// By a signal.
    #[error("the backup is cancelled, and its files are removed; the guest runs on")]
    Cancelled,
}

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
    pub async fn run(mut self, format: Format) -> Result<Value, CtlError> {
        if let Err(error) = self.client.backup(&self.vmi, &self.options).await
            && !self.has_begun().await
        {
            remove_if_empty(self.directory.parent());
            return Err(self.not_begun(error));
        }
        let ended = self.follow(format).await;
        let error = ended.as_ref().err().and_then(CtlError::of);
        if let Some(BackupError::Failed(_) | BackupError::Cancelled) = error {
            // What QEMU has left is useless.
            let _ = fs::remove_dir_all(&self.directory);
            remove_if_empty(self.directory.parent());
        }
        ended
    }

    /// A start that takes longer than the call continues.
    async fn has_begun(&self) -> bool {
        let domain = self.client.domain().await.ok().flatten();
        domain.is_some_and(|domain| self.report(&domain).is_some())
    }

    fn not_begun(&self, error: CallError) -> CtlError {
        match &self.options.incremental {
            Some(checkpoint) => text_error!(
                "the incremental backup has not begun. If the VM was started anew or migrated since {checkpoint}, make a full backup, without --incremental. The launcher says"
            )
            .caused_by(error)
            .into(),
            None => error.into(),
        }
    }

    async fn follow(&mut self, format: Format) -> Result<Value, CtlError> {
        let mut progress = SizeProgress::new(format);
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                change = self.changes.next() => {
                    let Some(domain) = change?.flatten() else {
                        fail!(
                            "the guest or its launcher has ended during the backup; {} is not complete: remove it, and make another backup when the VM runs again",
                            self.directory.display()
                        );
                    };
                    match self.report(&domain) {
                        Some(report) if is_true_at(&report, "/Completed") => return outcome(report, is_cancelled),
                        _ => {}
                    }
                }
                _ = self.stop.next() => {
                    if is_cancelled {
                        fail!(
                            "the backup may go on without launcherctl; what it writes into {} is not complete: remove it when launcherctl domain says under Backup that it has ended",
                            self.directory.display()
                        );
                    }
                    is_cancelled = true;
                    say("cancelling the backup, whose files are then removed, unless it is complete before; the guest runs on. Ctrl-C again does not wait");
                    if let Some(ended) = self.abort().await? {
                        return outcome(ended, is_cancelled);
                    }
                }
                _ = ticks.tick() => progress.show(written(&self.directory)),
            }
        }
    }

    /// Aborts it. Returns the report if it was already over; otherwise its end follows.
    async fn abort(&self) -> Result<Option<Value>, CtlError> {
        let abort = BackupOptions {
            cmd: "Abort".into(),
            ..self.options.clone()
        };
        let Err(error) = self.client.backup(&self.vmi, &abort).await else {
            return Ok(None);
        };
        let domain = self.client.domain().await?;
        let report = domain.and_then(|domain| self.report(&domain));
        match report {
            Some(report) if is_true_at(&report, "/Completed") => Ok(Some(report)),
            // It ends by itself.
            Some(_) => {
                print_error(Format::Text, &os::logging::chain(&error), &[]);
                Ok(None)
            }
            None => Err(error.into()),
        }
    }

    /// The domain's report on this backup.
    fn report(&self, domain: &Value) -> Option<Value> {
        let report = copy_at(domain, "/Spec/Metadata/KubeVirt/Backup");
        let is_ours = text_at(&report, "/Name") == self.options.backup_name
            && Some(text_at(&report, "/StartTimestamp"))
                == self.options.backup_start_time.as_deref();
        is_ours.then_some(report)
    }
}

fn outcome(report: Value, is_cancelled: bool) -> Result<Value, CtlError> {
    if !is_true_at(&report, "/Failed") {
        return Ok(report);
    }
    if is_cancelled {
        return Err(BackupError::Cancelled.into());
    }
    Err(BackupError::Failed(text_at(&report, "/BackupMsg").to_owned()).into())
}

/// Removes the VM's directory, which the launcher makes for its first backup, if it has no other
/// backup.
fn remove_if_empty(directory: Option<&Path>) {
    if let Some(directory) = directory {
        let _ = fs::remove_dir(directory);
    }
}

/// Bytes of all files in a directory.
fn written(directory: &Path) -> u64 {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = files.filter_map(|file| file.metadata().ok());
    sizes.map(|metadata| metadata.len()).sum()
}
