use std::path::PathBuf;

/// A migration does not start, or fails.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// `--to` is neither a root nor a socket below one.
    #[error(
        "--to {path}: neither a launcher's root directory nor its cmd socket below one; for a pod, give /proc/PID/root of its launcher",
        path = .0.display()
    )]
    Target(PathBuf),
    /// A launcher in a pod is not started here.
    #[error("the VM is in a pod: say with --to which launcher is to get it")]
    NeedsTarget,
    /// Source and target are the same launcher.
    #[error("source and target are the same launcher, in {}", .0.display())]
    SameLauncher(PathBuf),
    /// The source does not report its migrations.
    #[error(
        "the source's launcher does not say what a migration does (KubeVirt's does not): it can only be a target"
    )]
    NoReports,
    /// The launcher has sent no VM, and the VM did not arrive by `migrate`.
    #[error(
        "no migration from here has begun since this launcher was started; one that brought the VM here is known to the launcher that it came from"
    )]
    NoMigration,
    /// No claim or data volume has the name of `--copy-volume`.
    #[error("--copy-volume {name}: the VM has no such claim or data volume; it has {known}")]
    UnknownVolume {
        name: String,
        /// The VM's claims and data volumes, and the one that was probably meant.
        known: String,
    },
    /// The target has no file for a volume to copy.
    #[error(
        "--copy-volume {0}: the target has no file to copy it to, {path}; truncate -s SIZE makes one, as large as the volume",
        path = .1.display()
    )]
    NoCopy(String, PathBuf),
    /// There is nothing to migrate.
    #[error("the source's launcher has no running guest")]
    NoGuest,
    /// A migration is in progress.
    #[error(
        "a migration of this VM is in progress; launcherctl migration --follow shows it to its end"
    )]
    InProgress,
    /// The target has a guest already.
    #[error("the target's launcher in {} has a guest already", .0.display())]
    TargetInUse(PathBuf),
    /// The target's libvirt cannot be reached.
    #[error(
        "the target's launcher runs libvirt without a daemon, and cannot receive a VM: {} is missing; install it (Debian: libvirt-daemon), and start the launcher with --libvirt auto",
        .0.display()
    )]
    NoDaemon(PathBuf),
    /// One is in a pod, the other has its own root.
    #[error(
        "the files of source and target are at different places ({source_root} and {target_root}): both have to be in pods (root /), or both below a --root of their own"
    )]
    Roots {
        /// Where the source has its files.
        source_root: String,
        /// Where the target has them.
        target_root: String,
    },
    /// libvirt or QEMU could not use a socket.
    #[error(
        "{path}: a path of {length} bytes, but sockets have at most {limit}; to be migrated, the VM needs a directory whose path is {excess} bytes shorter (run's --root or TMPDIR)",
        path = path.display(), excess = length - limit
    )]
    PathTooLong {
        path: PathBuf,
        /// In bytes.
        length: usize,
        /// In bytes.
        limit: usize,
    },
    /// A socket that leads to the target cannot be made.
    #[error("cannot make the socket {}", .0.display())]
    Socket(PathBuf, #[source] std::io::Error),
    /// A signal came before it started.
    #[error("cancelled before the migration began; the guest runs on where it was")]
    Cancelled,
    /// The migration failed or was cancelled.
    #[error("the VM is not migrated, and {guest}: {reason}")]
    Failed {
        /// The launcher's reason.
        reason: String,
        /// Where the guest is.
        guest: String,
    },
    /// The guest has left, but has not arrived in time.
    #[error(
        "the guest has left the source, and its arrival at the target in {root} is not reported after {1} s; the target's log says more",
        root = .0.display()
    )]
    NotArrived(PathBuf, u64),
}
