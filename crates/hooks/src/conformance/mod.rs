//! Checks a sidecar's or plugin's program against what a launcher expects of it.
//!
//! ```text
//!  hook sidecar  start ─► info ─► for each version that it offers: OnDefineDomain, PreCloudInitIso
//!                      ─► shutdown ─► start ─► SIGTERM
//!  plugin        start ─► GuestDefinition, PreBoot, PreMigrationSource ─► SIGTERM
//! ```
//!
//! Each hook point is called with valid input, with its own result, and with invalid input. A hook
//! point that the program does not serve is skipped. The program is started like in a pod, except
//! that it puts its socket into a directory that the caller chooses. A program that exits during a
//! check is restarted for the next one.

mod called;
mod checks;
mod failure;
mod inputs;
pub(crate) mod program;
mod table;

use std::time::Duration;

use tokio::process::Command;
use tokio::time::Instant;

pub(crate) use self::called::{Called, Document, example_settings};
pub use self::called::{CloudInit, Subject, TrialPod};
use self::checks::{PLUGIN, SIDECAR};
pub use self::failure::CheckFailure;
use self::program::SidecarProcess;
pub use self::table::{Check, CheckResult, Conformance, Outcome};
use super::client;
use super::sidecar::{HookPoint, Sidecar, Version};

/// How long the program may take.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Time until its `Info` answers.
    pub start: Duration,
    /// Time for one call. virt-handler gives a whole sync 20 seconds.
    pub call: Duration,
    /// Time until it has exited after `Shutdown` or SIGTERM.
    pub stop: Duration,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            call: Duration::from_secs(20),
            stop: Duration::from_secs(10),
        }
    }
}

/// Makes all checks and records failures in the table. Dropping the future kills the program.
pub async fn check(program: Command, subject: Subject, limits: CallLimits) -> Conformance {
    let mut run = Run {
        process: SidecarProcess::new(program, &subject),
        subject,
        limits,
        table: Conformance::default(),
    };
    run.all().await;
    run.process.kill().await;
    run.table
}

struct Run {
    process: SidecarProcess,
    subject: Subject,
    limits: CallLimits,
    table: Conformance,
}

impl Run {
    async fn all(&mut self) {
        let start = Instant::now();
        let started = self.process.start(self.limits.start).await;
        let sidecar = started.as_ref().ok().cloned();
        self.record(Check::Start, None, start.elapsed(), started.map(|_| None));
        let Some(sidecar) = sidecar else {
            return;
        };
        self.table.sidecar = Some(sidecar.to_string());
        if self.subject.plugin.is_none() {
            let start = Instant::now();
            let (versions, result) = checks::info(&sidecar, self.limits.call).await;
            self.record(Check::Info, None, start.elapsed(), result.map(|()| None));
            for version in versions {
                for checks in SIDECAR {
                    self.point(checks, Some(version)).await;
                }
            }
            self.shutdown().await;
        } else {
            let mut has_points = false;
            for checks in PLUGIN {
                has_points |= self.point(checks, None).await;
            }
            if !has_points {
                self.record(
                    Check::Info,
                    None,
                    Duration::ZERO,
                    Err(CheckFailure::NoPoints),
                );
            }
        }
        let start = Instant::now();
        let ended = match self.process.running(self.limits.start).await {
            Ok(_) => self.process.terminate(self.limits.stop).await,
            Err(failure) => Err(failure),
        };
        self.record(Check::Sigterm, None, start.elapsed(), ended.map(|()| None));
    }

    /// Makes the checks of a hook point. If the first one fails, the others would tell nothing and
    /// are skipped. Returns whether the program serves the hook point.
    async fn point(&mut self, checks: &[Check], version: Option<Version>) -> bool {
        let mut skipped = None;
        let mut is_first = true;
        for &check in checks {
            let is_examples = matches!(self.subject.cloud_init, CloudInit::Examples);
            if check == Check::ConfigDrive && !is_examples {
                self.skip(check, version, "the VMI's own data are checked");
                continue;
            }
            if let Some(reason) = skipped {
                self.skip(check, version, reason);
                continue;
            }
            let start = Instant::now();
            let mut result = self.check(check, version).await;
            if matches!(result, Err(CheckFailure::Unserved)) {
                skipped = Some("it does not serve the hook point");
                self.skip(check, version, "it does not serve the hook point");
                continue;
            }
            let time = start.elapsed();
            if let Err(failure) = result {
                result = Err(self.process.cause(failure).await);
            }
            if result.is_err() && is_first {
                skipped = Some("not checked, as the hook fails with valid input");
            }
            is_first = false;
            self.record(check, version, time, result);
        }
        !is_first
    }

    async fn check(
        &mut self,
        check: Check,
        version: Option<Version>,
    ) -> Result<Option<bool>, CheckFailure> {
        let sidecar = self.process.running(self.limits.start).await?;
        let called = Called {
            subject: &self.subject,
            sidecar: at_version(sidecar, version),
            vmi_json: self.subject.vmi_json.clone(),
            limit: self.limits.call,
        };
        called.check(check).await
    }

    async fn shutdown(&mut self) {
        let (check, newest) = (Check::Shutdown, Some(Version::V1alpha3));
        let start = Instant::now();
        let result = match self.process.running(self.limits.start).await {
            Ok(sidecar) if sidecar.priority(HookPoint::Shutdown).is_none() => {
                return self.skip(
                    check,
                    newest,
                    "it does not subscribe to Shutdown: a migrated pod does not end before its sidecar is killed",
                );
            }
            Ok(sidecar) => {
                let deadline = os::time::deadline(self.limits.call);
                match client::shutdown(&sidecar, deadline).await {
                    Ok(()) => self.process.ended(self.limits.stop).await,
                    Err(failure) => Err(failure.into()),
                }
            }
            Err(failure) => Err(failure),
        };
        self.record(check, newest, start.elapsed(), result.map(|()| None));
    }

    /// `result` is [`CheckResult::changes`].
    fn record(
        &mut self,
        check: Check,
        version: Option<Version>,
        time: Duration,
        result: Result<Option<bool>, CheckFailure>,
    ) {
        let (changes, outcome) = match result {
            Ok(changes) => (changes, Outcome::Passed),
            Err(failure) => (None, Outcome::Failed(os::logging::chain(&failure))),
        };
        self.table.results.push(CheckResult {
            check,
            version,
            outcome,
            changes,
            milliseconds: os::time::milliseconds(time),
        });
    }

    fn skip(&mut self, check: Check, version: Option<Version>, reason: &'static str) {
        self.table.results.push(CheckResult {
            check,
            version,
            outcome: Outcome::Skipped(reason),
            changes: None,
            milliseconds: 0,
        });
    }
}

/// The sidecar as if it offered only this version.
fn at_version(mut sidecar: Sidecar, version: Option<Version>) -> Sidecar {
    if let Some(version) = version {
        sidecar.version = version;
        sidecar.points.retain(|(point, _)| point.since() <= version);
    }
    sidecar
}
