//! `list`: the VMs that `run` has started here.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::status;
use crate::error::CtlError;
use crate::host::registry;
use crate::json::{is_true_at, text_at, text_or_dash};
use crate::view::output::{Format, print};
use client::refusal::REMEDY_MARK;

/// Characters of a reason that are shown.
const MAX_REASON: usize = 160;

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only the VMs of this namespace
    #[arg(short = 'n', long, help_heading = "Global options")]
    namespace: Option<String>,
}

/// `list`.
///
/// # Errors
/// If the registry cannot be read.
pub async fn list(args: &ListArgs, format: Format) -> Result<ExitCode, CtlError> {
    let mut rows = Vec::new();
    for (name, dir) in registry::all()? {
        let row = status::collect(&name, &dir).await;
        // It may have ended meanwhile.
        if text_at(&row, "/state") != status::LOST || registry::find(&name).is_ok() {
            rows.push(row);
        }
    }
    if let Some(namespace) = &args.namespace {
        rows.retain(|row| text_at(row, "/namespace") == namespace);
    }
    rows.sort_by(|a, b| text_or_dash(a, "/name").cmp(text_or_dash(b, "/name")));
    print(format, &Value::Array(rows.clone()), || table(&rows));
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[Value]) -> Vec<String> {
    if rows.is_empty() {
        return vec!["no VM runs here; launcherctl run FILE starts one".to_owned()];
    }
    let line = |cells: [&str; 6]| {
        let [name, namespace, state, cpus, memory, root] = cells;
        format!("{name:<20} {namespace:<12} {state:<14} {cpus:>4} {memory:>8}  {root}")
    };
    let mut lines = vec![line([
        "NAME",
        "NAMESPACE",
        "STATE",
        "CPUS",
        "MEMORY",
        "DIRECTORY",
    ])];
    for row in rows {
        let cpus = row.get("cpus").and_then(Value::as_u64);
        let cpus = cpus.map_or_else(|| "-".to_owned(), |cpus| cpus.to_string());
        let part = |pointer| text_or_dash(row, pointer);
        lines.push(line([
            part("/name"),
            part("/namespace"),
            part("/state"),
            &cpus,
            part("/memory"),
            part("/root"),
        ]));
    }
    lines.extend(rows.iter().filter_map(remark));
    lines
}

/// What has happened to a VM that has ended, or has no supervisor any more, and what to do.
fn remark(row: &Value) -> Option<String> {
    let name = text_or_dash(row, "/name");
    match text_or_dash(row, "/state") {
        status::LOST => Some(match row.get("guestPid").and_then(Value::as_i64) {
            Some(pid) => format!(
                "{name} has no launcher any more, and its guest still runs (QEMU is process {pid}); launcherctl stop {name} forces it off."
            ),
            None => format!(
                "{name} has no launcher any more; launcherctl stop {name} removes what is left of it."
            ),
        }),
        status::FAILED => Some(format!(
            "{name} has failed: {}; launcherctl status {name} says more, launcherctl stop {name} removes it from this list.",
            short(text_or_dash(row, "/reason"))
        )),
        _ if is_true_at(row, "/startedByHand") => Some(format!(
            "{name} is in a launcher that was started by hand, without a supervisor; launcherctl stop {name} shuts it down."
        )),
        _ if row.get("supervised") == Some(&Value::Bool(false)) => Some(format!(
            "{name} is unsupervised: the process behind it was killed; launcherctl stop {name} shuts it down."
        )),
        _ => None,
    }
}

/// The beginning of a long reason, such as one with QEMU's words, and what to do about it.
fn short(reason: &str) -> String {
    let (what, remedy) = reason.split_once(REMEDY_MARK).unwrap_or((reason, ""));
    let line = what.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(MAX_REASON).collect();
    if short.len() < what.len() {
        short.push('…');
    }
    if !remedy.is_empty() {
        short.push_str("; what to do: ");
        short.push_str(remedy);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_vm_that_does_not_run_as_it_should_is_shown_with_its_remedy() {
        let row = json!({"name": "web", "namespace": "default", "state": "Running", "cpus": 2, "memory": "1Gi", "root": "/tmp/vm-1"});
        let table_of_one = table(std::slice::from_ref(&row));
        assert_eq!(table_of_one.len(), 2);
        assert_eq!(
            table_of_one[1],
            "web                  default      Running           2      1Gi  /tmp/vm-1"
        );
        for (other, expected) in [
            (
                json!({"name": "db", "state": status::LOST}),
                "launcherctl stop db removes",
            ),
            (
                json!({"name": "db", "state": status::LOST, "guestPid": 7}),
                "its guest still runs (QEMU is process 7); launcherctl stop db",
            ),
            (
                json!({"name": "db", "state": status::FAILED, "reason": "QEMU has failed"}),
                "db has failed: QEMU has failed; launcherctl status db",
            ),
            (
                json!({"name": "db", "state": status::FAILED,
                    "reason": format!("QEMU: {}\n{}\n  what to do: end the other VM", "x".repeat(300), "y")}),
                "x…; what to do: end the other VM; launcherctl status db",
            ),
            (
                json!({"name": "db", "state": "Running", "supervised": false}),
                "db is unsupervised",
            ),
            (
                json!({"name": "db", "state": "Running", "supervised": false, "startedByHand": true}),
                "db is in a launcher that was started by hand",
            ),
        ] {
            let table = table(&[row.clone(), other]).join("\n");
            assert!(table.contains(expected), "{table}");
        }
        assert!(table(&[])[0].contains("launcherctl run"));
    }
}
