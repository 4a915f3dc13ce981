//! `explain`: for each part of the domain XML, the rule that wrote it and the fields that it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::inputs::Inputs;
use crate::error::CtlError;
use crate::json::set;
use crate::manifest::{FieldOrigin, Origin};
use crate::view::output::{Format, print};
use convert::RULES;
use convert::explain::{self, Entry, Explanation, Needed};

/// The domain has no such element.
#[derive(Debug, thiserror::Error)]
#[error("--element {element}: the domain has no such part; {there}")]
struct NoElement {
    /// The path that was given.
    element: String,
    /// What is there.
    there: String,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Only what is at or below this part, e.g. /domain/memory, devices/disk/serial or //disk[2]/driver
    #[arg(long, value_name = "PATH")]
    element: Option<String>,
}

/// `explain`: for each part of the XML, the rule that wrote it and the fields that it comes from.
///
/// # Errors
/// If a file is not what it should be, or the VMI is refused.
pub fn explain(args: &ExplainArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (value, context, origin) = args.inputs.read_with_origin()?;
    let mut explanation = explain::explain(&value, &context)?;
    if let Some(element) = &args.element {
        let (found, others): (Vec<Entry>, Vec<Entry>) = explanation
            .entries
            .into_iter()
            .partition(|entry| is_within(&entry.path, element));
        if found.is_empty() {
            let paths: Vec<&str> = others.iter().map(|entry| &*entry.path).collect();
            return Err(NoElement {
                element: element.clone(),
                there: what_is_there(&paths, element),
            }
            .into());
        }
        explanation.entries = found;
        explanation.needed.clear();
    }
    let json = json_of(&explanation, &origin);
    print(format, &json, || {
        text(&explanation.entries, &explanation.needed, &origin)
    });
    Ok(ExitCode::SUCCESS)
}

/// `/a/b` is a path from the root or from the domain, `//b`, `a/b` and `b` match anywhere; whole names only, with or without
/// their index.
fn is_within(path: &str, element: &str) -> bool {
    !ends_of(path, &parts(element), is_anywhere(element)).is_empty()
}

fn is_anywhere(element: &str) -> bool {
    !element.starts_with('/') || element.starts_with("//")
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// What is below each place of a path at which the wanted parts match.
fn ends_of<'p>(path: &'p str, wanted: &[&str], anywhere: bool) -> Vec<Vec<&'p str>> {
    let path = parts(path);
    // The first part is the domain.
    let starts = if anywhere { path.len() } else { 2 };
    (0..starts)
        .filter_map(|start| {
            let (here, below) = path.get(start..)?.split_at_checked(wanted.len())?;
            let matches = here
                .iter()
                .zip(wanted)
                .all(|(part, wanted)| part == wanted || plain(part) == *wanted);
            matches.then(|| below.to_vec())
        })
        .collect()
}

/// The name of an element without its index, and of an attribute without its `@`.
fn plain(part: &str) -> &str {
    let name = part.split_once('[').map_or(part, |(name, _)| name);
    name.trim_start_matches('@')
}

/// The parts that are where the wanted one was expected, and the one that was probably meant.
fn what_is_there(paths: &[&str], element: &str) -> String {
    /// Letters that may be wrong, missing or too many.
    const MAX_DISTANCE: usize = 2;
    let wanted = parts(element);
    for known in (0..wanted.len()).rev() {
        let Some((place, rest)) = wanted.split_at_checked(known) else {
            break;
        };
        let anywhere = is_anywhere(element) && !place.is_empty();
        let place = if place.is_empty() { &["domain"] } else { place };
        let ends = paths
            .iter()
            .flat_map(|path| ends_of(path, place, anywhere))
            .filter_map(|below| below.first().map(|part| plain(part)));
        let there: BTreeSet<&str> = ends.collect();
        if there.is_empty() {
            continue;
        }
        let wrong = rest.first().copied().unwrap_or_default();
        let distance = |name: &str| strsim::damerau_levenshtein(name, plain(wrong));
        let all: BTreeSet<&str> = paths
            .iter()
            .flat_map(|path| parts(path))
            .map(plain)
            .collect();
        // A single name may be anywhere.
        let candidates = if known == 0 { &all } else { &there };
        let nearest = candidates.iter().min_by_key(|name| distance(name));
        let hint = match nearest {
            Some(name) if distance(name) <= MAX_DISTANCE => format!("did you mean {name}? "),
            _ => String::new(),
        };
        let there: Vec<&str> = there.into_iter().collect();
        return format!("{hint}{} has {}", place.join("/"), there.join(", "));
    }
    "without --element, everything is listed".to_owned()
}

/// The explanation, with the line of each source in the user's file; null for a default of admission.
fn json_of(explanation: &Explanation, origin: &Origin) -> Value {
    let mut json = serde_json::to_value(explanation).unwrap_or_default();
    let sources = explanation.entries.iter().flat_map(|entry| &entry.sources);
    let lines: BTreeMap<&str, Option<u64>> = sources
        .filter(|source| is_field(source))
        .map(|source| {
            let line = match origin.field(source) {
                FieldOrigin::Line(line) => Some(line),
                FieldOrigin::Default => None,
            };
            (source.as_str(), line)
        })
        .collect();
    set(&mut json, "/lines", json!(lines));
    json
}

/// And not a member of the context.
fn is_field(source: &str) -> bool {
    !source.starts_with("context.")
}

/// A source as it is in the user's file.
fn described(source: &str, origin: &Origin) -> String {
    if !is_field(source) {
        return source.to_owned();
    }
    match origin.field(source) {
        FieldOrigin::Line(line) => format!("{source} (line {line})"),
        FieldOrigin::Default => format!("the default of {source}"),
    }
}

fn text(entries: &[Entry], needed: &[Needed], origin: &Origin) -> Vec<String> {
    let mut lines: Vec<String> = entries
        .iter()
        .flat_map(|entry| lines_of(entry, origin))
        .collect();
    if !needed.is_empty() {
        lines.push(String::new());
        lines.push("without these the VMI would be refused:".into());
        lines.extend(needed.iter().flat_map(|needed| {
            [
                described(&needed.field, origin),
                format!("    {}", needed.refusal),
            ]
        }));
    }
    lines
}

fn lines_of(entry: &Entry, origin: &Origin) -> [String; 3] {
    let rule = RULES
        .iter()
        .find(|rule| rule.name == entry.rule)
        .map_or("", |rule| rule.about);
    let from = if entry.sources.is_empty() {
        "the rule alone".to_owned()
    } else {
        let sources = entry.sources.iter().map(|source| described(source, origin));
        sources.collect::<Vec<_>>().join(", ")
    };
    [
        format!("{} = {:?}", entry.path, entry.value),
        format!("    from {from}"),
        format!("    by   {}: {rule}", entry.rule),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "/devices",
            "devices/disk/driver",
            "devices/disk[2]/driver/cache",
            "/devices/disk/driver/@cache",
        ] {
            assert!(is_within(path, element), "{element}");
        }
        for element in [
            "/disk",
            "//disk[1]",
            "//dis",
            "driv",
            "/domain/memory",
            "devices/driver",
        ] {
            assert!(!is_within(path, element), "{element}");
        }
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is() {
        let paths = [
            "/domain/memory",
            "/domain/devices/disk[1]/target/@dev",
            "/domain/devices/disk[2]/serial",
        ];
        for (element, there) in [
            (
                "devices/disk/serail",
                "did you mean serial? devices/disk has serial, target",
            ),
            ("devices/disk[1]/boot", "devices/disk[1] has target"),
            ("/domain/cpu", "domain has devices, memory"),
            ("serail", "did you mean serial? domain has devices, memory"),
        ] {
            assert_eq!(what_is_there(&paths, element), there, "{element}");
        }
    }
}
