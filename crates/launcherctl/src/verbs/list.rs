//! `list`: the VMs started by `run` on this machine.

use std::process::ExitCode;

use serde_json::json;

use crate::error::CtlError;
use crate::host::registry;
use crate::host::status::{self, VmStatus};
use crate::view::output::{Format, answer, or_dash};

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
    answer(format, &json!(rows), || table(&rows))
}

fn table(rows: &[VmStatus]) -> Vec<String> {
    if rows.is_empty() {
        return vec!["no VM runs here; launcherctl run FILE starts one".to_owned()];
    }
    let head = "NAME                 NAMESPACE    STATE          CPUS   MEMORY  DIRECTORY";
    let mut lines = vec![head.to_owned()];
    for row in rows {
        let (name, state, root) = (&row.name, &row.state, row.root.display());
        let namespace = or_dash(&row.namespace);
        let cpus = row.cpus.map_or("-".to_owned(), |cpus| cpus.to_string());
        let memory = row.memory.as_deref().unwrap_or("-");
        lines.push(format!(
            "{name:<20} {namespace:<12} {state:<14} {cpus:>4} {memory:>8}  {root}"
        ));
    }
    lines.extend(rows.iter().filter_map(remark));
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

    fn row(value: serde_json::Value) -> VmStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_vm_that_does_not_run_as_it_should_is_shown_with_its_remedy() {
        let web = row(
            json!({"name": "web", "namespace": "default", "state": "Running", "cpus": 2, "memory": "1Gi", "root": "/tmp/vm-1"}),
        );
        let table_of_one = table(std::slice::from_ref(&web));
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
                json!({"name": "db", "state": "Running", "supervised": false}),
                "db: its supervisor was killed; launcherctl stop db",
            ),
            (
                json!({"name": "db", "state": "Running", "supervised": false, "startedByHand": true}),
                "db: its launcher was started by hand",
            ),
        ] {
            let table = table(&[web.clone(), row(other)]).join("\n");
            assert!(table.contains(expected), "{table}");
        }
        assert!(table(&[])[0].contains("launcherctl run"));
    }
}
