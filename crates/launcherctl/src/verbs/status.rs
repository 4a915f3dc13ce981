//! `status`: prints a VM's status on a page.

use std::fmt::Display;
use std::process::ExitCode;

use serde_json::json;

use super::target::{RunningVm, VmArgs};
use crate::error::CtlError;
use crate::host::status::{FAILED, LOST, VmStatus, collect};
use crate::view::output::{Format, answer, counted, or_dash};
use client::problems::Problem;

/// `status`.
///
/// # Errors
/// There is no such VM.
pub async fn status(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let dir = args.target().resolve()?;
    // One where nothing was started, or whose VM has ended, has no status.
    if dir.name().is_empty() {
        RunningVm::connect(dir.clone()).await?;
    }
    let status = collect(&dir).await;
    answer(format, &json!(status), || page(&status))
}

/// A row of a page.
fn row(name: &str, value: impl Display) -> String {
    format!("  {name:<9}  {value}")
}

fn page(status: &VmStatus) -> Vec<String> {
    let has_failed = status.state == FAILED;
    // A failed VM's reason is its problem.
    let reason = status.reason.iter().filter(|_| !has_failed);
    let reason = reason.map(|reason| format!(" ({reason})"));
    let (name, state) = (or_dash(&status.name), or_dash(&status.state));
    let mut lines = vec![format!("{name}: {state}{}", reason.collect::<String>())];
    let problems = status.problems.iter().map(Problem::line);
    lines.extend(problems.map(|line| row("problem", line)));
    lines.push(row("namespace", or_dash(&status.namespace)));
    lines.push(row("uid", or_dash(&status.uid)));
    if let Some(cpus) = status.cpus {
        let memory = status.memory.as_deref().unwrap_or("-");
        lines.push(row(
            "guest",
            format!("{}, {memory} of memory", counted(cpus, "CPU")),
        ));
    }
    lines.extend(status.guest_os.iter().map(|system| row("system", system)));
    lines.extend(status.addresses.iter().map(|it| row("address", it)));
    lines.extend(status.ports.iter().map(|port| row("port", port)));
    let pid = status.guest_pid.filter(|_| status.state != LOST);
    lines.extend(pid.map(|pid| row("qemu", format!("process {pid}"))));
    let restarts = |count| {
        row(
            "restarts",
            format!("{count}; a launcher that dies is started again"),
        )
    };
    lines.extend(status.launcher_restarts.map(restarts));
    lines.push(row("directory", status.root.display()));
    lines.extend(status.log.iter().map(|log| row("log", log.display())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn status(value: Value) -> VmStatus {
        serde_json::from_value(value).unwrap()
    }

    use terminal::joined;

    #[test]
    fn the_number_of_cpus_is_singular_or_plural() {
        let page = |cpus| page(&status(json!({"state": "Running", "cpus": cpus}))).join("\n");
        assert!(page(1).contains(" 1 CPU, "), "{}", page(1));
        assert!(page(2).contains(" 2 CPUs, "), "{}", page(2));
    }

    #[test]
    fn what_a_guest_calls_itself_is_one_line_without_commands() {
        let system = "\u{1b}]0;x\u{7}Linux\nweb: Failed: \u{202e}no";
        let value = json!({"name": "web", "state": "Running", "guestOs": system});
        let shown = joined(page(&status(value)));
        assert!(
            shown.contains(r"  system     \u{1b}]0;x\u{7}Linux\nweb: Failed: \u{202e}no"),
            "{shown}"
        );
    }

    #[test]
    fn the_page_of_a_running_vm_has_the_process_of_its_qemu() {
        let page = page(&status(json!({"state": "Running", "guestPid": 7}))).join("\n");
        assert!(page.contains("\n  qemu       process 7\n"), "{page}");
    }

    #[test]
    // D-sup-16 (docs/differences.md).
    fn the_page_says_that_a_launcher_is_started_again() {
        let page = page(&status(json!({"state": "Running", "launcherRestarts": 2}))).join("\n");
        let row = "\n  restarts   2; a launcher that dies is started again\n";
        assert!(page.contains(row), "{page}");
    }

    #[test]
    fn problems_are_before_everything_else() {
        let problem = json!({"what": "broken", "cause": "no disk", "since": "2026-01-02T03:04:05Z", "next": "add one"});
        let value = json!({"name": "web", "state": "Paused", "problems": [problem]});
        let page = page(&status(value));
        assert_eq!(
            page[1],
            "  problem    broken (since 2026-01-02T03:04:05Z): no disk; add one"
        );
    }
}
