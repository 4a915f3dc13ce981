//! `list`: the VMs started by `run` on this machine.

use std::process::ExitCode;

use serde_json::json;
use tokio::task::JoinSet;

use crate::error::CtlError;
use crate::host::registry;
use crate::host::status::{LOST, VmStatus, collect};
use crate::view::output::{Format, Line, answer, or_dash};
use terminal::table;

/// `list`.
///
/// # Errors
/// The registry cannot be read.
pub async fn list(format: Format) -> Result<ExitCode, CtlError> {
    let vms = registry::all()?.into_iter();
    // At once: a launcher that does not answer is waited for.
    let rows: JoinSet<_> = vms.map(async |dir| collect(&dir).await).collect();
    let mut rows = rows.join_all().await;
    // It may have ended meanwhile.
    rows.retain(|row| row.state != LOST || registry::find(&row.name).is_ok());
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    answer(format, &json!(rows), || text(&rows))
}

fn text(rows: &[VmStatus]) -> Vec<Line> {
    if rows.is_empty() {
        return vec!["no VM of this user runs here; launcherctl run FILE starts one".into()];
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
    let mut lines = table(header, cells);
    for VmStatus { name, problems, .. } in rows {
        let problems = problems.iter().map(|it| format!("{name}: {}", it.line()));
        lines.extend(problems.map(Line::Problem));
    }
    lines
}

#[cfg(test)]
mod tests {
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
        let table = |rows: &[VmStatus]| joined(text(rows));
        assert_eq!(
            table(std::slice::from_ref(&web)),
            "NAME  NAMESPACE  STATE    CPUS  MEMORY  DIRECTORY\nweb   default    Running     2     1Gi  /tmp/vm-1"
        );
        let problem = |what: &str| json!({"what": what, "cause": "no disk", "next": "add one"});
        let problems = [problem("broken"), problem("slow")];
        let db = row(json!({"name": "db", "state": "Failed", "problems": problems}));
        let table_of_two = table(&[web, db]);
        assert!(
            table_of_two.ends_with("\ndb: broken: no disk; add one\ndb: slow: no disk; add one"),
            "{table_of_two}"
        );
        assert_eq!(table_of_two.lines().count(), 5);
        assert!(table(&[]).contains("launcherctl run"));
    }
}
