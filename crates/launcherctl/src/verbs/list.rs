//! `list`: the VMs started by `run` on this machine.

use std::process::ExitCode;

use serde_json::json;

use crate::error::CtlError;
use crate::host::registry;
use crate::host::status::{self, VmStatus};
use crate::view::output::{Format, Line, answer, or_dash};
use terminal::table;

/// `list`.
///
/// # Errors
/// The registry cannot be read.
pub async fn list(format: Format) -> Result<ExitCode, CtlError> {
    let mut rows = Vec::new();
    for (name, dir) in registry::all()? {
        let row = status::collect(&name, &dir).await;
        // It may have ended meanwhile.
        if row.state != status::LOST || registry::find(&name).is_ok() {
            rows.push(row);
        }
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    answer(format, &json!(rows), || text(&rows, format))
}

fn text(rows: &[VmStatus], format: Format) -> Vec<Line> {
    if rows.is_empty() {
        return vec!["no VM runs here; launcherctl run FILE starts one".into()];
    }
    let cells = rows.iter().map(|row| {
        let cpus = row.cpus.map_or("-".to_owned(), |cpus| cpus.to_string());
        let (memory, root) = (row.memory.as_deref().unwrap_or("-"), row.root.display());
        let (namespace, state) = (or_dash(&row.namespace), &row.state);
        format!(
            "{}\t{namespace}\t{state}\t{cpus}\t{memory}\t{root}",
            row.name
        )
    });
    let header = "NAME\tNAMESPACE\tSTATE\tCPUS\tMEMORY\tDIRECTORY";
    let mut lines = table(format.width(), header, cells);
    lines.extend(rows.iter().filter_map(remark).map(Line::Problem));
    lines
}

/// What happened to a VM that has ended or lost its supervisor, and what to do.
fn remark(row: &VmStatus) -> Option<String> {
    let name = &row.name;
    if row.state == status::FAILED {
        let reason = row.reason.as_deref().unwrap_or("-");
        let reason = reason.lines().next().unwrap_or_default();
        return Some(format!(
            "{name} has failed: {reason}; launcherctl status {name} says more, launcherctl stop {name} removes it from this list."
        ));
    }
    Some(format!("{name}: {}.", row.remark()?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::view::output::joined;

    fn row(value: serde_json::Value) -> VmStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_vm_that_does_not_run_as_it_should_is_shown_with_its_remedy() {
        let web = row(
            json!({"name": "web", "namespace": "default", "state": "Running", "cpus": 2, "memory": "1Gi", "root": "/tmp/vm-1"}),
        );
        let table = |rows: &[VmStatus]| joined(text(rows, Format::Wide));
        assert_eq!(
            table(std::slice::from_ref(&web)),
            "NAME  NAMESPACE  STATE    CPUS  MEMORY  DIRECTORY\nweb   default    Running     2     1Gi  /tmp/vm-1"
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
                json!({"name": "db", "state": "Running", "supervised": false}),
                "db: its supervisor was killed; launcherctl stop db",
            ),
            (
                json!({"name": "db", "state": "Running", "supervised": false, "startedByHand": true}),
                "db: its launcher was started by hand",
            ),
        ] {
            let table = table(&[web.clone(), row(other)]);
            assert!(table.contains(expected), "{table}");
        }
        assert!(table(&[]).contains("launcherctl run"));
    }
}
