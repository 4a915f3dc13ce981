//! Checks a plugin's program against what a launcher of KubeVirt v1.10 expects of it.
//!
//! ```text
//!  start ─► GuestDefinition, again, unknown elements, large input, invalid input, cancelled call
//!        ─► PreBoot, again, without files ─► PreMigrationSource, again ─► time ─► SIGTERM
//! ```
//!
//! A hook point that the program does not serve is skipped: `permittedHooks` of the Plugin object
//! would not name it.

use std::path::Path;
use std::time::Duration;

use domain::xml::tree::Element;
use prost::bytes::Bytes;
use tokio::time::Instant;

use super::failure::Failure;
use super::inputs;
use super::program::{Process, Protocol};
use super::table::{Check, CheckResult, Conformance, Outcome};
use super::{FAILS_VALID_INPUT, Limits, Subject};
use crate::client;
use crate::diff;
use crate::error::CallError;
use crate::plugins::{Trial, TrialPod, example_settings, is_unserved, settings_changes};

/// Reason for skipping the checks of a hook point.
const UNSERVED: &str = "it does not serve the hook point";

/// Makes all checks and records failures in the table. Dropping the future kills the program.
pub async fn check(subject: Subject, pod: TrialPod, limits: Limits) -> Conformance {
    let mut run = Run {
        process: Process::new(subject.command, pod.socket_dir(), Protocol::Plugin),
        pod,
        vmi_json: subject.vmi_json,
        domain_xml: subject.domain_xml,
        limits,
        table: Conformance::default(),
    };
    run.all().await;
    run.process.kill().await;
    run.table
}

struct Run {
    process: Process,
    pod: TrialPod,
    vmi_json: Bytes,
    domain_xml: String,
    limits: Limits,
    table: Conformance,
}

/// The checks of a hook point. The first one decides whether the others tell anything.
const POINTS: [&[Check]; 3] = [
    &[
        Check::GuestDefinition,
        Check::Idempotence,
        Check::UnknownElements,
        Check::LargeInput,
        Check::InvalidDomain,
        Check::InvalidVmi,
        Check::CancelledCall,
    ],
    &[
        Check::PreBoot,
        Check::PreBootIdempotence,
        Check::PreBootWithoutFiles,
    ],
    &[
        Check::PreMigrationSource,
        Check::PreMigrationSourceIdempotence,
    ],
];

impl Run {
    async fn all(&mut self) {
        let start = Instant::now();
        let started = self.process.start(self.limits.start).await;
        let is_started = started.is_ok();
        if let Ok(sidecar) = &started {
            self.table.sidecar = Some(sidecar.id.clone());
        }
        self.record(Check::Start, start.elapsed(), started.map(drop));
        if !is_started {
            return;
        }
        let mut has_points = false;
        for checks in POINTS {
            has_points |= self.point(checks).await;
        }
        if !has_points {
            self.record(Check::Info, Duration::ZERO, Err(Failure::NoPoints));
        }
        let start = Instant::now();
        let ended = match self.process.running(self.limits.start).await {
            Ok(_) => self.process.terminate(self.limits.stop).await,
            Err(failure) => Err(failure),
        };
        self.record(Check::Sigterm, start.elapsed(), ended);
    }

    /// Makes the checks of a hook point. Returns whether the program serves it.
    async fn point(&mut self, checks: &[Check]) -> bool {
        let mut skipped = None;
        for &check in checks {
            if let Some(reason) = skipped {
                self.skip(check, reason);
                continue;
            }
            let start = Instant::now();
            let mut result = self.check(check).await;
            let is_first = checks.first() == Some(&check);
            if matches!(&result, Err(Failure::Plugin(error)) if is_first && is_unserved(error)) {
                skipped = Some(UNSERVED);
                self.skip(check, UNSERVED);
                continue;
            }
            let time = start.elapsed();
            if let Err(failure) = result {
                result = Err(self.process.cause(failure).await);
            }
            if is_first {
                skipped = result.is_err().then_some(FAILS_VALID_INPUT);
            }
            self.record(check, time, result);
        }
        skipped != Some(UNSERVED)
    }

    async fn check(&mut self, check: Check) -> Result<(), Failure> {
        let sidecar = self.process.running(self.limits.start).await?;
        let (socket, limit) = (sidecar.socket, self.limits.call);
        let trial = Trial::of_socket(&socket, self.vmi_json.clone(), limit);
        let trial = trial.ok_or(Failure::NoSocket)?;
        let definition = |xml: String| trial.guest_definition(xml);
        match check {
            Check::GuestDefinition => drop(definition(self.domain_xml.clone()).await?),
            Check::Idempotence => {
                let first = definition(self.domain_xml.clone()).await?;
                let second = definition(first.clone()).await?;
                let changes = diff::diff(&Element::parse(&first)?, &Element::parse(&second)?);
                not_again(changes.is_empty(), || diff::summary(&changes))?;
            }
            Check::UnknownElements => {
                let xml = inputs::with_unknown_elements(&self.domain_xml)?;
                let after = Element::parse(&definition(xml).await?)?;
                match inputs::MARKED_ELEMENTS.saturating_sub(inputs::marked_elements(&after)) {
                    0 => {}
                    missing => return Err(Failure::LostElements { missing }),
                }
            }
            Check::LargeInput => {
                let vmi_json = inputs::large_vmi(&self.vmi_json);
                let large = Trial::of_socket(&socket, vmi_json, limit).ok_or(Failure::NoSocket)?;
                let xml = inputs::large_domain(&self.domain_xml)?;
                drop(large.guest_definition(xml).await?);
            }
            Check::InvalidDomain => {
                let sent = trial.send("<domain><name>", self.vmi_json.clone(), limit);
                survives(sent.await, &socket).await?;
            }
            Check::InvalidVmi => {
                let vmi = Bytes::from_static(b"{\"metadata\":");
                survives(trial.send(&self.domain_xml, vmi, limit).await, &socket).await?;
            }
            Check::CancelledCall => {
                let soon = Duration::from_millis(1);
                // The call may have been answered before it was cancelled.
                let _ = trial
                    .send(&self.domain_xml, self.vmi_json.clone(), soon)
                    .await;
                still_accepts(&socket).await?;
            }
            Check::PreBoot => {
                trial.pre_boot(self.pod.files()).await?;
            }
            Check::PreBootIdempotence => {
                trial.pre_boot(self.pod.files()).await?;
                let changed = trial.pre_boot(self.pod.files()).await?;
                not_again(changed.is_empty(), || changed.join(", "))?;
            }
            Check::PreBootWithoutFiles => {
                trial.pre_boot(Vec::new()).await?;
            }
            Check::PreMigrationSource => {
                drop(trial.pre_migration_source(example_settings()).await?);
            }
            Check::PreMigrationSourceIdempotence => {
                let first = trial.pre_migration_source(example_settings()).await?;
                let second = trial.pre_migration_source(first.clone()).await?;
                let changes = settings_changes(&first, &second);
                not_again(changes.is_empty(), || changes.join("; "))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn record(&mut self, check: Check, time: Duration, result: Result<(), Failure>) {
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(failure) => Outcome::Failed(os::logging::chain(&failure)),
        };
        self.push(check, outcome, os::time::milliseconds(time));
    }

    fn skip(&mut self, check: Check, reason: &'static str) {
        self.push(check, Outcome::Skipped(reason), 0);
    }

    fn push(&mut self, check: Check, outcome: Outcome, milliseconds: u64) {
        self.table.results.push(CheckResult {
            check,
            version: None,
            outcome,
            effect: None,
            milliseconds,
        });
    }
}

fn not_again(is_same: bool, changes: impl FnOnce() -> String) -> Result<(), Failure> {
    match is_same {
        true => Ok(()),
        false => Err(Failure::NotIdempotent { changes: changes() }),
    }
}

/// After invalid input any answer passes; an error is best. The program must keep serving.
async fn survives(answer: Result<(), CallError>, socket: &Path) -> Result<(), Failure> {
    match answer {
        Ok(()) | Err(CallError::Failed { .. }) => still_accepts(socket).await,
        Err(error) => Err(error.into()),
    }
}

async fn still_accepts(socket: &Path) -> Result<(), Failure> {
    let connected = client::connect(socket).await;
    connected.map(drop).map_err(Failure::NotAccepting)
}
