//! `check`: reports all problems of a manifest before anything starts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::error::CtlError;
use crate::files::{display_name, read_text};
use crate::host::own_libvirt::OwnLibvirt;
use crate::manifest::{Problem, Questions, Severity, problems};
use crate::view::output::{Format, print};
use os::logging::chain;

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
    let libvirt = Questions::new(&OwnLibvirt);
    let mut found: Vec<(String, Vec<Problem>)> = Vec::new();
    for file in &args.files {
        let problems = match read_text(file) {
            Ok(text) => problems(&text, Some(&libvirt)),
            Err(error) if args.files.len() == 1 => return Err(error.into()),
            // It must not hide the problems of the others.
            Err(error) => vec![Problem::of_file(1, chain(&error))],
        };
        found.push((display_name(file), problems));
    }
    let not_asked = libvirt.not_asked.take();
    let files = found.iter();
    let json = files.map(|(file, problems)| {
        json!({"file": file, "problems": problems, "libvirtNotAsked": not_asked})
    });
    print(format, &json.collect(), || {
        text(&found, not_asked.as_deref())
    });
    let is_sound = found.iter().all(|(_, problems)| is_sound(problems));
    Ok(ExitCode::from(u8::from(!is_sound)))
}

fn is_sound(problems: &[Problem]) -> bool {
    let mut problems = problems.iter();
    problems.all(|problem| problem.severity == Severity::Note)
}

/// A line for each problem in compilers' format, so that editors find the place; and what "ok" is
/// said of.
fn text(found: &[(String, Vec<Problem>)], not_asked: Option<&str>) -> Vec<String> {
    let libvirt = match not_asked {
        None => "this machine's libvirt takes the domain".to_owned(),
        Some(reason) => format!("libvirt was not asked ({reason})"),
    };
    let mut lines = Vec::new();
    for (file, problems) in found {
        if is_sound(problems) {
            lines.push(format!(
                "{file}: ok: fields, types and the conversion; {libvirt}; a cluster's admission has more rules"
            ));
        }
        for problem in problems {
            let is_note = problem.severity == Severity::Note;
            let note = if is_note { "note: " } else { "" };
            let (field, message) = (&problem.field, &problem.message);
            let colon = if field.is_empty() { "" } else { ": " };
            let line = problem.line;
            lines.push(format!("{file}:{line}: {note}{field}{colon}{message}"));
        }
    }
    lines
}
