//! `status`: what is known of a VM, on a page.
//!
//! ```text
//!  failure.json ─────────────────────────────► Failed, and the end of the launcher's log
//!  launcher answers ─► domain, guest agent ──► its state, processor, memory, addresses
//!  nothing answers ──────────────────────────► lost
//! ```

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::logs::readable;
use super::target_error::TargetError;
use super::vm_args::VmArgs;
use crate::error::CtlError;
use crate::host::console_log::console_log_file;
use crate::host::control::{ControlClient, Current};
use crate::host::failure::Failure;
use crate::host::network::{Forward, Network};
use crate::host::registry::{self, CONTROL_SOCKET, VmDir};
use crate::host::remains;
use crate::json::{copy_at, is_true_at, list_at, set, text_at, text_or_dash};
use crate::reports::guest_state::{is_starting, known_reason};
use crate::view::output::{Format, counted, print};
use client::Client;

/// The state of a VM whose launcher has ended without its supervisor.
pub const LOST: &str = "lost";
/// The state of a VM of which only the reason and the log are left.
pub const FAILED: &str = "Failed";
/// How much of a failed VM's log is shown.
const MAX_LOG_LINES: usize = 10;

/// The state of a VM whose launcher or guest is being started.
const STARTING: &str = "starting";
/// How long a supervisor may take to remove what is left of its VM, when it does not answer any more.
const REMOVAL_TIME: Duration = Duration::from_millis(300);
/// The state of a VM that is to end, or whose guest has ended: until its supervisor has removed what there was.
const STOPPING: &str = "stopping";

/// `status`.
///
/// # Errors
/// If there is no such VM.
pub async fn status(args: &VmArgs, format: Format) -> Result<ExitCode, CtlError> {
    let target = args.target();
    let dir = target.resolve_any()?.into_dir("status")?;
    if target.name.is_none() {
        check_has_vm(&dir).await?;
    }
    let name = match (&target.name, Failure::load(&dir)) {
        (Some(name), _) => name.clone(),
        (None, Some(failure)) => failure.name,
        (None, None) => text_or_dash(&last_vmi(&dir).await, "/metadata/name").to_owned(),
    };
    let status = collect(&name, &dir).await;
    print(format, &status, || page(&status, &log_end(&dir)));
    Ok(ExitCode::SUCCESS)
}

/// Of a directory in which nothing was started, or whose VM has ended in order, there is nothing to say.
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

/// What is known of the VM in `dir`, as JSON; what does not answer is left out.
pub async fn collect(name: &str, dir: &VmDir) -> Value {
    let status = collect_now(name, dir).await;
    if text_at(&status, "/state") != LOST {
        return status;
    }
    // A supervisor that has just ended in order leaves nothing to answer, until it has removed the VM.
    tokio::time::sleep(REMOVAL_TIME).await;
    collect_now(name, dir).await
}

async fn collect_now(name: &str, dir: &VmDir) -> Value {
    if let Some(failure) = Failure::load(dir) {
        return json!({
            "name": name,
            "namespace": failure.namespace,
            "uid": failure.uid,
            "state": FAILED,
            "reason": failure.reason,
            "root": absolute(dir.root()),
            "log": absolute(&dir.log_file()),
            "consoleLog": Some(console_log_file(dir)).filter(|log| log.exists()).map(|log| absolute(&log)),
            "supervised": false,
            "startedByHand": false,
        });
    }
    let vmi = last_vmi(dir).await;
    let (state, domain) = domain(dir).await;
    let network = Network::load(dir).ok().flatten();
    let mut status = json!({
        "name": name,
        "namespace": copy_at(&vmi, "/metadata/namespace"),
        "uid": copy_at(&vmi, "/metadata/uid"),
        "state": state,
        "reason": known_reason(&domain),
        "cpus": cpus(&domain).unwrap_or_else(|| wanted_cpus(&vmi)),
        "memory": memory(&domain).map_or_else(|| copy_at(&vmi, "/spec/domain/memory/guest"), Value::from),
        "guestOs": copy_at(&domain, "/Status/OSInfo/PrettyName"),
        "addresses": addresses(&domain),
        "ports": network.as_ref().map(|network| network.forwards().to_vec()),
        "root": absolute(dir.root()),
        // In a pod it is the container's own.
        "log": Some(dir.log_file()).filter(|log| log.exists()).map(|log| absolute(&log)),
        "supervised": dir.is_of_run().then(|| dir.is_supervised()),
        "startedByHand": is_started_by_hand(dir),
    });
    // A pod has other process IDs inside than outside.
    if let Some(pid) = dir
        .is_of_run()
        .then(|| remains::guest(dir.root()))
        .flatten()
    {
        set(&mut status, "/guestPid", json!(pid));
    }
    status
}

/// `--root` may be relative, which says nothing to a reader in another directory, or too long for sockets: then the VM is
/// known by a link.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// Stored by `run`, else asked of the launcher, as in a pod. Null if neither has one.
async fn last_vmi(dir: &VmDir) -> Value {
    if let Ok(vmi) = dir.load_vmi() {
        return vmi;
    }
    let Ok(client) = Client::connect(&dir.cmd_socket()).await else {
        return Value::Null;
    };
    let sync = client.last_sync().await.ok().flatten();
    sync.map(|sync| sync.vmi).unwrap_or_default()
}

/// Whether the VM has come by `migrate --to` to a launcher that never had a supervisor: one that was killed leaves its socket.
fn is_started_by_hand(dir: &VmDir) -> bool {
    dir.is_of_run() && !dir.path(CONTROL_SOCKET).exists()
}

/// The VM's state, and its domain if it has one.
async fn domain(dir: &VmDir) -> (String, Value) {
    let supervisor = ControlClient::current(dir).await;
    let is_ending = supervisor.is_some_and(Current::is_ending);
    let Ok(client) = Client::connect(&dir.cmd_socket()).await else {
        let state = match supervisor {
            None => LOST,
            Some(current) if is_ending || current.phase.is_some() => STOPPING,
            Some(_) => STARTING,
        };
        return (state.to_owned(), Value::Null);
    };
    let state = match client.domain().await {
        Ok(Some(domain)) => return (of_domain(&domain, is_ending), domain),
        _ if is_ending => STOPPING,
        Ok(None) if is_starting(&client).await => STARTING,
        Ok(None) => "no domain",
        Err(_) => "not answering",
    };
    (state.to_owned(), Value::Null)
}

/// The state of a guest: its domain's, unless it is to end. One that is paused does not hear that, which is more
/// important.
fn of_domain(domain: &Value, is_ending: bool) -> String {
    let requested = "/Spec/Metadata/KubeVirt/GracePeriod/DeletionTimestamp";
    let is_requested = domain.pointer(requested).is_some_and(|at| !at.is_null());
    let state = text_at(domain, "/Status/Status");
    let is_stopping = match state {
        "Paused" => false,
        "Running" | "ShuttingDown" => is_ending || is_requested,
        // In a pod it waits for virt-handler.
        _ => is_ending,
    };
    if is_stopping { STOPPING } else { state }.to_owned()
}

/// The vCPUs that the domain has now; the VMI may have been changed since.
fn cpus(domain: &Value) -> Option<u64> {
    let all = list_at(domain, "/Spec/VCPUs/VCPU").iter();
    let enabled = all
        .filter(|vcpu| text_at(vcpu, "/Enabled") == "yes")
        .count();
    if enabled > 0 {
        return u64::try_from(enabled).ok();
    }
    domain.pointer("/Spec/VCPU/CPUs").and_then(Value::as_u64)
}

/// The vCPUs of the VMI.
fn wanted_cpus(vmi: &Value) -> u64 {
    let of = |part| {
        let count = vmi.pointer(&format!("/spec/domain/cpu/{part}"));
        count.and_then(Value::as_u64).unwrap_or(1)
    };
    let cores = of("sockets").saturating_mul(of("cores"));
    cores.saturating_mul(of("threads"))
}

/// The memory that the domain has now, as a quantity of Kubernetes.
fn memory(domain: &Value) -> Option<String> {
    ["/Spec/CurrentMemory", "/Spec/Memory"]
        .into_iter()
        .find_map(|pointer| {
            let memory = domain.pointer(pointer)?;
            let value = memory.get("Value")?.as_u64().filter(|value| *value > 0)?;
            let unit = match text_at(memory, "/Unit") {
                "KiB" | "k" | "" => 1 << 10,
                "b" | "bytes" => 1,
                _ => return None,
            };
            Some(quantity(value.saturating_mul(unit)))
        })
}

/// In the largest unit that has no fraction.
fn quantity(bytes: u64) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    let whole = units
        .iter()
        .find(|(bits, _)| bytes.trailing_zeros() >= *bits);
    whole.map_or_else(
        || bytes.to_string(),
        |(bits, unit)| format!("{}{unit}", bytes >> bits),
    )
}

/// As the guest agent reports them.
fn addresses(domain: &Value) -> Vec<&str> {
    let interfaces = list_at(domain, "/Status/Interfaces").iter();
    interfaces
        .map(|interface| text_at(interface, "/Ip"))
        .filter(|address| !address.is_empty())
        .collect()
}

/// The last lines of the launcher's log.
fn log_end(dir: &VmDir) -> Vec<String> {
    let log = std::fs::read_to_string(dir.log_file()).unwrap_or_default();
    let mut lines: Vec<&str> = log.lines().rev().take(MAX_LOG_LINES).collect();
    lines.reverse();
    readable(&lines.join("\n"))
}

fn failed_page(status: &Value, log: &[String]) -> Vec<String> {
    let part = |pointer| text_or_dash(status, pointer);
    let name = part("/name");
    let mut reason = part("/reason").lines();
    let mut lines = vec![format!(
        "{name}: {FAILED}: {}",
        reason.next().unwrap_or_default()
    )];
    lines.extend(reason.map(|more| format!("  {}", more.trim_start())));
    lines.extend([
        format!("  namespace  {}", part("/namespace")),
        format!("  uid        {}", part("/uid")),
        format!("  log        {}, which ends with", part("/log")),
    ]);
    lines.extend(log.iter().map(|line| format!("    {line}")));
    let console = if text_at(status, "/consoleLog").is_empty() {
        String::new()
    } else {
        format!("launcherctl logs {name} --console what the guest has written to its console, ")
    };
    lines.push(format!(
        "launcherctl logs {name} prints the whole log, {console}launcherctl stop {name} removes it from launcherctl list"
    ));
    lines
}

fn page(status: &Value, log: &[String]) -> Vec<String> {
    let part = |pointer| text_or_dash(status, pointer);
    let name = part("/name");
    if part("/state") == FAILED {
        return failed_page(status, log);
    }
    let reason = match text_at(status, "/reason") {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    let cpus = status.get("cpus").and_then(Value::as_u64);
    let cpus = counted(cpus.unwrap_or_default(), "CPU");
    let mut lines = vec![
        format!("{name}: {}{reason}", part("/state")),
        format!("  namespace  {}", part("/namespace")),
        format!("  uid        {}", part("/uid")),
        format!("  guest      {cpus}, {} of memory", part("/memory")),
    ];
    if !text_at(status, "/guestOs").is_empty() {
        lines.push(format!("  system     {}", part("/guestOs")));
    }
    let addresses = list_at(status, "/addresses")
        .iter()
        .filter_map(Value::as_str);
    lines.extend(addresses.map(|address| format!("  address    {address}")));
    let ports = list_at(status, "/ports").iter();
    let ports = ports.filter_map(|port| Forward::deserialize(port).ok());
    lines.extend(ports.map(|port| format!("  port       {port}")));
    let is_lost = part("/state") == LOST;
    let pid = status.get("guestPid").and_then(Value::as_i64);
    if let Some(pid) = pid.filter(|_| !is_lost) {
        lines.push(format!("  qemu       process {pid}"));
    }
    lines.push(format!("  directory  {}", part("/root")));
    if !text_at(status, "/log").is_empty() {
        lines.push(format!("  log        {}", part("/log")));
    }
    if is_lost {
        lines.push(match pid {
            Some(pid) => format!(
                "its launcher was killed, and its guest still runs (QEMU is process {pid}); launcherctl stop {name} forces it off"
            ),
            None => format!(
                "its launcher was killed, and its guest does not run; launcherctl stop {name} removes what is left of it"
            ),
        });
    } else if is_true_at(status, "/startedByHand") {
        lines.push(format!(
            "its launcher was started by hand, without a supervisor; launcherctl stop {name} shuts it down"
        ));
    } else if status.get("supervised") == Some(&Value::Bool(false)) {
        lines.push(format!(
            "its supervisor was killed; launcherctl stop {name} shuts it down"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::control::Control;
    use crate::host::control::Phase;
    use crate::host::control::Update;
    use crate::view::output::joined;

    #[test]
    fn the_number_of_cpus_is_singular_or_plural() {
        let page = |cpus| page(&json!({"state": "Running", "cpus": cpus}), &[]).join("\n");
        assert!(page(1).contains(" 1 CPU, "), "{}", page(1));
        assert!(page(2).contains(" 2 CPUs, "), "{}", page(2));
    }

    #[test]
    fn what_a_guest_calls_itself_is_one_line_without_commands() {
        let system = "\u{1b}]0;x\u{7}Linux\nweb: Failed: \u{202e}no";
        let status = json!({"name": "web", "state": "Running", "guestOs": system});
        let shown = joined(&page(&status, &[]));
        assert!(
            shown.contains(r"  system     \u{1b}]0;x\u{7}Linux\nweb: Failed: \u{202e}no"),
            "{shown}"
        );
    }

    #[test]
    fn a_lost_vm_says_whether_its_guest_still_runs() {
        let page = |pid: Value| {
            page(&json!({"name": "web", "state": LOST, "guestPid": pid}), &[]).join("\n")
        };
        let runs = page(json!(7));
        assert!(runs.contains("still runs (QEMU is process 7)"), "{runs}");
        let ended = page(Value::Null);
        assert!(ended.contains("its guest does not run"), "{ended}");
    }

    #[test]
    fn the_page_of_a_running_vm_has_the_process_of_its_qemu() {
        let page = page(&json!({"state": "Running", "guestPid": 7}), &[]).join("\n");
        assert!(page.contains("\n  qemu       process 7\n"), "{page}");
    }

    #[tokio::test]
    async fn a_relative_root_is_shown_as_an_absolute_path() {
        let vm = VmDir::at("no/such/vm".into());
        let root = collect("web", &vm).await["root"].clone();
        let expected = std::env::current_dir().unwrap().join("no/such/vm");
        assert_eq!(root, json!(expected));
    }

    #[test]
    fn a_vm_without_a_launcher_is_lost_only_if_nobody_supervises_it() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        let runtime = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap()
        };
        let state = async || collect("web", &vm).await["state"].clone();
        runtime().block_on(async {
            assert_eq!(state().await, LOST);
            let (owner, _client) = tokio::net::UnixStream::pair().unwrap();
            let supervisor = Control::serve(&vm.path(CONTROL_SOCKET), owner, None).unwrap();
            assert_eq!(state().await, STARTING);
            supervisor.0.updates().send(Update::Phase {
                phase: Phase::GuestDown,
                seconds: 1.0,
            });
            assert_eq!(state().await, STOPPING);
        });
        // A process that another test starts has the socket until its exec.
        while runtime().block_on(state()) != LOST {}
    }

    #[test]
    fn a_guest_that_is_asked_to_shut_down_is_stopping() {
        let domain = |status: &str, requested: Value| {
            json!({"Status": {"Status": status}, "Spec": {"Metadata": {"KubeVirt": {
                "GracePeriod": {"DeletionTimestamp": requested}}}}})
        };
        let asked = || json!("2026-01-01T00:00:00Z");
        assert_eq!(of_domain(&domain("Running", Value::Null), false), "Running");
        assert_eq!(of_domain(&domain("Running", Value::Null), true), STOPPING);
        assert_eq!(of_domain(&domain("Running", asked()), false), STOPPING);
        assert_eq!(of_domain(&domain("Shutoff", asked()), true), STOPPING);
        assert_eq!(of_domain(&domain("Shutoff", asked()), false), "Shutoff");
        // It only hears of it once it is resumed.
        assert_eq!(of_domain(&domain("Paused", asked()), true), "Paused");
    }

    #[test]
    fn a_launcher_that_never_had_a_supervisor_was_started_by_hand() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        // In a pod.
        assert!(!is_started_by_hand(&vm));
        vm.store_vmi(&json!({})).unwrap();
        assert!(is_started_by_hand(&vm));
        let status =
            json!({"name": "web", "state": "Running", "supervised": false, "startedByHand": true});
        let text = page(&status, &[]).join("\n");
        assert!(
            text.contains("started by hand") && !text.contains("killed"),
            "{text}"
        );
        // Killed, it leaves its socket.
        drop(std::os::unix::net::UnixListener::bind(
            vm.path(CONTROL_SOCKET),
        ));
        assert!(!is_started_by_hand(&vm));
        // A process that another test starts has the socket until its exec.
        while vm.is_supervised() {}
    }

    #[test]
    fn what_the_domain_has_counts_and_not_what_a_later_vmi_wants() {
        let domain = json!({"Spec": {
            "Memory": {"Value": 1_048_576, "Unit": "KiB"},
            "CurrentMemory": {"Value": 524_288, "Unit": "KiB"},
            "VCPU": {"CPUs": 4},
            "VCPUs": {"VCPU": [{"Enabled": "yes"}, {"Enabled": "yes"}, {"Enabled": "no"}]},
        }});
        assert_eq!(memory(&domain).as_deref(), Some("512Mi"));
        assert_eq!(cpus(&domain), Some(2));
        let domain =
            json!({"Spec": {"Memory": {"Value": 268_435_456, "Unit": "b"}, "VCPU": {"CPUs": 4}}});
        assert_eq!(memory(&domain).as_deref(), Some("256Mi"));
        assert_eq!(cpus(&domain), Some(4));
        assert_eq!((memory(&Value::Null), cpus(&Value::Null)), (None, None));
        assert_eq!(quantity(3 << 30), "3Gi");
    }

    #[test]
    fn a_failed_vm_has_its_reason_and_the_end_of_its_log() {
        let status = json!({"name": "web", "state": FAILED, "reason": "the guest has crashed", "log": "/tmp/l"});
        let page = page(&status, &["error   no disk".to_owned()]).join("\n");
        assert!(
            page.starts_with("web: Failed: the guest has crashed\n"),
            "{page}"
        );
        assert!(page.contains("    error   no disk\n"), "{page}");
        assert!(
            page.ends_with("the whole log, launcherctl stop web removes it from launcherctl list"),
            "{page}"
        );
    }

    #[test]
    fn what_the_guest_agent_reports_is_read_as_it_is_written() {
        let domain = json!({"Status": {"Interfaces": [{"Ip": "10.0.2.2"}, {"Ip": ""}]}});
        assert_eq!(addresses(&domain), ["10.0.2.2"]);
    }
}
