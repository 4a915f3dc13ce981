//! launcherctl's questions about a launcher.

use std::sync::{Arc, Mutex};

use super::libvirt_domain::LibvirtDomain;
use super::reads::xml;
use super::vm::events::IoError;
use super::vm::{Phase, Snapshot};
use api::proto::inspect::v1::{DebugResponse, FailedDisk};
use domain::Domain;
use hooks::CurrentCall;
use os::lock::lock;
use pod::restart::Restarts;

pub struct Inspection {
    pub(super) libvirt: Arc<LibvirtDomain>,
    /// `GetVMStats` is on (`--vm-stats-collector`).
    pub collects_vm_stats: bool,
    pub(super) restarts: Option<Restarts>,
    pub(super) ignored: Arc<Mutex<String>>,
    pub(super) hook: CurrentCall,
}

impl Inspection {
    /// Waits for a state newer than this generation (0 is older than all), and until libvirt has
    /// shown whether there is a domain. Returns its generation
    /// and the last document sent to virt-handler.
    pub async fn domain_after(&self, generation: u64) -> (u64, Option<Arc<Domain>>) {
        let mut state = self.libvirt.vm.subscribe();
        // Cannot fail: the sender lives as long as the VM.
        let is_newer = |vm: &Snapshot| vm.phase != Phase::Unknown && vm.generation > generation;
        let _ = state.wait_for(is_newer).await;
        let newer = self.libvirt.vm.snapshot();
        (newer.generation, newer.document)
    }

    /// What `launcherctl` asks. libvirt omits passwords from the XML unless asked for them.
    pub async fn debug(&self) -> DebugResponse {
        let snapshot = self.libvirt.vm.snapshot();
        let xml = self.libvirt.read("reading the domain", |connection, name| {
            Ok(match connection.lookup(name)? {
                Some(domain) => xml(&domain, domain.state()?)?,
                None => String::new(),
            })
        });
        let (domain_xml, problem) = match xml.await {
            Ok(xml) => (xml, None),
            Err(error) => (String::new(), Some(os::logging::chain(&error))),
        };
        DebugResponse {
            phase: phase(snapshot.phase),
            domain_xml,
            problems: problem.into_iter().collect(),
            failed_disks: self.failed_disks(),
            phase_unix_micros: snapshot.phase_since.as_microsecond(),
            is_adopted: self.libvirt.vm.is_adopted(),
            called_hook: self.hook.whom().unwrap_or_default(),
            ignored_by_libvirt: lock(&self.ignored).clone(),
            restarts: self.restarts.as_ref().map(|restarts| restarts.count),
            died_of: self.restarts.clone().unwrap_or_default().cause,
        }
    }

    fn failed_disks(&self) -> Vec<FailedDisk> {
        let failed = self.libvirt.vm.failed_disks().into_iter();
        let disk = |(volume, error)| FailedDisk {
            volume,
            has_no_space: error == IoError::NoSpace,
        };
        failed.map(disk).collect()
    }
}

/// `Starting` from the first step of a start on, as launchers before this one call it.
fn phase(phase: Phase) -> String {
    let shown = match phase {
        Phase::Preparing => Phase::Starting,
        other => other,
    };
    format!("{shown:?}")
}
