//! Dumps the guest's memory into a file on a volume: a job that reports in the metadata.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::admit;
use super::error::LauncherError;
use super::libvirt_domain::LibvirtDomain;
use super::requests::pause_as_requested;
use super::vm::{Job, JobKind, PauseReason, Phase, Request, Snapshot};
use libvirt::{ChangeableDomain, DomainState, PausedReason};

/// Part of each dump's name: KubeVirt's, which finds earlier dumps.
const DUMP_NAME: &str = "memory.dump";

/// Delay between attempts to resume a guest: QEMU refuses while it still writes a dump, and no
/// event reports the end.
const RESUME_RETRY_DELAY: Duration = Duration::from_secs(1);

pub struct MemoryDump {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) root: pod::Root,
}

impl MemoryDump {
    /// For the launcher's life, resumes a guest that is paused for a dump which nobody makes any
    /// more. libvirt pauses a guest for its dump and resumes it afterwards; if libvirt restarts in
    /// between, it tries that once, in vain.
    // D-vm-17 (docs/differences.md).
    pub(super) async fn resume_after_lost_dumps(self: Arc<Self>) {
        let stands_still = |vm: &Snapshot| {
            vm.phase == Phase::Paused(PauseReason::Other) && !vm.jobs.contains(&JobKind::MemoryDump)
        };
        let mut state = self.libvirt.vm.subscribe();
        loop {
            // Cannot fail: the sender lives in the VM.
            drop(state.wait_for(stands_still).await);
            match self.resume_dumped().await {
                Ok(true) => tracing::info!("Resumed the guest, whose memory dump was lost"),
                Ok(false) => drop(state.changed().await),
                Err(error) => {
                    tracing::debug!(reason = %os::logging::chain(&error), "The guest stands still for a memory dump");
                    tokio::time::sleep(RESUME_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Resumes a guest that libvirt has paused for a dump, unless it is to be paused. Returns
    /// whether it has.
    async fn resume_dumped(&self) -> Result<bool, LauncherError> {
        let (what, vm) = ("resuming the guest", self.libvirt.vm.clone());
        let resume = move |domain: Option<ChangeableDomain>| {
            let Some(domain) = domain else {
                return Ok(false);
            };
            let is_stopped = domain.state()? == DomainState::Paused(PausedReason::Dump)
                && !vm.is_pause_requested();
            if is_stopped {
                domain.resume()?;
            }
            Ok(is_stopped)
        };
        let request = Request::ResumeAfterJob;
        admit::change(&self.libvirt, request, what, resume).await
    }

    /// `VirtualMachineMemoryDump`: starts a dump to `path` in the pod. Success means that it has
    /// started, is done, or that another job prevents it: virt-handler asks again at each sync, and
    /// an error would end the whole sync. The metadata have the dump's result.
    pub fn begin(self: &Arc<Self>, path: &str) {
        let Some(name) = Path::new(path)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
        else {
            tracing::error!(path, "The path of the memory dump names no file");
            return;
        };
        if self.libvirt.vm.metadata().is_memory_dump(&name) {
            return;
        }
        let job = match self.libvirt.vm.begin(JobKind::MemoryDump) {
            Ok(job) => job,
            Err(refusal) => {
                tracing::info!(reason = %refusal, "The memory dump has to wait");
                return;
            }
        };
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.memory_dump_began(&name));
        tokio::spawn(self.clone().dump(self.root.path(path), job));
    }

    /// Dumps (`virDomainCoreDumpWithFormat`), in the place of earlier dumps.
    async fn dump(self: Arc<Self>, path: PathBuf, job: Job) {
        tracing::info!("Starting memory dump");
        let what = "dumping the guest's memory";
        let dump = move |domain: Option<ChangeableDomain>| {
            remove_earlier_dumps(path.parent().unwrap_or(Path::new("/")));
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            Ok(domain.dump_memory(&path.to_string_lossy())?)
        };
        let dumped = self
            .libvirt
            .change_in_any_time(&job.permit(), what, dump)
            .await;
        let failure = dumped.err().map(|error| os::logging::chain(&error));
        match &failure {
            None => tracing::info!("Completed memory dump successfully"),
            Some(reason) => tracing::error!(reason, "Domain memory dump failed"),
        }
        pause_as_requested(&self.libvirt, &job).await;
        let vm = &self.libvirt.vm;
        vm.change_metadata(|metadata| metadata.memory_dump_ended(failure));
        drop(job);
    }
}

/// Removes them before the next one: a volume for dumps has room for one.
fn remove_earlier_dumps(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().contains(DUMP_NAME)) {
        if let Err(error) = std::fs::remove_file(entry.path()) {
            let path = entry.path();
            tracing::error!(reason = %error, path = %path.display(), "Could not remove an earlier memory dump");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_dumps_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["vm-pvc-20260101-000000.memory.dump", "disk.img"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        remove_earlier_dumps(dir.path());
        let left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["disk.img"]);
        remove_earlier_dumps(Path::new("/nonexistent"));
    }
}
