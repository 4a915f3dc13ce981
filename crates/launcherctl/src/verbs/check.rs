//! `check`: reports all problems of a manifest before anything starts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::error::CtlError;
use crate::files::{display_name, read_text};
use crate::host::own_libvirt::OwnLibvirt;
use crate::manifest::{Asked, ManifestProblem, Questions, Severity, problems};
use crate::view::output::{Format, print};
use os::logging::chain;

const MORE_RULES: &str = "QEMU and a cluster's admission have more rules";

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// VMI or VM manifests, YAML or JSON; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// `check`: exit status 0 without problems, 1 with any.
///
/// # Errors
/// None of the files can be read.
pub fn check(args: &CheckArgs, format: Format) -> Result<ExitCode, CtlError> {
    let mut found: Vec<(String, Vec<ManifestProblem>, Asked)> = Vec::new();
    for file in &args.files {
        let libvirt = Questions::new(&OwnLibvirt);
        let problems = match read_text(file) {
            Ok(text) => problems(&text, Some(&libvirt)),
            Err(error) if args.files.len() == 1 => return Err(error.into()),
            // It must not hide the problems of the others.
            Err(error) => vec![ManifestProblem::of_file(1, chain(&error))],
        };
        found.push((display_name(file), problems, libvirt.asked.take()));
    }
    let json = found.iter().map(|(file, problems, asked)| {
        let not_asked = match asked {
            Asked::Nobody(reason) => Some(reason),
            _ => None,
        };
        json!({"file": file, "problems": problems, "libvirtNotAsked": not_asked})
    });
    print(format, &json.collect(), || text(&found));
    let is_sound = found.iter().all(|(_, problems, _)| is_sound(problems));
    Ok(ExitCode::from(u8::from(!is_sound)))
}

fn is_sound(problems: &[ManifestProblem]) -> bool {
    let mut problems = problems.iter();
    problems.all(|problem| problem.severity == Severity::Note)
}

/// A line for each problem in compilers' format, so that editors find the place; for a file without
/// an error, a line that says what was checked.
fn text(found: &[(String, Vec<ManifestProblem>, Asked)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (file, problems, asked) in found {
        for problem in problems {
            let is_note = problem.severity == Severity::Note;
            let note = if is_note { "note: " } else { "" };
            let field = match problem.field.as_str() {
                "" => String::new(),
                field => format!("{field}: "),
            };
            let (line, message) = (problem.line, &problem.message);
            lines.push(format!("{file}:{line}: {note}{field}{message}"));
        }
        let checked = match asked {
            Asked::Nothing => "fields and types".to_owned(),
            Asked::Libvirt => format!("fields, types, the conversion and libvirt; {MORE_RULES}"),
            Asked::Nobody(why) => format!(
                "fields, types and the conversion; {MORE_RULES}; libvirt was not asked: {why}"
            ),
        };
        if is_sound(problems) {
            lines.push(format!("{file}: ok (checked: {checked})"));
        }
    }
    lines
}
