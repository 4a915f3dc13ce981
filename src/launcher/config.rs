//! What a launcher is started with.

use std::path::PathBuf;
use std::sync::Arc;

use super::timeline::Timeline;

/// What a launcher is started with.
#[derive(Debug, Clone)]
pub struct LauncherConfig {
    /// The pod.
    pub pod: pod::LauncherFlags,
    /// `--name`.
    pub name: String,
    /// `--namespace`.
    pub namespace: String,
    /// `--uid`.
    pub uid: String,
    /// QEMU's log of the domain, for what it says about a guest's panic.
    pub qemu_log: Option<PathBuf>,
    /// Where libvirt writes the number of the domain's QEMU process.
    pub qemu_pid_file: PathBuf,
    /// `POD_NAME`, by which virt-handler means this pod; empty if it is not known.
    pub pod_name: String,
    /// `--vm-stats-collector`: `GetVMStats` is on.
    pub vm_stats_collector: bool,
    /// The steps of the start so far.
    pub timeline: Arc<Timeline>,
}
