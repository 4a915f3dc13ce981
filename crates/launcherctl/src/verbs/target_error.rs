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
    /// More than one VM runs.
    #[error("several VMs are running ({}); choose one with --name VM", .0.join(", "))]
    Several(Vec<String>),
    /// Several VMs were started here, and none runs.
    #[error("none of the VMs here is running ({}); launcherctl list says why, --name chooses one", .0.join(", "))]
    NoneOfSeveral(Vec<String>),
    /// A VM's name in place of a manifest.
    #[error(
        "there is no file {0}, but a VM of this name: the argument is a manifest's file; a verb for a running VM takes --name {0}"
    )]
    NameForFile(String),
    /// The directory of `--root` does not exist.
    #[error("no VM in {root}: there is no such directory", root = .0.display())]
    NoDirectory(PathBuf),
    /// Nothing was started in the directory of `--root`, or it has ended.
    #[error("no VM in {root}; launcherctl list shows the VMs of run, and their directories", root = .0.display())]
    NoVmIn(PathBuf),
    /// `stop` for a launcher that is not in the registry.
    #[error(
        "the launcher in {root} was not started here with launcherctl run, so stop does not end it; launcherctl shutdown --wait --root {root} shuts its guest down, launcherctl kill --root {root} forces it off",
        root = .0.display()
    )]
    NotStoppable(PathBuf),
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
    /// No VM was started here.
    #[error("no VM runs here; launcherctl list shows them")]
    NoVm,
    /// More than one VM was started here.
    #[error("there are several VMs ({}); say which one, or --all", .0.join(", "))]
    ChooseByName(Vec<String>),
    /// There is no log, as in a pod, where it goes to the container's standard error.
    #[error("there is no log at {path}; in a pod it is the container's own: kubectl logs POD -c compute", path = .0.display())]
    NoLog(PathBuf),
    /// There is no log of a serial console.
    #[error("there is no log of a serial console at {path}: the VM has none, or its guest was not started", path = .0.display())]
    NoConsoleLog(PathBuf),
    /// The VM has no interface, or none with forwarded ports.
    #[error(
        "{0} has no network that leads to its SSH server; was it started with --network none, or by an older launcherctl?"
    )]
    NoNetwork(String),
    /// The VM has no serial console.
    #[error(
        "{0} has no serial console: its VMI says autoattachSerialConsole: false, or it has ended; launcherctl vnc shows its screen"
    )]
    NoConsole(String),
    /// The VM has no graphics device.
    #[error("{0} has no screen: its VMI says autoattachGraphicsDevice: false, or it has ended")]
    NoScreen(String),
    /// Only the socket is known, but the verb needs files too.
    #[error("{0} needs the launcher's --root or --name, not its socket")]
    NeedsRoot(&'static str),
    /// The launcher got no VMI.
    #[error(
        "the launcher was sent no VMI since it started; give its file (--vmi FILE, or plan FILE), or wait for virt-handler's next sync"
    )]
    NeedsVmi,
}
