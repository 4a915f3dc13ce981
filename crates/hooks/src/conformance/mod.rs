//! Checks a sidecar program against what a launcher expects of it. A plugin's program is checked in
//! `plugin`.
//!
//! ```text
//!  start ─► info ─► for each version that it offers:                       ─► shutdown ─► start ─► SIGTERM
//!                   OnDefineDomain, again, unknown elements, large input,
//!                   invalid input, cancelled call, PreCloudInitIso, time
//! ```
//!
//! The program is started like in a pod, except that it puts its socket into a directory that the
//! caller chooses. A program that exits during a check is restarted for the next one.

mod checks;
mod failure;
mod inputs;
mod plugin;
pub(crate) mod program;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use prost::bytes::Bytes;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::Instant;

pub(crate) use self::failure::Failure;
use self::program::{Process, Protocol};
pub use self::table::{Check, CheckResult, Conformance, Effect, Outcome};
use super::plugins::TrialPod;
use super::sidecar::{HookPoint, Sidecar, Version};

/// Why a hook's other checks are skipped once it has failed with valid input.
const FAILS_VALID_INPUT: &str = "not checked, as the hook fails with valid input";

#[derive(Debug)]
pub struct Subject {
    pub command: Command,
    /// The directory in which the program makes its socket. Must be empty. Not for a plugin.
    pub socket_dir: PathBuf,
    pub vmi_json: Bytes,
    pub domain_xml: String,
    /// Not for a plugin.
    pub cloud_init: CloudInit,
    /// The program is a plugin's sidecar, and this stands for its pod.
    pub plugin: Option<TrialPod>,
}

/// What `PreCloudInitIso` is called with.
#[derive(Debug)]
pub enum CloudInit {
    /// Data of a NoCloud and of a ConfigDrive volume.
    Examples,
    /// The VMI's data, with the field names of KubeVirt's Go struct.
    Data(Value),
    /// The VMI's data need a Secret that is not there.
    NeedsSecret,
}

impl CloudInit {
    /// Why there is nothing to check.
    fn skips(&self, check: Check) -> Option<&'static str> {
        match (check, self) {
            (Check::ConfigDrive, Self::Examples) => None,
            (Check::ConfigDrive, _) => Some("the VMI's own data are checked"),
            _ => None,
        }
    }
}

/// How long the program may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time until its `Info` answers.
    pub start: Duration,
    /// Time for one call. virt-handler gives a whole sync 20 seconds.
    pub call: Duration,
    /// Time until it has exited after `Shutdown` or SIGTERM.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(30),
            call: Duration::from_secs(20),
            stop: Duration::from_secs(10),
        }
    }
}

/// Makes all checks and records failures in the table. Dropping the future kills the program.
pub async fn check(mut subject: Subject, limits: Limits) -> Conformance {
    if let Some(pod) = subject.plugin.take() {
        return plugin::check(subject, pod, limits).await;
    }
    let mut run = Run {
        process: Process::new(subject.command, subject.socket_dir, Protocol::Sidecar),
        vmi_json: subject.vmi_json,
        domain_xml: subject.domain_xml,
        cloud_init: subject.cloud_init,
        limits,
        table: Conformance::default(),
    };
    run.all().await;
    run.process.kill().await;
    run.table
}

struct Run {
    process: Process,
    vmi_json: Bytes,
    domain_xml: String,
    cloud_init: CloudInit,
    limits: Limits,
    table: Conformance,
}

impl Run {
    async fn all(&mut self) {
        let start = Instant::now();
        let started = self.process.start(self.limits.start).await;
        let (sidecar, started) = match started {
            Ok(sidecar) => (Some(sidecar), Ok(())),
            Err(failure) => (None, Err(failure)),
        };
        self.record(Check::Start, None, start.elapsed(), started);
        let Some(sidecar) = sidecar else {
            return;
        };
        self.table.sidecar = Some(sidecar.to_string());

        let start = Instant::now();
        let (versions, result) = checks::info(&sidecar, self.limits.call).await;
        self.record(Check::Info, None, start.elapsed(), result);
        for version in versions {
            self.version(version).await;
        }
        self.shutdown().await;
        self.sigterm().await;
    }

    /// The sidecar for the given protocol version, restarted if it has exited.
    async fn sidecar(&mut self, version: Version) -> Result<Sidecar, Failure> {
        let sidecar = self.process.running(self.limits.start).await?;
        let points = sidecar.points.into_iter();
        Ok(Sidecar {
            version,
            points: points
                .filter(|(point, _)| point.since() <= version)
                .collect(),
            ..sidecar
        })
    }

    async fn version(&mut self, version: Version) {
        let mut failing = Vec::new();
        for check in checks::CALLS {
            let sidecar = match self.sidecar(version).await {
                Ok(sidecar) => sidecar,
                Err(failure) => {
                    self.record(check, Some(version), Duration::ZERO, Err(failure));
                    continue;
                }
            };
            if sidecar.priority(check.hook_point()).is_none() {
                self.skip(
                    check,
                    Some(version),
                    "it does not subscribe to the hook point",
                );
                continue;
            }
            if let Some(reason) = self.cloud_init.skips(check) {
                self.skip(check, Some(version), reason);
                continue;
            }
            if !check.has_valid_input() && failing.contains(&check.hook_point()) {
                self.skip(check, Some(version), FAILS_VALID_INPUT);
                continue;
            }
            let start = Instant::now();
            let call = checks::Call {
                sidecar: &sidecar,
                vmi_json: &self.vmi_json,
                domain_xml: &self.domain_xml,
                cloud_init: &self.cloud_init,
                timeout: self.limits.call,
            };
            let mut result = call.check(check).await;
            let time = start.elapsed();
            if let Err(failure) = result {
                result = Err(self.process.cause(failure).await);
            }
            if result.is_err() && check.has_valid_input() {
                failing.push(check.hook_point());
            }
            self.record_effect(check, Some(version), time, result);
        }
    }

    async fn shutdown(&mut self) {
        let newest = Version::V1alpha3;
        let sidecar = match self.sidecar(newest).await {
            Ok(sidecar) => sidecar,
            Err(failure) => {
                return self.record(Check::Shutdown, None, Duration::ZERO, Err(failure));
            }
        };
        if sidecar.priority(HookPoint::Shutdown).is_none() {
            return self.skip(
                Check::Shutdown,
                Some(newest),
                "it does not subscribe to Shutdown: a migrated pod does not end before its sidecar is killed",
            );
        }
        let start = Instant::now();
        let result = match checks::shutdown(&sidecar, self.limits.call).await {
            Ok(()) => self.process.ended(self.limits.stop).await,
            Err(failure) => Err(failure),
        };
        self.record(Check::Shutdown, Some(newest), start.elapsed(), result);
    }

    async fn sigterm(&mut self) {
        let start = Instant::now();
        let result = match self.process.running(self.limits.start).await {
            Ok(_) => self.process.terminate(self.limits.stop).await,
            Err(failure) => Err(failure),
        };
        self.record(Check::Sigterm, None, start.elapsed(), result);
    }

    fn record(
        &mut self,
        check: Check,
        version: Option<Version>,
        time: Duration,
        result: Result<(), Failure>,
    ) {
        self.record_effect(check, version, time, result.map(|()| None));
    }

    fn record_effect(
        &mut self,
        check: Check,
        version: Option<Version>,
        time: Duration,
        result: Result<Option<Effect>, Failure>,
    ) {
        self.table.results.push(CheckResult {
            check,
            version,
            effect: result.as_ref().ok().copied().flatten(),
            outcome: match result {
                Ok(_) => Outcome::Passed,
                Err(failure) => Outcome::Failed(os::logging::chain(&failure)),
            },
            milliseconds: os::time::milliseconds(time),
        });
    }

    fn skip(&mut self, check: Check, version: Option<Version>, reason: &'static str) {
        self.table.results.push(CheckResult {
            check,
            version,
            outcome: Outcome::Skipped(reason),
            effect: None,
            milliseconds: 0,
        });
    }
}
