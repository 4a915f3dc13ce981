//! The table of checks and their outcomes.

use serde::Serialize;

use crate::sidecar::Version;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// A socket appears and answers `Info`.
    Start,
    /// `Info` offers a version that the launcher supports, and only hook points of that version.
    Info,
    /// `OnDefineDomain` answers with the same domain.
    OnDefineDomain,
    /// `OnDefineDomain` does not change its own result.
    Idempotence,
    /// `OnDefineDomain` keeps elements that it does not know.
    UnknownElements,
    /// `OnDefineDomain` accepts a domain and a VMI of 100 KiB each.
    LargeInput,
    /// The program answers and survives domain XML that is not well-formed.
    InvalidDomain,
    /// The program answers and survives a VMI that is not JSON.
    InvalidVmi,
    /// The program survives a call that the launcher cancels.
    CancelledCall,
    /// `PreCloudInitIso` answers with cloud-init data.
    PreCloudInitIso,
    /// The same with the data of a ConfigDrive volume.
    ConfigDrive,
    /// The program answers and survives cloud-init data that is not JSON.
    InvalidCloudInit,
    /// A plugin's `GuestDefinition` answers with the same domain.
    GuestDefinition,
    /// A plugin's `PreBoot` leaves a whole cloud-init image and NVRAM.
    PreBoot,
    /// `PreBoot` does not change its own result.
    PreBootIdempotence,
    /// `PreBoot` answers for a guest that has neither file.
    PreBootWithoutFiles,
    /// A plugin's `PreMigrationSource` answers with settings that a launcher accepts.
    PreMigrationSource,
    /// `PreMigrationSource` does not change its own result.
    PreMigrationSourceIdempotence,
    /// The program exits after `Shutdown`.
    Shutdown,
    /// The program exits after SIGTERM, as the kubelet sends it.
    Sigterm,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The program did what a launcher expects.
    Passed,
    /// The program did something else: the text says what.
    Failed(String),
    /// There was nothing to check: the text says why.
    Skipped(&'static str),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckResult {
    pub check: Check,
    /// The protocol version; `None` where it does not matter.
    pub version: Option<Version>,
    pub outcome: Outcome,
    /// Whether the program changed its input; `None` for a check that has failed or that sends
    /// invalid input.
    pub changes: Option<bool>,
    pub milliseconds: u64,
}

/// All checks of a program, in the order they were made.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conformance {
    /// The sidecar's name and socket, if it started.
    pub sidecar: Option<String>,
    pub results: Vec<CheckResult>,
}

impl Conformance {
    /// Whether no check failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures() == 0
    }

    /// How many checks failed.
    #[must_use]
    pub fn failures(&self) -> usize {
        let outcomes = self.results.iter().map(|result| &result.outcome);
        outcomes
            .filter(|outcome| matches!(outcome, Outcome::Failed(_)))
            .count()
    }

    /// Whether no call has changed anything. A sidecar that reads annotations may then not have run
    /// its own code.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        let has = |changes| self.results.iter().any(|it| it.changes == Some(changes));
        has(false) && !has(true)
    }
}

impl CheckResult {
    /// The check's name, with its protocol version.
    #[must_use]
    pub fn name(&self) -> String {
        let check = serde_json::json!(self.check);
        let check = check.as_str().unwrap_or_default();
        match self.version {
            Some(version) => format!("{check} {version}"),
            None => check.to_owned(),
        }
    }
}
