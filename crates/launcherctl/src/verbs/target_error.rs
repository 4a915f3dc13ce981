use std::path::PathBuf;

/// Why the launcher to call is not known.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Nothing runs here.
    #[error(
        "no launcher is running here; start one with launcherctl run, or say --root or --socket"
    )]
    NoneRunning,
    /// Any running VMs are in other namespaces.
    #[error("no VM of namespace {0} runs here; launcherctl list shows those of all namespaces")]
    NoneInNamespace(String),
    /// Nothing was started in the directory of `--root`, or it has ended.
    #[error("no VM in {root}; launcherctl list shows the VMs of run, and their directories", root = .0.display())]
    NoVmIn(PathBuf),
    /// Nothing answers, as the VM has failed.
    #[error("{name} has failed: {reason}; launcherctl status {name} says more")]
    Failed { name: String, reason: String },
    /// Nothing answers yet, or any longer.
    #[error("{0} is starting or stopping; launcherctl list says which")]
    Changing(String),
    /// Nothing answers, as the launcher was killed.
    #[error("{0} has no launcher any more; launcherctl status {0} says what is left of it")]
    LauncherGone(String),
    /// The VM is in another namespace.
    #[error("the VM is not in namespace {0:?}; leave out -n, or choose another VM with --name VM")]
    OtherNamespace(String),
    /// Only the socket is known, but the verb needs files too.
    #[error("{0} needs the launcher's --root or --name, not its socket")]
    NeedsRoot(&'static str),
    /// The launcher got no VMI.
    #[error(
        "the launcher was sent no VMI since it started; give its file (--vmi FILE, or plan FILE), or wait for virt-handler's next sync"
    )]
    NeedsVmi,
}
