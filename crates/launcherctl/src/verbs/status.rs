//! `status`: prints a VM's status on a page.

use std::fmt::Display;
use std::process::ExitCode;

use serde_json::json;

use super::logs::readable;
use super::target::{TargetError, VmArgs};
use crate::error::CtlError;
use crate::host::failure::Failure;
use crate::host::registry::{self, VmDir};
use crate::host::status::{FAILED, LOST, STARTING, VmStatus, collect, last_vmi};
use crate::view::output::{Format, answer, counted, or_dash};
use client::Client;
use client::problems::Problem;
use terminal::{stdout_width, visible};

/// How many lines of a failed VM's log are shown, and how much of its end is read for them.
const MAX_LOG_LINES: usize = 10;
const MAX_LOG_BYTES: u64 = 1 << 20;
/// The width of lines for what is not a terminal.
const PIPE_WIDTH: usize = 200;

/// `status`.
///
/// # Errors
/// There is no such VM.
pub async fn status(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let target = args.target();
    let dir = target.resolve()?;
    if target.name.is_none() {
        check_has_vm(&dir).await?;
    }
    let listed = registry::find_in(dir.root()).ok().flatten();
    let name = match (
        target.name.or(listed.map(|(name, _)| name)),
        Failure::load(&dir),
    ) {
        (Some(name), _) => name,
        (None, Some(failure)) => failure.name,
        (None, None) => last_vmi(&dir).await.metadata.name,
    };
    let status = collect(&name, &dir).await;
    answer(format, &json!(status), || page(&status, &log_end(&dir)))
}

/// A directory where nothing was started, or whose VM ended normally, has no status.
async fn check_has_vm(dir: &VmDir) -> Result<(), CtlError> {
    let is_listed = registry::find_in(dir.root()).is_ok_and(|vm| vm.is_some());
    if is_listed || dir.is_of_run() || Failure::load(dir).is_some() {
        return Ok(());
    }
    match Client::connect(&dir.cmd_socket()).await {
        Ok(_) => Ok(()),
        Err(_) if !dir.cmd_socket().exists() => {
            Err(TargetError::NoVmIn(dir.root().to_owned()).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// The last lines of the launcher's log, no wider than the terminal.
fn log_end(dir: &VmDir) -> Vec<String> {
    let log = os::small_file::tail(&dir.log_file(), MAX_LOG_BYTES).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let mut lines: Vec<&str> = log.lines().rev().take(MAX_LOG_LINES).collect();
    lines.reverse();
    let width = stdout_width().unwrap_or(PIPE_WIDTH);
    let lines = readable(&lines.join("\n")).into_iter();
    let width = width.saturating_sub(4).max(40);
    lines.map(|line| visible::short(&line, width)).collect()
}

/// A row of a page.
fn row(name: &str, value: impl Display) -> String {
    format!("  {name:<9}  {value}")
}

fn page(status: &VmStatus, log: &[String]) -> Vec<String> {
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
    lines.push(row("directory", status.root.display()));
    // What a start waits for is there.
    let shows_log = has_failed || status.state == STARTING;
    let end = if shows_log { ", which ends with" } else { "" };
    lines.extend(
        status
            .log
            .iter()
            .map(|log| row("log", format!("{}{end}", log.display()))),
    );
    if shows_log {
        lines.extend(log.iter().map(|line| format!("    {line}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::Value;

    fn status(value: Value) -> VmStatus {
        serde_json::from_value(value).unwrap()
    }

    use terminal::joined;

    #[test]
    fn the_number_of_cpus_is_singular_or_plural() {
        let page = |cpus| page(&status(json!({"state": "Running", "cpus": cpus})), &[]).join("\n");
        assert!(page(1).contains(" 1 CPU, "), "{}", page(1));
        assert!(page(2).contains(" 2 CPUs, "), "{}", page(2));
    }

    #[test]
    fn what_a_guest_calls_itself_is_one_line_without_commands() {
        let system = "\u{1b}]0;x\u{7}Linux\nweb: Failed: \u{202e}no";
        let value = json!({"name": "web", "state": "Running", "guestOs": system});
        let shown = joined(page(&status(value), &[]));
        assert!(
            shown.contains(r"  system     \u{1b}]0;x\u{7}Linux\nweb: Failed: \u{202e}no"),
            "{shown}"
        );
    }

    #[test]
    fn the_page_of_a_running_vm_has_the_process_of_its_qemu() {
        let page = page(&status(json!({"state": "Running", "guestPid": 7})), &[]).join("\n");
        assert!(page.contains("\n  qemu       process 7\n"), "{page}");
    }

    #[test]
    fn problems_are_before_everything_else() {
        let problem = json!({"what": "broken", "cause": "no disk", "since": "2026-01-02T03:04:05Z", "next": "add one"});
        let value = json!({"name": "web", "state": "Paused", "problems": [problem]});
        let page = page(&status(value), &[]);
        assert_eq!(
            page[1],
            "  problem    broken (since 2026-01-02T03:04:05Z): no disk; add one"
        );
    }

    #[test]
    fn a_failed_vm_has_its_reason_and_the_end_of_its_log() {
        let problem = json!({"what": "the VM has failed", "cause": "no disk", "next": "add one"});
        let value = json!({"name": "web", "state": FAILED, "reason": "no disk", "log": "/tmp/l", "problems": [problem]});
        let page = page(&status(value), &["error   no disk".to_owned()]).join("\n");
        assert!(
            page.starts_with("web: Failed\n  problem    the VM has failed: no disk; add one\n"),
            "{page}"
        );
        let log = "/tmp/l, which ends with\n    error   no disk";
        assert!(page.ends_with(log), "{page}");
        let starts = json!({"state": STARTING, "log": "/tmp/l"});
        let page = super::page(&status(starts), &["error   no disk".to_owned()]).join("\n");
        assert!(page.ends_with(log), "{page}");
    }
}
