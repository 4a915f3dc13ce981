use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a VM cannot be started, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another launcher uses the directory.
    #[error("a launcher is running in {root}; end it first or choose another --root", root = .0.display())]
    RootInUse(PathBuf),
    /// All directory names for VMs are taken.
    #[error("no free directory name in {directory}", directory = .0.display())]
    NoFreeName(PathBuf),
    /// The root is too long for the sockets below it.
    #[error(
        "{root}: a path of {length} bytes, but the sockets below it leave {limit}; choose a shorter directory with --root (or TMPDIR)",
        root = root.display()
    )]
    RootTooLong {
        root: PathBuf,
        /// In bytes.
        length: usize,
        /// In bytes.
        limit: usize,
    },
    /// KVM cannot run the guest.
    #[error("{0}")]
    KvmFailed(String),
    /// The launcher ended before it could be called.
    #[error("the launcher ended before it was ready ({0})")]
    EndedBeforeReady(ExitStatus),
    /// The launcher supports only other versions of the cmd service.
    #[error("the launcher speaks cmd versions {0:?}, not 1")]
    Versions(Vec<u32>),
    /// A call was needed before the launcher was ready.
    #[error("the launcher is not ready")]
    NotReady,
    /// A panic of its kernel ended the guest.
    #[error("the guest has crashed: its kernel has panicked")]
    Panicked,
    /// The guest ended without a shutdown or a panic reported by its devices.
    #[error(
        "the guest has crashed: its QEMU was killed (by the kernel, if memory ran out: dmesg) or has failed"
    )]
    Crashed,
    /// The launcher ended under its guest.
    #[error("the launcher ended on its own ({0})")]
    EndedOnItsOwn(ExitStatus),
    /// The launcher failed after its guest had ended.
    #[error("the launcher ended with {0}")]
    LauncherFailed(ExitStatus),
    /// There is no launcher to start.
    #[error(
        "there is no {}, and no virt-launcher on the search path; install it there, or say --launcher FILE",
        .0.display()
    )]
    NoLauncher(PathBuf),
    /// The launcher did not end after its guest.
    #[error("the launcher has not ended {} s after its domain", .0.as_secs())]
    StillRunning(Duration),
    /// The guest ended before the text of `--until` appeared.
    #[error("the guest ended before it was up")]
    EndedBeforeUp,

    /// The launcher is still starting the guest.
    #[error("the guest has not started within {} s; --timeout gives it more", .0.as_secs())]
    NotStarted(Duration),
    /// The text of `--until` did not appear.
    #[error("{0:?} has not appeared on the console after {seconds} s", seconds = .1.as_secs())]
    NotUp(String, Duration),
}
