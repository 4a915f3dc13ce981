//! `backup`: the disks of the running guest, as qcow2 files.
//!
//! ```text
//!   DIR/VM/backup-DATE/  backup-VOLUME.qcow2 …   QEMU writes them; those of an incremental backup are put on top of the last
//!                        backup.json             written when all is complete
//! ```
//!
//! QEMU does the work (push), so DIR is the launcher's: in a pod a path there, else reached by a
//! link below its root.

mod job;
mod left_out;
mod record;
mod records;
mod report;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use jiff::Timestamp;
use serde_json::json;

use super::target::{Target, check_processes};
use crate::error::{CtlError, RuntimeError, TextError, fail, text_error};
use crate::files::FileError;
use crate::host::vm_link::VmLink;
use crate::json::{set, text_at};
use crate::view::output::{Format, answer, say};
use api::backup::BackupOptions;
use client::is_down;
use convert::backup::BackupId;
use domain::Domain;
use domain::guest_agent::FreezeStatus;
use domain::metadata::Time;

use job::Job;
use left_out::{is_tracked, left_out};
use os::signals::EndSignals;
use record::Record;
use records::Records;

/// The quiesce status if the guest was already frozen.
const ALREADY_FROZEN: &str = "AlreadyFrozen";
/// Name of backups; the time tells them apart.
const NAME: &str = "backup";

/// The arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Directory for the backup, as the launcher sees it; it is made if its parent is there
    #[arg(value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// Only what has changed since the last complete backup in DIR, or since CHECKPOINT, which is
    /// the name of one
    #[arg(long, value_name = "CHECKPOINT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    incremental: Option<String>,
    /// Do not freeze the guest's file systems while the backup begins. Without this they are, if
    /// the guest agent can
    #[arg(long)]
    skip_quiesce: bool,
    #[command(flatten)]
    target: Target,
}

/// `backup`.
///
/// # Errors
/// If no guest runs, no disk is tracked, another job is in progress, or the backup fails or is
/// cancelled. Then there is none.
pub async fn backup(args: &BackupArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (vm_dir, client, vmi) = args.target.connect_to_vm().await?;
    check_processes(&vm_dir)?;
    let stop = EndSignals::listen().map_err(RuntimeError)?;
    let mut changes = client.domain_changes().await?;
    let domain = changes.next().await?.flatten();
    let running = domain.filter(|domain| !is_down(Some(domain)));
    let (Some(domain), Some(mut vmi)) = (running, vmi) else {
        fail!(
            "no guest runs, so there is nothing to back up; with the guest down, copy its images"
        );
    };
    let tracking = "/status/changedBlockTracking/state";
    set(&mut vmi, tracking, json!("Enabled"));
    let volumes = tracked_volumes(&domain);
    let left_out = left_out(&domain, &vmi);
    if volumes.is_empty() {
        fail!(
            "no disk of the VM tracks its changed blocks, so nothing can be backed up; start it with launcherctl run --track-changes, which tracks claims, data volumes and host disks. In a cluster, enable changed block tracking for the VM"
        );
    }
    if let Some(began) = in_progress(&domain) {
        fail!(
            "another backup of this VM, begun at {began}, is in progress; make this one when that has ended (launcherctl launcher domain shows it under Backup)"
        );
    }
    let is_frozen = domain.status.fs_freeze_status == Some(FreezeStatus::Frozen);
    if is_frozen && !args.skip_quiesce {
        say(
            "the guest's file systems are frozen already, and stay so until who froze them thaws them",
        );
    }
    let dir = open(&args.dir)?;
    // If the launcher has another root.
    let link = match vm_dir.root() == Path::new("/") {
        true => None,
        false => Some(VmLink::make(&vm_dir, "backup", &dir)?),
    };
    let target = link.as_ref().map(VmLink::pod_path);
    let target = target.unwrap_or_else(|| dir.display().to_string());
    let records = Records::read(&dir, text_at(&vmi, "/metadata/name"));
    let checkpoint = args.incremental.as_deref();
    let parent = checkpoint.map(|checkpoint| records.parent(checkpoint, &volumes));
    let parent = parent.transpose()?;
    if let Some(parent) = parent {
        records.check_chain(parent, &volumes)?;
    }
    let id = new_id(&records, &domain)?;
    let options = BackupOptions {
        backup_name: id.name.clone(),
        cmd: "Start".into(),
        mode: "Push".into(),
        backup_start_time: Some(id.started.0.to_string()),
        incremental: parent.map(|parent| parent.checkpoint.clone()),
        target_path: Some(target),
        // If the launcher froze the guest itself, its thaw would end somebody else's freeze.
        skip_quiesce: args.skip_quiesce || is_frozen,
        ..BackupOptions::default()
    };
    let directory = records.directory(&id.dated_name());
    let job = Job {
        client,
        vmi,
        options,
        changes,
        stop,
        directory: directory.clone(),
    };
    let ended = job.run().await?;
    let mut record = Record::of(&directory, ended, parent)?;
    if is_frozen {
        record.quiesce_status = ALREADY_FROZEN.to_owned();
    }
    if let Some(parent) = parent {
        record.chain_images(&directory, parent)?;
    }
    record.store(&directory)?;
    let json = report::json(&record, &directory, &left_out);
    answer(format, &json, || {
        report::text(&record, &directory, &left_out, format)
    })
}

/// The start time of a backup in progress.
fn in_progress(domain: &Domain) -> Option<Timestamp> {
    let backup = domain.spec.metadata.kube_virt.backup.as_ref()?;
    let running = backup.end_timestamp.is_none();
    backup
        .start_timestamp
        .filter(|_| running)
        .map(|began| began.0)
}

/// The volumes with tracked changes.
fn tracked_volumes(domain: &Domain) -> Vec<String> {
    let tracked = domain
        .spec
        .devices
        .disks
        .iter()
        .filter(|disk| is_tracked(disk));
    tracked.map(|disk| disk.volume().to_owned()).collect()
}

/// An unused name and time for the backup, in whole seconds. The launcher takes a backup with its
/// last one's time for that one.
fn new_id(records: &Records, domain: &Domain) -> Result<BackupId, TextError> {
    let last = domain.spec.metadata.kube_virt.backup.as_ref();
    let last = last.and_then(|backup| backup.start_timestamp);
    let next = last.map_or(0, |last| last.as_second().saturating_add(1));
    let mut second = Timestamp::now().as_second().max(next);
    loop {
        let time = Timestamp::from_second(second).map_err(|source| {
            text_error!("the machine's clock has a time that a backup cannot have")
                .caused_by(source)
        })?;
        let id = BackupId {
            name: NAME.to_owned(),
            started: Time(time),
        };
        if !records.directory(&id.dated_name()).exists() {
            return Ok(id);
        }
        second += 1;
    }
}

/// Makes the directory for the backup, if its parent is there.
fn open(dir: &Path) -> Result<PathBuf, CtlError> {
    match fs::create_dir(dir) {
        Err(_) if dir.is_dir() => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fail!("{} is not a directory", dir.display());
        }
        made => made.map_err(FileError::on("make the directory", dir))?,
    }
    Ok(dir.canonicalize().map_err(FileError::on("find", dir))?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use domain::metadata::BackupMetadata;

    #[test]
    fn a_backup_is_later_than_the_last_one_to_any_directory() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::read(dir.path(), "vm");
        let last = Timestamp::from_second(Timestamp::now().as_second() + 100).unwrap();
        let mut domain = Domain::default();
        domain.spec.metadata.kube_virt.backup = Some(BackupMetadata {
            start_timestamp: Some(Time(last)),
            ..BackupMetadata::default()
        });
        let id = new_id(&records, &domain).unwrap();
        assert_eq!(id.started.0.as_second(), last.as_second() + 1);
        let id = new_id(&records, &Domain::default()).unwrap();
        assert!(id.started.0 < last);
    }

    #[test]
    fn a_backup_is_in_progress_until_it_has_an_end() {
        let mut domain = Domain::default();
        assert_eq!(in_progress(&domain), None);
        let began: Time = "2026-01-02T03:04:05Z".parse().unwrap();
        let mut backup = BackupMetadata {
            start_timestamp: Some(began),
            ..BackupMetadata::default()
        };
        domain.spec.metadata.kube_virt.backup = Some(backup.clone());
        assert_eq!(in_progress(&domain), Some(began.0));
        backup.end_timestamp = Some(began);
        domain.spec.metadata.kube_virt.backup = Some(backup);
        assert_eq!(in_progress(&domain), None);
    }

    #[test]
    fn a_directory_that_is_not_there_is_made() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("new");
        for _ in 0..2 {
            assert_eq!(open(&dir).unwrap(), dir.canonicalize().unwrap());
        }
        let file = dir.join("file");
        fs::write(&file, "").unwrap();
        let refusal = |dir: &Path| open(dir).err().unwrap().to_string();
        assert!(refusal(&file).ends_with("file is not a directory"));
        let deep = dir.join("a/b");
        assert!(refusal(&deep).contains(deep.to_str().unwrap()));
    }

    #[test]
    fn volumes_with_an_overlay_are_tracked() {
        let domain = crate::json::domain(json!({"Spec": {"Devices": {"Disks": [
            {"Alias": {"Name": "root"}, "Source": {"File": "/a"}},
            {"Alias": {"Name": "data"}, "Source": {"File": "/b", "DataStore": {"Type": "file"}}},
        ]}}}));
        assert_eq!(tracked_volumes(&domain), ["data"]);
    }
}
