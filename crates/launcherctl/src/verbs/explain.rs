//! `explain`: shows for each part of the domain XML the rule that wrote it and the fields it comes
//! from.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::inputs::{Inputs, read};
use crate::error::{CtlError, fail};
use crate::json::set;
use crate::manifest::Origin;
use crate::view::output::{Format, answer};
use convert::RULES;
use convert::explain::{self, Entry, Explanation};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    pub inputs: Inputs,
    /// Only what is at or below this part, e.g. /domain/memory, devices/disk/serial or
    /// //disk[2]/driver
    #[arg(long, value_name = "PATH")]
    element: Option<String>,
}

/// `explain`: shows for each part of the XML the rule that wrote it and the fields it comes from.
///
/// # Errors
/// A file is invalid, or the VMI is refused.
pub fn explain(args: &ExplainArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (manifest, value, _, context) = read(&args.inputs.vmi, args.inputs.context.as_deref())?;
    let origin = Origin::of(&manifest);
    let mut explanation = explain::explain(&value, &context)?;
    if let Some(element) = &args.element {
        let is_meant = |entry: &Entry| is_within(&entry.path, element);
        explanation.entries.retain(is_meant);
        if explanation.entries.is_empty() {
            fail!(
                "--element {element}: the domain has no such part; without --element, everything is listed"
            );
        }
        explanation.needed.clear();
    }
    let json = json_of(&explanation, &origin);
    answer(format, &json, || text(&explanation, &origin))
}

/// Only whole names match, with or without their index.
fn is_within(path: &str, element: &str) -> bool {
    let wanted = format!("/{}/", element.trim_matches('/').replace('@', ""));
    let path = path.replace('@', "");
    let plain: Vec<&str> = path.split('/').map(plain).collect();
    [path.clone(), plain.join("/")]
        .iter()
        .any(|path| format!("{path}/").contains(&wanted))
}

/// An element's name without its index, or an attribute's without its `@`.
fn plain(part: &str) -> &str {
    let name = part.split_once('[').map_or(part, |(name, _)| name);
    name.trim_start_matches('@')
}

/// The explanation, with each source's line in the user's file; null for a default of admission.
fn json_of(explanation: &Explanation, origin: &Origin) -> Value {
    let mut json = serde_json::to_value(explanation).unwrap_or_default();
    let sources = explanation.entries.iter().flat_map(|entry| &entry.sources);
    let fields = sources.filter(|source| is_field(source));
    let lines = fields.map(|field| (field.as_str(), origin.line(field)));
    let lines: BTreeMap<&str, Option<u64>> = lines.collect();
    set(&mut json, "/lines", json!(lines));
    json
}

/// Whether it is a field and not a member of the context.
fn is_field(source: &str) -> bool {
    !source.starts_with("context.")
}

/// A source as in the user's file.
fn described(source: &str, origin: &Origin) -> String {
    if !is_field(source) {
        return source.to_owned();
    }
    match origin.line(source) {
        Some(line) => format!("{source} (line {line})"),
        None => format!("the default of {source}"),
    }
}

fn text(explanation: &Explanation, origin: &Origin) -> Vec<String> {
    let entries = explanation.entries.iter();
    let mut lines: Vec<String> = entries.flat_map(|entry| lines_of(entry, origin)).collect();
    if !explanation.needed.is_empty() {
        lines.push(String::new());
        lines.push("without these the VMI would be refused:".into());
    }
    for needed in &explanation.needed {
        lines.push(described(&needed.field, origin));
        lines.push(format!("    {}", needed.refusal));
    }
    lines
}

fn lines_of(entry: &Entry, origin: &Origin) -> [String; 3] {
    let rule = RULES.iter().find(|rule| rule.name == entry.rule);
    let about = rule.map_or("", |rule| rule.about);
    let sources = entry.sources.iter().map(|source| described(source, origin));
    let mut from = sources.collect::<Vec<_>>().join(", ");
    if from.is_empty() {
        from.push_str("the rule alone");
    }
    [
        format!("{} = {:?}", entry.path, entry.value),
        format!("    from {from}"),
        format!("    by   {}: {about}", entry.rule),
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
            "//disk[1]",
            "//dis",
            "driv",
            "/domain/memory",
            "devices/driver",
        ] {
            assert!(!is_within(path, element), "{element}");
        }
    }
}
