//! Starts the launcher's process, and finds the reason in its log when it has ended.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::error::RunError;
use super::launcher::{self, Vm};
use super::processes::{find_on_path, is_executable};
use crate::error::{CtlError, RuntimeError, fail, text_error};
use crate::files::{FileError, create_private};
use crate::json::text_at;
use client::CallError;
use client::refusal::plain;

const LAUNCHER: &str = "virt-launcher";
/// Where Debian and Fedora have the UEFI images.
const OVMF_PATH: &str = "/usr/share/OVMF";

/// Starts the launcher as a pod does, below the VM's root, for so many hook sidecars.
///
/// # Errors
/// It cannot be started.
pub(super) fn start_launcher(vm: Vm<'_>, sidecars: usize) -> Result<Child, CtlError> {
    let Vm { args, vmi, dir, .. } = vm;
    let given = args.start.launcher.clone();
    let program = given.map_or_else(installed_launcher, Ok)?;
    // To receive a guest takes libvirt's daemon.
    let libvirt = if args.incoming { "auto" } else { "embed" };
    let log = dir.log_file();
    let stderr = create_private(&log).map_err(FileError::on("make", &log))?;
    let grace = launcher::grace(vmi).as_secs();
    let mut command = Command::new(&program);
    command
        .args(["--name", vm.name()])
        .args(["--namespace", text_at(vmi, "/metadata/namespace")])
        .args(["--uid", text_at(vmi, "/metadata/uid")])
        .args(["--libvirt", libvirt, "--allow-emulation"])
        .args(["--ovmf-path", OVMF_PATH])
        .args(["--hook-sidecars", &sidecars.to_string()])
        .arg("--grace-period-seconds")
        .arg(grace.saturating_add(15).to_string())
        .arg("--root")
        .arg(dir.root())
        // libvirt stores state in the user's directories, which may be missing, another user's or
        // read-only.
        .env("XDG_RUNTIME_DIR", dir.path("/run"))
        .env("XDG_CACHE_HOME", dir.path("/cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .process_group(0)
        .kill_on_drop(true);
    if vm.emulate {
        command.arg("--force-emulation");
    }
    if args.incoming {
        // By its pod's name the launcher knows that it is to end if no guest comes.
        command.env("POD_NAME", format!("launcherctl-{}", std::process::id()));
    }
    Ok(command.spawn().map_err(FileError::on("start", program))?)
}

/// The launcher installed beside this program, else the one on the search path.
fn installed_launcher() -> Result<PathBuf, CtlError> {
    let me = std::env::current_exe().map_err(RuntimeError)?;
    let beside = me.with_file_name(LAUNCHER);
    if is_executable(&beside) {
        return Ok(beside);
    }
    match find_on_path(LAUNCHER) {
        Some(found) => Ok(found),
        None => fail!(
            "there is no {}, and no virt-launcher on the search path; install it there, or say --launcher FILE",
            beside.display()
        ),
    }
}

/// Adds the path of the launcher's log and its last error, unless that repeats the error.
pub(super) fn with_log(error: CtlError, log: &Path) -> CtlError {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    if text.is_empty() {
        // It is not kept.
        return error;
    }
    let last_error = last_error(&text).map(|last| plain(&last));
    let last_error = last_error.filter(|last| says_more(last, &error));
    let last_error = last_error.map(|error| format!("its last error: {error}"));
    let log = format!("the launcher's log: {}", log.display());
    let details = [log].into_iter().chain(last_error).collect();
    let failed = text_error!("run failed").caused_by(error.into_source());
    CtlError::from(failed).with_details(details)
}

/// Whether the log's last error adds something to the error.
fn says_more(last: &str, error: &CtlError) -> bool {
    match (error.of(), error.of()) {
        (Some(CallError::Refused { message, .. }), _) => !last.contains(&*plain(message)),
        // It was ended for that.
        (_, Some(RunError::Late(..))) => false,
        // A killed launcher logs nothing about it: its last error is about something else.
        (_, Some(RunError::EndedBeforeReady(status) | RunError::EndedOnItsOwn(status))) => {
            status.signal().is_none()
        }
        _ => true,
    }
}

fn last_error(text: &str) -> Option<String> {
    let is_wanted = |line: &Value| {
        matches!(text_at(line, "/level"), "error" | "fatal")
            && !is_of_request(text_at(line, "/msg"))
    };
    let lines = text.lines().rev();
    let mut lines = lines.filter_map(|line| serde_json::from_str(line).ok());
    let line = lines.find(is_wanted)?;
    Some(match (text_at(&line, "/msg"), text_at(&line, "/reason")) {
        (message, "") => message.to_owned(),
        (message, reason) => format!("{message}: {reason}"),
    })
}

/// Whether the launcher logs this for a refused request, such as a pause by a user meanwhile. A
/// sync is the start.
fn is_of_request(message: &str) -> bool {
    message.starts_with("Failed to ")
        && message.ends_with(" vmi")
        && message != "Failed to sync vmi"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_killed_launcher_has_no_last_error() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let line = r#"{"level":"error","msg":"Failed to sync vmi","reason":"no"}"#;
        std::fs::write(log.path(), line).unwrap();
        let details = |status| {
            let ended = RunError::EndedOnItsOwn(std::process::ExitStatus::from_raw(status));
            with_log(ended.into(), log.path()).details().to_vec()
        };
        assert_eq!(details(9).len(), 1, "{:?}", details(9));
        assert_eq!(
            details(1 << 8).last().unwrap(),
            "its last error: Failed to sync vmi: no"
        );
    }

    #[test]
    fn a_refused_request_is_not_the_last_error_of_a_start() {
        let line = |message: &str| format!(r#"{{"level":"error","msg":"{message}"}}"#) + "\n";
        let pause = line("Failed to pause vmi");
        let sync = line("Failed to sync vmi") + &pause;
        assert_eq!(last_error(&sync).as_deref(), Some("Failed to sync vmi"));
        assert_eq!(last_error(&pause), None);
    }
}
