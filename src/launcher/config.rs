//! The launcher's configuration.

use std::path::PathBuf;
use std::sync::Arc;

use super::timeline::Timeline;
use pod::restart::Restarts;

#[derive(Debug, Clone)]
pub struct LauncherConfig {
    pub flags: pod::LauncherFlags,
    /// QEMU's log of the domain, which tells why a guest panicked.
    pub qemu_log: Option<PathBuf>,
    /// Where libvirt writes the PID of the domain's QEMU.
    pub qemu_pid_file: PathBuf,
    /// Where libvirt keeps the state of TPMs.
    pub tpm_dir: PathBuf,
    /// `POD_NAME`, virt-handler's name for this pod; empty if unknown.
    pub pod_name: String,
    /// `None` if no launcher is started again.
    pub restarts: Option<Restarts>,
    /// The steps of the start so far.
    pub timeline: Arc<Timeline>,
}
