//! Long work that libvirt does on a domain: migrations, backups, dumps.

use std::ffi::c_int;

use virt::sys;

use super::c;
use super::c_enum::c_enum;
use super::domain::DomainHandle;
use super::error::Error;
use super::typed_params::{ParamValue, TypedParams};

c_enum! {
    /// What a job is, or was (`virDomainJobOperation`).
    pub enum JobOperation: i64 {
        Unknown = 0,
        Start = 1,
        Save = 2,
        Restore = 3,
        MigrationIn = 4,
        MigrationOut = 5,
        Snapshot = 6,
        SnapshotRevert = 7,
        Dump = 8,
        Backup = 9,
        SnapshotDelete = 10,
    }
}

impl JobOperation {
    /// The operation among a job's values.
    pub(super) fn of(values: &[(String, ParamValue)]) -> Self {
        match value(values, "operation") {
            Some(ParamValue::Signed(raw)) => Self::from_raw(*raw),
            _ => Self::Unknown,
        }
    }
}

c_enum! {
    /// Where a job is (`virDomainJobType`).
    pub enum JobType: i32 {
        /// There is no job.
        None = 0,
        /// It runs, and its end can be estimated.
        Bounded = 1,
        /// It runs.
        Unbounded = 2,
        Completed = 3,
        Failed = 4,
        Cancelled = 5,
    }
}

/// Which job [`DomainHandle::job_state`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichJob {
    /// The one that runs.
    Running,
    /// The last one that has ended.
    Completed,
    /// The last one that has ended; libvirt forgets it when it has answered.
    TakeCompleted,
}

/// What a job is, where it is, and what libvirt says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobState {
    pub job_type: JobType,
    /// Unknown if there is no job.
    pub operation: JobOperation,
    /// All values under libvirt's names, such as `disk_total`.
    pub values: Vec<(String, ParamValue)>,
}

impl JobState {
    /// The error message of a job that has failed.
    #[must_use]
    pub fn error_message(&self) -> Option<&str> {
        error_message(&self.values)
    }
}

/// A job's error message among its values.
pub(super) fn error_message(values: &[(String, ParamValue)]) -> Option<&str> {
    match value(values, "errmsg") {
        Some(ParamValue::Text(text)) => Some(text),
        _ => None,
    }
}

/// Whether a job has succeeded, among its values.
pub(super) fn success(values: &[(String, ParamValue)]) -> Option<bool> {
    match value(values, "success") {
        Some(ParamValue::Signed(success)) => Some(*success != 0),
        _ => None,
    }
}

fn value<'v>(values: &'v [(String, ParamValue)], name: &str) -> Option<&'v ParamValue> {
    let named = values.iter().find(|(it, _)| it == name);
    named.map(|(_, value)| value)
}

impl DomainHandle {
    /// A job that runs, or has ended. Without one, the type says so.
    pub fn job_state(&self, which: WhichJob) -> Result<JobState, Error> {
        let flags = match which {
            WhichJob::Running => 0,
            WhichJob::Completed => {
                sys::VIR_DOMAIN_JOB_STATS_COMPLETED | sys::VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED
            }
            WhichJob::TakeCompleted => sys::VIR_DOMAIN_JOB_STATS_COMPLETED,
        };
        let mut job_type: c_int = 0;
        let mut params = TypedParams::new();
        let (list, len) = params.places();
        // SAFETY: the domain and all three places are valid; the list that is put there is ours to
        // free.
        c::check(unsafe {
            sys::virDomainGetJobStats(self.raw(), &raw mut job_type, list, len, flags)
        })?;
        let values = params.read();
        Ok(JobState {
            job_type: JobType::from_raw(job_type),
            operation: JobOperation::of(&values),
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_values_are_read_by_name() {
        let values = [
            ("operation".to_owned(), ParamValue::Signed(9)),
            ("success".to_owned(), ParamValue::Signed(0)),
            (
                "errmsg".to_owned(),
                ParamValue::Text("No space left on device".to_owned()),
            ),
        ];
        assert_eq!(JobOperation::of(&values), JobOperation::Backup);
        assert_eq!(success(&values), Some(false));
        assert_eq!(error_message(&values), Some("No space left on device"));
        assert_eq!(JobOperation::of(&[]), JobOperation::Unknown);
        assert_eq!((success(&[]), error_message(&[])), (None, None));
    }
}
