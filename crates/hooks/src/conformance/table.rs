//! The table of checks and their outcomes.

use serde::Serialize;

use crate::sidecar::{HookPoint, Version};

/// One thing that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// A socket appears, and answers `Info`.
    Start,
    /// `Info` has a version that the launcher supports, and only hook points that exist in that version.
    Info,
    /// `OnDefineDomain` answers with the same domain.
    OnDefineDomain,
    /// `OnDefineDomain` changes nothing in its own result.
    Idempotence,
    /// `OnDefineDomain` keeps elements that it does not know.
    UnknownElements,
    /// `OnDefineDomain` takes a domain and a VMI of 100 KiB each.
    LargeInput,
    /// The program answers and lives on after domain XML that is not well-formed.
    InvalidDomain,
    /// The program answers and lives on after a VMI that is not JSON.
    InvalidVmi,
    /// The program lives on after a call that the launcher gave up.
    CancelledCall,
    /// `PreCloudInitIso` answers with cloud-init data.
    PreCloudInitIso,
    /// The program answers and lives on after cloud-init data that is not JSON.
    InvalidCloudInit,
    /// The slowest call was fast enough.
    Time,
    /// The program ends after `Shutdown`.
    Shutdown,
    /// The program ends after SIGTERM, as the kubelet sends it.
    Sigterm,
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// As a launcher expects it.
    Passed,
    /// Something else; for people.
    Failed(String),
    /// Nothing to check; why.
    Skipped(&'static str),
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckResult {
    /// What was checked.
    pub check: Check,
    /// In which protocol version; `None` where it does not matter.
    pub version: Option<Version>,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub milliseconds: u64,
}

/// All checks of a program, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conformance {
    /// The sidecar's name and socket, if it started.
    pub sidecar: Option<String>,
    /// The table.
    pub results: Vec<CheckResult>,
}

impl Conformance {
    /// Whether no check failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        let mut outcomes = self.results.iter().map(|result| &result.outcome);
        !outcomes.any(|outcome| matches!(outcome, Outcome::Failed(_)))
    }
}

impl Check {
    /// The hook point that the check calls.
    pub(super) fn hook_point(self) -> HookPoint {
        match self {
            Self::PreCloudInitIso | Self::InvalidCloudInit => HookPoint::PreCloudInitIso,
            Self::Shutdown => HookPoint::Shutdown,
            _ => HookPoint::OnDefineDomain,
        }
    }

    /// Whether it is the first call of its hook point, with what a launcher sends.
    pub(super) fn has_valid_input(self) -> bool {
        matches!(self, Self::OnDefineDomain | Self::PreCloudInitIso)
    }

    /// Whether a hook that always fails would pass it, so that it says nothing of such a one.
    pub(super) fn needs_a_success(self) -> bool {
        matches!(
            self,
            Self::InvalidDomain | Self::InvalidVmi | Self::CancelledCall | Self::InvalidCloudInit
        )
    }

    /// Whether its duration counts for [`Check::Time`].
    pub(super) fn is_timed(self) -> bool {
        matches!(
            self,
            Self::OnDefineDomain | Self::LargeInput | Self::PreCloudInitIso
        )
    }
}
