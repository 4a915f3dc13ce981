//! What can go wrong in `launcherctl`. Errors of what several verbs share are beside it (`client`, `registry`, …).

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::client::CallError;
use super::files::{FileError, display_name};
use super::manifest::ManifestError;
use super::registry::RegistryError;
use super::run::images::ImageError;

/// A failure of a verb, in a line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CtlError {
    /// The async runtime could not start.
    #[error("cannot start the runtime")]
    Runtime(#[source] std::io::Error),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A manifest is not a VMI or VM.
    #[error("{file}")]
    Manifest {
        /// The file, or `standard input`.
        file: String,
        /// What is wrong with it.
        source: Box<ManifestError>,
    },
    /// A file is not the JSON document that it should be.
    #[error("{file}")]
    Json {
        /// The file, or `standard input`.
        file: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A file is not domain XML.
    #[error("{file}")]
    Xml {
        /// The file, or `standard input`.
        file: String,
        /// What is wrong with it.
        source: Box<domain::xml::ReadError>,
    },
    /// The VMI is refused by the conversion.
    #[error(transparent)]
    Convert(#[from] convert::ConvertError),
    /// The VMI cannot be explained.
    #[error(transparent)]
    Explain(#[from] convert::explain::ExplainError),
    /// The domain has no such element.
    #[error("--element {0}: the domain has nothing there; without it, everything is listed")]
    NoElement(String),
    /// A sidecar failed.
    #[error(transparent)]
    Hook(Box<hooks::HookError>),
    /// The launcher to call is not known.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The registry of VMs cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A call to a launcher failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The launcher's executable is not the new one.
    #[error(transparent)]
    Upgrade(#[from] super::upgrade::UpgradeError),
    /// An image cannot be given to the VM.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A volume cannot be added or removed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Another program serves the notify socket.
    #[error(
        "{0} is served by another program already, such as virt-handler, which would lose the events printed here; launcherctl domain shows the state"
    )]
    NotifySocketInUse(String),
    /// The guest has been asked to shut down, and runs on.
    #[error(
        "the guest has not shut down within {} s; launcherctl kill forces it off",
        timeout.as_secs()
    )]
    NotDown {
        /// How long it was waited for.
        timeout: Duration,
        /// Why it could not be asked, the last time.
        source: Option<CallError>,
    },
    /// A VM cannot be started, or was lost.
    #[error(transparent)]
    Run(#[from] RunError),
    /// `run` failed, and its launcher has written a log.
    #[error("run failed")]
    WithLog {
        /// What failed.
        source: Box<CtlError>,
        /// The log file.
        log: PathBuf,
        /// The last error in it, unless the source says the same.
        last_error: Option<String>,
    },
}

impl CtlError {
    /// For `map_err` on what is read from a manifest.
    pub fn manifest(file: &Path) -> impl FnOnce(ManifestError) -> Self {
        let file = display_name(file);
        move |source| Self::Manifest {
            file,
            source: Box::new(source),
        }
    }

    /// What to print below the error.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        let Self::WithLog {
            log, last_error, ..
        } = self
        else {
            return Vec::new();
        };
        let log = format!("the launcher's log: {}", log.display());
        let last_error = last_error
            .as_ref()
            .map(|error| format!("its last error: {error}"));
        [log].into_iter().chain(last_error).collect()
    }
}

/// Why the launcher to call is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Nothing runs here.
    #[error(
        "no launcher is running here; start one with launcherctl run, or say --root or --socket"
    )]
    NoneRunning,
    /// More than one VM runs.
    #[error("several VMs are running ({}); choose with --name", .0.join(", "))]
    Several(Vec<String>),
    /// Only the socket is known, and the verb needs files too.
    #[error("{0} needs the launcher's --root or --name, not its socket")]
    NeedsRoot(&'static str),
    /// The launcher has no domain, whose VMI a call could be about.
    #[error("the launcher has no domain; give the VMI with --vmi")]
    NoDomain,
    /// Only the socket is known, and not the VMI.
    #[error("--socket needs the VMI too: give it with --vmi")]
    NeedsVmi,
}

/// A volume cannot be added to a running VM, or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The name is not one that Kubernetes takes for a volume.
    #[error(
        "invalid volume name {0:?}: at most 63 characters of a to z, 0 to 9 and '-', and no '-' at its beginning or end"
    )]
    InvalidName(String),
    /// The name is taken.
    #[error("the VM has a volume {0:?} already")]
    NameTaken(String),
    /// The launcher accepted the VMI and did not attach the disk.
    #[error("{name} was not attached; can the launcher read {image}?", image = image.display())]
    NotAttached {
        /// The volume.
        name: String,
        /// Its image, as the launcher sees it.
        image: PathBuf,
    },
    /// It is not there, or is not a hotplugged one.
    #[error("the VM has no hotplugged volume {0:?}; launcherctl volumes lists them")]
    NotHotplugged(String),
    /// The guest has not released the disk.
    #[error(
        "the guest has not released {name} within {} s; is it still in use there?",
        timeout.as_secs()
    )]
    NotReleased {
        /// The volume.
        name: String,
        /// How long it was waited for.
        timeout: Duration,
    },
}

/// `run` could not start its VM, or lost it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another launcher uses the directory.
    #[error("a launcher is running in {root}; end it first or choose another --root", root = .0.display())]
    RootInUse(PathBuf),
    /// All names for directories of VMs are taken.
    #[error("no free directory name in {directory}", directory = .0.display())]
    NoFreeName(PathBuf),
    /// The root is too long for the sockets below it.
    #[error(
        "{root}: a path of {length} bytes, but the sockets below it leave {limit}; choose a shorter directory with --root (or TMPDIR)",
        root = root.display()
    )]
    RootTooLong {
        /// The root.
        root: PathBuf,
        /// Its length in bytes.
        length: usize,
        /// The most bytes it may have.
        limit: usize,
    },
    /// The launcher ended before it could be called.
    #[error("the launcher ended before it was ready ({0})")]
    EndedBeforeReady(ExitStatus),
    /// The launcher speaks other versions of the cmd service.
    #[error("the launcher speaks cmd versions {0:?}, not 1")]
    Versions(Vec<u32>),
    /// A call was needed before the launcher was ready.
    #[error("the launcher is not ready")]
    NotReady,
    /// The launcher ended under its guest.
    #[error("the launcher ended on its own ({0})")]
    EndedOnItsOwn(ExitStatus),
    /// The launcher ended with a failure after its guest.
    #[error("the launcher ended with {0}")]
    LauncherFailed(ExitStatus),
    /// The launcher did not end after its guest.
    #[error("the launcher has not ended {} s after its domain", .0.as_secs())]
    StillRunning(Duration),
    /// The guest ended before the text of `--until` appeared.
    #[error("the guest ended before it was up")]
    EndedBeforeUp,
    /// The text of `--until` did not appear.
    #[error("{text:?} has not appeared on the console after {} s", timeout.as_secs())]
    NotUp {
        /// The text.
        text: String,
        /// `--timeout`.
        timeout: Duration,
    },
}
