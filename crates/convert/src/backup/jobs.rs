//! The jobs that QEMU has for a backup. libvirt forgets one that ends while libvirt is restarted,
//! and then waits for it for ever.

use serde::Deserialize;

/// The command for QEMU's monitor; [`has_backup_jobs`] reads the answer.
pub const QUERY_JOBS: &str = r#"{"execute":"query-jobs"}"#;

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    #[serde(rename = "type")]
    kind: String,
}

/// Whether QEMU has a job for a backup, in its answer to [`QUERY_JOBS`].
///
/// # Errors
/// The answer cannot be read.
pub fn has_backup_jobs(answer: &str) -> Result<bool, serde_json::Error> {
    let answer: Answer = serde_json::from_str(answer)?;
    Ok(answer.jobs.iter().any(|job| job.kind == "backup"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_other_kinds_do_not_count() {
        let of = |kind: &str| {
            format!(
                r#"{{"return":[{{"current-progress":0,"status":"running","total-progress":1,"type":"{kind}","id":"j"}}],"id":"libvirt-7"}}"#
            )
        };
        assert!(has_backup_jobs(&of("backup")).unwrap());
        assert!(!has_backup_jobs(&of("mirror")).unwrap());
        assert!(!has_backup_jobs(r#"{"return":[]}"#).unwrap());
        has_backup_jobs("{}").unwrap_err();
    }
}
