//! `hooks check`: checks that a sidecar program meets a launcher's expectations; text, JSON and
//! JUnit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use prost::bytes::Bytes;
use serde_json::json;

use super::until_signal;
use crate::error::CtlError;
use crate::files::{FileError, read_text};
use crate::host::sidecar_program::SidecarProgram;
use crate::manifest::{self, in_manifest};
use crate::verbs::target::warn_of_unknown_fields;
use crate::view::output::{Format, counted, print, with_progress};
use domain::xml::tree::Element;
use hooks::conformance::{CheckResult, Conformance, Limits, Outcome, Subject, check};

/// A VMI with the parts that sidecars change most often: disks, an interface, cloud-init.
const DEFAULT_VMI: &str = include_str!("check_vmi.yaml");

/// Arguments of `hooks check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// VMI or VM manifest that the sidecar gets, such as one with its annotations; without it, a
    /// small one
    #[arg(long, value_name = "FILE")]
    vmi: Option<PathBuf>,
    /// Write the results as JUnit XML to FILE too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Milliseconds that the slowest call may take
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    slowest: u64,
    /// Show what the sidecar prints
    #[arg(short, long)]
    verbose: bool,
    /// The sidecar: a program or directory with onDefineDomain or preCloudInitIso, which
    /// sidecar-shim calls; or a program that serves gRPC itself on a socket in the directory {},
    /// such as: ./watchdog {}; its options stand after --, such as: -- ./watchdog --dir {}
    #[arg(required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// `hooks check`: exit status 0 if no check failed, 1 otherwise.
///
/// # Errors
/// The program is missing, or the VMI is unreadable.
pub async fn run(args: &CheckArgs, format: Format) -> Result<ExitCode, CtlError> {
    let program = SidecarProgram::new(&args.program)?;
    let dirs = Directories::make()?;
    let mut command = program.command(&dirs.sockets(), &dirs.links())?;
    if !args.verbose {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let (vmi_json, domain_xml) = inputs_of(args.vmi.as_deref())?;
    let subject = Subject {
        command,
        socket_dir: dirs.sockets(),
        vmi_json,
        domain_xml,
    };
    let limits = Limits {
        slowest: Duration::from_millis(args.slowest),
        ..Limits::default()
    };
    let checks = with_progress("the checks of the sidecar", check(subject, limits));
    let conformance = until_signal(checks).await?;
    if let Some(file) = &args.junit {
        fs::write(file, junit(&conformance)).map_err(FileError::on("write", file))?;
    }
    let passed = conformance.passed();
    let json =
        json!({"passed": passed, "sidecar": conformance.sidecar, "results": conformance.results});
    print(format, &json, || text(&conformance));
    Ok(ExitCode::from(u8::from(!passed)))
}

/// The VMI and its domain.
fn inputs_of(file: Option<&Path>) -> Result<(Bytes, String), CtlError> {
    let text = match file {
        Some(file) => read_text(file)?,
        None => DEFAULT_VMI.to_owned(),
    };
    let file = file.unwrap_or(Path::new("the default VMI"));
    warn_of_unknown_fields(file, &text);
    let (value, vmi) = manifest::read_offline(&text, false).map_err(in_manifest(file))?;
    let context = manifest::context::context_of_pod(&vmi);
    let xml = convert::domain(&vmi, &context)?.to_xml();
    Ok((Bytes::from(value.to_string()), xml))
}

/// For the sidecar's socket and the shim's links; removed on drop. In the directory for temporary
/// files, as a socket's path is limited to 107 bytes.
pub(super) struct Directories(PathBuf);

impl Directories {
    pub(super) fn make() -> Result<Self, FileError> {
        let root = std::env::temp_dir().join(format!("hooks-check-{}", std::process::id()));
        let dirs = Self(root);
        for dir in [dirs.sockets(), dirs.links()] {
            fs::create_dir_all(&dir).map_err(FileError::on("make", &dir))?;
        }
        Ok(dirs)
    }

    pub(super) fn sockets(&self) -> PathBuf {
        self.0.join("sockets")
    }

    pub(super) fn links(&self) -> PathBuf {
        self.0.join("links")
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The check's name, with its protocol version.
fn name(result: &CheckResult) -> String {
    let check = json!(result.check);
    let check = check.as_str().unwrap_or_default();
    match result.version {
        Some(version) => format!("{check} {version}"),
        None => check.to_owned(),
    }
}

/// The JUnit element of a check that failed or was skipped, with the reason.
fn not_passed(result: &CheckResult) -> Option<(&'static str, &str)> {
    match &result.outcome {
        Outcome::Passed => None,
        Outcome::Failed(why) => Some(("failure", why)),
        Outcome::Skipped(why) => Some(("skipped", why)),
    }
}

fn count(conformance: &Conformance, element: &str) -> usize {
    let elements = conformance.results.iter().filter_map(not_passed);
    elements.filter(|(other, _)| *other == element).count()
}

fn text(conformance: &Conformance) -> Vec<String> {
    let line = |result: &CheckResult| {
        let (word, why) = match not_passed(result) {
            None => ("ok", ""),
            Some(("failure", why)) => ("FAILED", why),
            Some(skipped) => skipped,
        };
        let (name, time) = (name(result), result.milliseconds);
        let line = format!("{word:<8} {name:<28} {time:>6} ms  {why}");
        line.trim_end().to_owned()
    };
    let summary = match count(conformance, "failure") {
        0 => "the sidecar passes".to_owned(),
        failed => format!("{} failed", counted(failed, "check")),
    };
    let mut lines: Vec<String> = conformance.sidecar.clone().into_iter().collect();
    lines.extend(conformance.results.iter().map(line));
    lines.push(summary);
    lines
}

/// The results in JUnit's format.
fn junit(conformance: &Conformance) -> String {
    let count = |element| count(conformance, element).to_string();
    let mut suite = Element::new("testsuite")
        .with_attribute("name", "hook sidecar")
        .with_attribute("tests", conformance.results.len().to_string())
        .with_attribute("failures", count("failure"))
        .with_attribute("skipped", count("skipped"));
    for result in &conformance.results {
        let seconds = result.milliseconds / 1000;
        let time = format!("{seconds}.{:03}", result.milliseconds % 1000);
        let case = Element::new("testcase")
            .with_attribute("classname", "sidecar")
            .with_attribute("name", name(result))
            .with_attribute("time", time);
        suite.push(match not_passed(result) {
            Some((element, why)) => {
                case.with_child(Element::new(element).with_attribute("message", why))
            }
            None => case,
        });
    }
    let suites = Element::new("testsuites").with_child(suite).to_xml();
    let suites = suites.trim_end();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{suites}\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use hooks::conformance::Check;

    fn conformance() -> Conformance {
        let result = |check, outcome, milliseconds| CheckResult {
            check,
            version: None,
            outcome,
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
    fn the_default_vmi_converts() {
        let (vmi, xml) = inputs_of(None).unwrap();
        assert!(vmi.len() > 100 && xml.contains("<interface"), "{xml}");
    }

    #[test]
    fn results_are_read_by_people_and_by_continuous_integration() {
        let text = text(&conformance()).join("\n");
        assert!(text.contains("FAILED   info"), "{text}");
        assert!(text.ends_with("1 check failed"), "{text}");
        let xml = junit(&conformance());
        let suites = Element::parse(xml.split_once('\n').unwrap().1).unwrap();
        let suite = suites.children().next().unwrap();
        assert_eq!(suite.attribute("failures"), Some("1"));
        let cases: Vec<&Element> = suite.children().collect();
        assert_eq!(cases[0].attribute("time"), Some("1.200"));
        let failure = cases[1].children().next().unwrap();
        assert_eq!(failure.attribute("message"), Some("no <hook> & \"points\""));
    }
}
