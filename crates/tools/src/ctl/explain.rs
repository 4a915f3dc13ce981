//! `explain`: for each part of the domain XML, the rule that wrote it and the fields that it comes from.

use std::process::ExitCode;

use clap::Args;

use super::error::CtlError;
use super::inputs::Inputs;
use super::output::{Format, print};
use convert::STEPS;
use convert::explain::{self, Entry, Needed};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Only what is at or below this part, e.g. /domain/memory or //disk[2]/driver
    #[arg(long, value_name = "PATH")]
    element: Option<String>,
}

/// `explain`: for each part of the XML, the rule that wrote it and the fields that it comes from.
///
/// # Errors
/// If a file is not what it should be, or the VMI is refused.
pub fn explain(args: &ExplainArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (value, _, context) = args.inputs.read()?;
    let mut explanation = explain::explain(&value, &context)?;
    if let Some(element) = &args.element {
        explanation
            .entries
            .retain(|entry| is_within(&entry.path, element));
        if explanation.entries.is_empty() {
            return Err(CtlError::NoElement(element.clone()));
        }
        explanation.needed.clear();
    }
    let json = serde_json::to_value(&explanation).unwrap_or_default();
    print(format, &json, || {
        text(&explanation.entries, &explanation.needed)
    });
    Ok(ExitCode::SUCCESS)
}

/// `/a/b` is a path from the root, `//b` and `b` match anywhere; whole names only.
fn is_within(path: &str, element: &str) -> bool {
    let wanted = element.trim_start_matches('/');
    let anywhere = !element.starts_with('/') || element.starts_with("//");
    let mut starts = path.match_indices('/').map(|(at, _)| at + 1);
    let matches = |from: usize| {
        path.get(from..)
            .and_then(|rest| rest.strip_prefix(wanted))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[']))
    };
    if anywhere {
        starts.any(matches)
    } else {
        matches(1)
    }
}

fn text(entries: &[Entry], needed: &[Needed]) -> String {
    let mut lines: Vec<String> = entries.iter().map(line).collect();
    if !needed.is_empty() {
        lines.push("\nwithout these the VMI would be refused:".into());
        lines.extend(
            needed
                .iter()
                .map(|needed| format!("{}\n    {}", needed.field, needed.refusal)),
        );
    }
    lines.join("\n")
}

fn line(entry: &Entry) -> String {
    let rule = STEPS
        .iter()
        .find(|step| step.name == entry.step)
        .map_or("", |step| step.about);
    let from = if entry.sources.is_empty() {
        "the rule alone".to_owned()
    } else {
        entry.sources.join(", ")
    };
    format!(
        "{} = {:?}\n    from {from}\n    by   {}: {rule}",
        entry.path, entry.value, entry.step
    )
}

#[cfg(test)]
mod tests {
    use super::is_within;

    #[test]
    fn an_element_matches_with_everything_below_it() {
        let path = "/domain/devices/disk[2]/driver/@cache";
        for element in [
            "/domain/devices",
            "//disk[2]",
            "//disk",
            "driver",
            "//driver/@cache",
            "/domain",
        ] {
            assert!(is_within(path, element), "{element}");
        }
        for element in ["/devices", "//disk[1]", "//dis", "driv", "/domain/memory"] {
            assert!(!is_within(path, element), "{element}");
        }
    }
}
