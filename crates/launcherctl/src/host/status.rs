//! The status of a VM.
//!
//! ```text
//!  failure.json ─────────────────────────────► Failed
//!  launcher answers ─► domain, guest agent ──► its state, processor, memory, addresses
//!  nothing answers ──────────────────────────► lost
//! ```

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::control::{ControlClient, RunPhase};
use super::failure::{self, Failure, console_log};
use super::network::{Forward, HostNetwork};
use super::vm_dir::VmDir;
use super::{facts, processes};
use crate::files::absolute;
use api::vmi::Vmi;
use api::vmi::cpu::Cpu;
use client::problems::{Condition, Problem, VmFacts, problems};
use client::{Client, is_starting};
use domain::Domain;
use domain::object::InterfaceStatus;
use domain::status::LifeCycle;

/// The state of a VM whose launcher has ended without its supervisor.
pub const LOST: &str = "lost";
/// The state of a VM that has left only the reason and the log.
pub const FAILED: &str = "Failed";
/// The state while a launcher accepts calls and does not answer them.
const NOT_ANSWERING: &str = "not answering";
/// The state while the launcher or guest is being started.
pub const STARTING: &str = "starting";
/// The state while a VM ends, until its supervisor has removed everything.
const STOPPING: &str = "stopping";

/// A VM's status.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VmStatus {
    pub name: String,
    /// Empty if unknown; so is the UID.
    pub namespace: String,
    pub uid: String,
    /// The domain's in KubeVirt's words, or one of this module's.
    pub state: String,
    pub reason: Option<String>,
    pub cpus: Option<u64>,
    /// A Kubernetes quantity.
    pub memory: Option<String>,
    pub guest_os: Option<String>,
    pub addresses: Vec<String>,
    pub ports: Vec<Forward>,
    pub root: PathBuf,
    pub log: Option<PathBuf>,
    /// Of a failed VM.
    pub console_log: Option<PathBuf>,
    /// PID of QEMU, for a VM of `run`.
    pub guest_pid: Option<i32>,
    /// How many launchers have died and were followed by another; `None` if none would be.
    pub launcher_restarts: Option<u32>,
    /// The worst first.
    pub problems: Vec<Problem>,
}

/// Collects the status of the VM in `dir`, without parts that do not answer, and its problems.
pub async fn collect(dir: &VmDir) -> VmStatus {
    let (mut status, facts) = collect_facts(dir).await;
    status.problems = problems(&facts);
    status
}

/// Like [`collect`], with what the rules for problems look at in their place.
pub async fn collect_facts(dir: &VmDir) -> (VmStatus, VmFacts) {
    let (mut status, domain, launcher) = collect_now(dir).await;
    let condition = match &*status.state {
        FAILED => Condition::Failed(status.reason.clone().unwrap_or_default()),
        LOST => Condition::Lost(status.guest_pid),
        NOT_ANSWERING => Condition::Silent,
        _ => Condition::Answers,
    };
    let mut facts = VmFacts {
        name: dir.name(),
        condition,
        failed_at: failure::time(dir),
        now: Timestamp::now().as_second(),
        domain,
        ..VmFacts::default()
    };
    if let Some(launcher) = launcher {
        // KubeVirt's tells nothing.
        facts.launcher = launcher.debug().await.unwrap_or_default();
        status.launcher_restarts = facts.launcher.restarts;
    }
    facts::complete(&mut facts, &status.uid, status.guest_pid, dir);
    (status, facts)
}

/// With the VM's domain and its launcher, as [`domain`] finds them.
async fn collect_now(dir: &VmDir) -> (VmStatus, Domain, Option<Client>) {
    let log = dir.log_file();
    let status = VmStatus {
        name: dir.name(),
        root: absolute(dir.root()),
        // In a pod the container has the log.
        log: log.exists().then(|| absolute(&log)),
        ..VmStatus::default()
    };
    if let Some(failure) = Failure::load(dir) {
        let failed = VmStatus {
            namespace: failure.namespace,
            state: FAILED.to_owned(),
            reason: Some(failure.reason),
            console_log: Some(absolute(&console_log(dir, &failure.uid))),
            uid: failure.uid,
            ..status
        };
        return (failed, Domain::default(), None);
    }
    let (state, domain, launcher) = domain(dir).await;
    let vmi = match &launcher {
        Some(launcher) => dir.last_vmi(launcher).await.ok().flatten(),
        None => dir.load_vmi().ok(),
    };
    let vmi: Vmi = serde_json::from_value(vmi.unwrap_or_default()).unwrap_or_default();
    let wanted = &vmi.spec.domain;
    let memory = wanted.memory.as_ref().and_then(|it| it.guest.as_ref());
    // After a change that needs a restart, the guest has what it had.
    let bytes = memory.and_then(|memory| u64::try_from(memory.value().ok()?).ok());
    let other = domain.spec.memory_bytes().filter(|it| Some(*it) != bytes);
    let network = HostNetwork::load(dir).ok().flatten();
    let has_guest = dir.is_of_run() || state == LOST;
    let of_domain = &domain.status;
    let status = VmStatus {
        name: match &*status.name {
            "" => vmi.metadata.name,
            name => name.to_owned(),
        },
        namespace: vmi.metadata.namespace,
        uid: vmi.metadata.uid,
        state,
        reason: of_domain.known_reason().map(str::to_owned),
        cpus: (domain.spec.plugged_cpus()).or(Some(wanted.cpu.as_ref().map_or(1, Cpu::vcpus))),
        memory: (other.map(|bytes| format!("{}Mi", bytes >> 20)))
            .or_else(|| memory.map(|memory| memory.0.clone())),
        guest_os: Some(of_domain.os_info.pretty_name.clone()).filter(|name| !name.is_empty()),
        addresses: addresses(&of_domain.interfaces),
        ports: network.map_or_else(Vec::new, |network| network.forwards().to_vec()),
        // PIDs inside a pod differ from those outside.
        guest_pid: has_guest.then(|| processes::guest(dir.root())).flatten(),
        ..status
    };
    (status, domain, launcher)
}

/// The VM's state, its domain if it has one, and its launcher if that answers.
async fn domain(dir: &VmDir) -> (String, Domain, Option<Client>) {
    let supervisor = ControlClient::current(dir).await;
    let is_ending = supervisor.flatten().is_some_and(RunPhase::is_ending);
    let Ok(client) = dir.client().await else {
        let state = match supervisor {
            None => LOST,
            Some(Some(_)) => STOPPING,
            Some(None) => STARTING,
        };
        return (state.to_owned(), Domain::default(), None);
    };
    let state = match client.domain().await {
        Ok(Some(domain)) => return (of_domain(&domain, is_ending), domain, Some(client)),
        Err(error) if error.is_in_progress() => NOT_ANSWERING,
        _ if is_ending => STOPPING,
        Ok(None) if is_starting(&client).await => STARTING,
        Ok(None) => "no domain",
        Err(_) => NOT_ANSWERING,
    };
    let answering = Some(client).filter(|_| state != NOT_ANSWERING);
    (state.to_owned(), Domain::default(), answering)
}

/// The guest's state: its domain's, unless it is ending. A paused guest does not see a shutdown
/// request, which matters more.
fn of_domain(domain: &Domain, is_ending: bool) -> String {
    let grace = domain.spec.metadata.kube_virt.grace_period.as_ref();
    let is_requested = grace.is_some_and(|it| it.deletion_timestamp.is_some());
    let state = &domain.status.status;
    let is_stopping = match state {
        LifeCycle::Paused => false,
        LifeCycle::Running | LifeCycle::ShuttingDown => is_ending || is_requested,
        // In a pod it waits for virt-handler.
        _ => is_ending,
    };
    if is_stopping {
        STOPPING
    } else {
        state.as_str()
    }
    .to_owned()
}

/// As the guest agent reports them.
fn addresses(interfaces: &[InterfaceStatus]) -> Vec<String> {
    let addresses = interfaces.iter().map(|interface| &interface.ip);
    addresses
        .filter(|address| !address.is_empty())
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::control::Control;
    use super::super::vm_dir::CONTROL_SOCKET;
    use super::*;

    #[tokio::test]
    async fn a_relative_root_is_shown_as_an_absolute_path() {
        let vm = VmDir::at("no/such/vm".into());
        let root = collect(&vm).await.root;
        let expected = std::env::current_dir().unwrap().join("no/such/vm");
        assert_eq!(root, expected);
    }

    #[test]
    fn a_vm_without_a_launcher_is_lost_only_if_nobody_supervises_it() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        let runtime = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap()
        };
        let state = async || collect(&vm).await.state;
        runtime().block_on(async {
            assert_eq!(state().await, LOST);
            let (owner, _client) = tokio::net::UnixStream::pair().unwrap();
            let supervisor = Control::serve(&vm.path(CONTROL_SOCKET), owner, None).unwrap();
            assert_eq!(state().await, STARTING);
            supervisor.0.progress.phase(RunPhase::GuestDown);
            assert_eq!(state().await, STOPPING);
        });
        // A process started by another test holds the socket until its exec.
        while runtime().block_on(state()) != LOST {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_launcher_that_does_not_answer_is_asked_once() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        std::fs::create_dir_all(vm.cmd_socket().parent().unwrap()).unwrap();
        let silent = [vm.path(CONTROL_SOCKET), vm.cmd_socket()];
        let _silent = silent.map(|it| std::os::unix::net::UnixListener::bind(it).unwrap());
        let begun = tokio::time::Instant::now();
        assert_eq!(collect(&vm).await.state, NOT_ANSWERING);
        // A call's 5 seconds, and the supervisor's one, twice.
        assert!(begun.elapsed().as_secs() <= 7, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_guest_that_is_asked_to_shut_down_is_stopping() {
        let domain = |status: &str, requested: Value| {
            crate::json::domain(json!({"Status": {"Status": status}, "Spec": {"Metadata":
                {"KubeVirt": {"GracePeriod": {"DeletionTimestamp": requested}}}}}))
        };
        let asked = || json!("2026-01-01T00:00:00Z");
        assert_eq!(of_domain(&domain("Running", Value::Null), false), "Running");
        assert_eq!(of_domain(&domain("Running", Value::Null), true), STOPPING);
        assert_eq!(of_domain(&domain("Running", asked()), false), STOPPING);
        assert_eq!(of_domain(&domain("Shutoff", asked()), true), STOPPING);
        assert_eq!(of_domain(&domain("Shutoff", asked()), false), "Shutoff");
        // It sees the request once it is resumed.
        assert_eq!(of_domain(&domain("Paused", asked()), true), "Paused");
    }

    #[test]
    fn what_the_guest_agent_reports_is_read_as_it_is_written() {
        let status = json!({"Status": {"Interfaces": [{"Ip": "10.0.2.2"}, {"Ip": ""}]}});
        let domain = crate::json::domain(status);
        assert_eq!(addresses(&domain.status.interfaces), ["10.0.2.2"]);
    }
}
