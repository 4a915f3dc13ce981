//! `hooks check`: checks that a sidecar program meets a launcher's expectations.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{Options, subject, until_signal};
use crate::error::CtlError;
use crate::view::output::{Format, Line, counted, print};
use client::refusal::on_one_line;
use hooks::conformance::{CallLimits, Conformance, Outcome, check};
use terminal::table;

const CHANGES_NOTHING: &str = "it has changed nothing of what it got";

/// Arguments of `hooks check`.
#[derive(Debug, Args)]
pub struct HooksCheckArgs {
    /// VMI or VM manifest that the sidecar gets, such as one with its annotations; without it, a
    /// small one
    #[arg(long, value_name = "FILE")]
    vmi: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// The sidecar: a script (for onDefineDomain, unless it is named preCloudInitIso) or a
    /// directory with either, which sidecar-shim calls; or a program that serves gRPC itself on a
    /// socket in the directory {}, such as: ./watchdog {}; its options stand after --, such as:
    /// -- ./watchdog --dir {}
    #[arg(required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// `hooks check`: exit status 0 if no check failed, 1 otherwise.
///
/// # Errors
/// The program is missing, or the VMI is unreadable.
pub async fn run(args: &HooksCheckArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (program, subject, _dirs) = subject(args.vmi.as_deref(), &args.program, &args.options)?;
    let checks = check(program, subject, CallLimits::default());
    let conformance = until_signal(checks).await?;
    let passed = conformance.passed();
    let json =
        json!({"passed": passed, "sidecar": conformance.sidecar, "results": conformance.results});
    print(format, &json, || text(&conformance));
    Ok(ExitCode::from(u8::from(!passed)))
}

fn text(conformance: &Conformance) -> Vec<Line> {
    let cells = conformance.results.iter().map(|result| {
        let (word, why) = match (&result.outcome, result.changes) {
            (Outcome::Passed, Some(false)) => ("ok", CHANGES_NOTHING.to_owned()),
            (Outcome::Passed, _) => ("ok", String::new()),
            (Outcome::Failed(why), _) => ("FAILED", on_one_line(why)),
            (Outcome::Skipped(why), _) => ("skipped", (*why).to_owned()),
        };
        format!("{word}\t{}\t{}\t{why}", result.name(), result.milliseconds)
    });
    let mut lines: Vec<Line> = conformance.sidecar.iter().map(Line::from).collect();
    lines.extend(table("RESULT\tCHECK\tMS\tWHY", cells));
    lines.push(summary(conformance).into());
    lines
}

fn summary(conformance: &Conformance) -> String {
    match conformance.failures() {
        0 if conformance.changes_nothing() => format!(
            "the sidecar passes; {CHANGES_NOTHING}: if it goes by annotations, give a VMI with them (--vmi FILE)"
        ),
        0 => "the sidecar passes".to_owned(),
        failed => format!(
            "{} failed; -v shows what the sidecar prints",
            counted(failed, "check")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::output::joined;
    use hooks::conformance::{Check, CheckResult};

    fn conformance() -> Conformance {
        let result = |check, outcome, milliseconds| CheckResult {
            check,
            version: None,
            outcome,
            changes: None,
            milliseconds,
        };
        Conformance {
            sidecar: Some("\"a\" (/a.sock)".to_owned()),
            results: vec![
                result(Check::Start, Outcome::Passed, 1200),
                result(
                    Check::Info,
                    Outcome::Failed("no <hook> & \"points\"".to_owned()),
                    3,
                ),
                result(Check::Shutdown, Outcome::Skipped("not subscribed"), 0),
            ],
        }
    }

    #[test]
    fn a_sidecar_that_may_not_have_run_its_code_passes_with_a_word() {
        let mut passed = conformance();
        passed.results.truncate(1);
        let said = |conformance: &Conformance| summary(conformance);
        assert_eq!(said(&passed), "the sidecar passes");
        passed.results[0].changes = Some(false);
        assert!(said(&passed).contains("changed nothing of what it got: if it goes by"));
        passed.results.push(passed.results[0].clone());
        passed.results[1].changes = Some(true);
        assert_eq!(said(&passed), "the sidecar passes");
    }

    #[test]
    fn the_end_of_a_traceback_is_not_cut_off() {
        let why = "failed: a ended with exit status 1: Traceback (most recent call last):\n  File \"a\"\nKeyError: 'b'";
        let expected = "failed: a ended with exit status 1: … KeyError: 'b'";
        assert_eq!(on_one_line(why), expected);
        let failed = summary(&conformance());
        assert!(failed.starts_with("1 check failed; -v"));
    }

    #[test]
    fn a_failed_check_is_shown_with_its_reason() {
        let text = joined(text(&conformance()));
        assert!(text.contains("FAILED   info"), "{text}");
        assert!(
            text.ends_with("1 check failed; -v shows what the sidecar prints"),
            "{text}"
        );
    }
}
