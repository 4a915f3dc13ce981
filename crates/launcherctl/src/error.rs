//! What can go wrong in `launcherctl`. Errors of what several verbs share are beside it (`client`, `registry`, …).

use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use super::backup::BackupError;
use super::client::CallError;
use super::files::{FileError, STDIN, STDIN_NAME, display_name};
use super::manifest::ManifestError;
use super::memory_dump::MemoryDumpError;
use super::migrate::MigrateError;
use super::refusal::with_remedy;
use super::registry::RegistryError;
use super::run::attach::SupervisorError;
use super::run::config_data::ConfigDataError;
use super::run::data_volumes::DataVolumeError;
use super::run::images::ImageError;
use super::run::network::NetworkError;
use os::logging::chain;

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
    /// The VMI of a manifest is refused by the conversion.
    #[error("{file}")]
    Refused {
        /// The file, or `standard input`.
        file: String,
        /// Why.
        source: Box<convert::ConvertError>,
    },
    /// The VMI cannot be explained.
    #[error(transparent)]
    Explain(#[from] convert::explain::ExplainError),
    /// The domain has no such element.
    #[error("--element {element}: the domain has no such part; {there}")]
    NoElement {
        /// The path that was given.
        element: String,
        /// What is there.
        there: String,
    },
    /// `plan --live --wanted` with the domains of two VMs.
    #[error(
        "--live has the {part} {live:?}, and --wanted {wanted:?}: these are two virtual machines"
    )]
    OtherDomain {
        /// `name` or `uuid`.
        part: &'static str,
        /// In the file of `--live`.
        live: String,
        /// In the file of `--wanted`.
        wanted: String,
    },
    /// A sidecar failed.
    #[error(transparent)]
    Hook(Box<hooks::HookError>),
    /// A sidecar's program cannot be tried.
    #[error(transparent)]
    TriedSidecar(#[from] hooks::dry_run::ProgramError),
    /// A launcher would refuse the VMI's cloud-init volume.
    #[error("the VMI's cloud-init data")]
    CloudInit(#[source] Box<pod::PodError>),
    /// No image can be made of the data that a sidecar has returned.
    #[error("the sidecar's cloud-init data has a field that cannot be used")]
    CloudInitData(#[source] serde_json::Error),
    /// A signal has ended `hooks try` or `hooks check`.
    #[error("cancelled; the sidecar has been killed")]
    SidecarCancelled,
    /// The sidecars of a VMI cannot be run.
    #[error(transparent)]
    Sidecars(#[from] super::run::sidecars::SidecarsError),
    /// A sidecar cannot be started.
    #[error(transparent)]
    SidecarProgram(#[from] super::sidecar_program::SidecarProgramError),
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
    /// More than one thing is missing or wrong.
    #[error("{} problems", .0.len())]
    Several(Vec<CtlError>),
    /// The guest's memory cannot be dumped.
    #[error(transparent)]
    MemoryDump(#[from] MemoryDumpError),
    /// The picture cannot be written under this name.
    #[error(transparent)]
    Screenshot(#[from] super::screenshot::ScreenshotError),
    /// The disks cannot be backed up.
    #[error(transparent)]
    Backup(#[from] BackupError),
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
    /// A guest that is to be shut down has not started yet.
    #[error(
        "{vm} is still starting after {} s, and was not shut down; launcherctl kill cancels its start",
        timeout.as_secs()
    )]
    StillStarting {
        /// Namespace and name.
        vm: String,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The VM is not migrated.
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    /// A VM cannot be started, or was lost.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A ConfigMap or Secret is missing.
    #[error(transparent)]
    ConfigData(#[from] ConfigDataError),
    /// A DataVolume cannot be filled.
    #[error(transparent)]
    DataVolume(#[from] DataVolumeError),
    /// The VM cannot have its network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The VM's supervisor reports a failure, or was lost.
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
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

    /// For `map_err` on the conversion of a manifest.
    pub fn refused(file: &Path) -> impl FnOnce(convert::ConvertError) -> Self {
        let file = display_name(file);
        move |source| Self::Refused {
            file,
            source: Box::new(source),
        }
    }

    /// The error with its causes, and what to do about it where that is not part of them.
    #[must_use]
    pub fn text(&self) -> String {
        let text = chain(self);
        match self {
            // They end with the first thing that is wrong.
            Self::Manifest { file, source } if source.may_be_one_of_several() => {
                with_remedy(&text, &all_problems(file))
            }
            Self::Refused { file, .. } => with_remedy(&text, &all_problems(file)),
            _ => text,
        }
    }

    /// One error of several; none if there are none.
    #[must_use]
    pub fn of_several(mut errors: Vec<Self>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Self::Several(errors)),
        }
    }

    /// The status that the program ends with.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            // clap finds it only where both stand on the same side of the verb.
            Self::Target(
                TargetError::SeveralWays
                | TargetError::NotOfRun
                | TargetError::ResyncOfVm
                | TargetError::ListensOnItsOwn,
            ) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    /// What to print below the error.
    #[must_use]
    pub fn details(&self) -> Vec<String> {
        let (log, last_error) = match self {
            Self::WithLog {
                log, last_error, ..
            } => (log, last_error),
            Self::Supervisor(SupervisorError::Failed { details, .. }) => return details.clone(),
            Self::Several(errors) => return errors.iter().map(|error| chain(error)).collect(),
            _ => return Vec::new(),
        };
        let log = format!("the launcher's log: {}", log.display());
        let last_error = last_error
            .as_ref()
            .map(|error| format!("its last error: {error}"));
        [log].into_iter().chain(last_error).collect()
    }
}

fn all_problems(file: &str) -> String {
    let file = match file {
        STDIN_NAME => STDIN,
        file => file,
    };
    format!("launcherctl check {file} shows all that is wrong")
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
    /// `run` with an option that names a running VM.
    #[error(
        "run starts a VM, whose name is its manifest's metadata.name: without --name and --socket"
    )]
    NotOfRun,
    /// All VMs that run are in other namespaces, if any.
    #[error("no VM of namespace {0} runs here; launcherctl list shows those of all namespaces")]
    NoneInNamespace(String),
    /// More than one VM runs.
    #[error("several VMs are running ({}); choose one with --name VM", .0.join(", "))]
    Several(Vec<String>),
    /// More than one VM was started here, and none runs.
    #[error("none of the VMs here is running ({}); launcherctl list says why, --name chooses one", .0.join(", "))]
    NoneOfSeveral(Vec<String>),
    /// A VM's name stands where a manifest is expected.
    #[error(
        "there is no file {0}, but a VM of this name: the argument is a manifest's file; a verb for a running VM takes --name {0}"
    )]
    NameForFile(String),
    /// `watch --resync` without a directory.
    #[error("--resync is for a directory, and this is one VM; leave it out")]
    ResyncOfVm,
    /// A launcher is named in two ways.
    #[error(
        "the VM's name, --root, --socket and --all of stop each say which VM; give one of them"
    )]
    SeveralWays,
    /// `watch --listen` with an option that names a launcher.
    #[error("watch --listen serves a socket of its own: without --name, --root and --socket")]
    ListensOnItsOwn,
    /// `--root` is not there.
    #[error("no VM in {root}: there is no such directory", root = .0.display())]
    NoDirectory(PathBuf),
    /// Nothing has been started in the directory of `--root`, or it has ended.
    #[error("no VM in {root}; launcherctl list shows the VMs of run, and their directories", root = .0.display())]
    NoVmIn(PathBuf),
    /// `stop` of a launcher that is not in the registry.
    #[error(
        "the launcher in {root} was not started here with launcherctl run, so stop does not end it; launcherctl shutdown --wait --root {root} shuts its guest down, launcherctl kill --root {root} forces it off",
        root = .0.display()
    )]
    NotStoppable(PathBuf),
    /// Nothing answers, as the VM has failed.
    #[error("{name} has failed: {reason}; launcherctl status {name} says more")]
    Failed {
        /// The VM's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Nothing answers yet, or any more.
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
    /// The VM has no interface, or none that leads here.
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
    /// Only the socket is known, and the verb needs files too.
    #[error("{0} needs the launcher's --root or --name, not its socket")]
    NeedsRoot(&'static str),
    /// The launcher has no domain.
    #[error(
        "there is no guest (yet): launcherctl timeline shows how far its start is, launcherctl logs what it waits for"
    )]
    NoDomain,
    /// The domain has no QEMU any more.
    #[error("the guest of {0} has ended; only a new start of the VM brings it back")]
    NoGuest(String),
    /// The guest cannot be asked for anything yet.
    #[error(
        "{0} is still starting, and cannot be asked to shut down yet: launcherctl shutdown --wait waits for its start, launcherctl kill cancels it"
    )]
    Starting(String),
    /// The guest agent has not been heard of.
    #[error("the guest agent has not answered yet: {}", super::refusal::NO_AGENT)]
    NoAgent,
    /// The guest stands still.
    #[error("the guest of {vm} is paused: {remedy}")]
    Paused {
        /// Namespace and name.
        vm: String,
        /// What to do first.
        remedy: &'static str,
    },
    /// `delete` would leave the guest running.
    #[error(
        "{0} has a running guest, and delete only removes the domain of an ended one; launcherctl shutdown or launcherctl kill ends it first"
    )]
    StillRunning(String),
    /// The launcher has been sent no VMI.
    #[error(
        "the launcher was sent no VMI since it started; give its file (--vmi FILE, or plan FILE), or wait for virt-handler's next sync"
    )]
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
    /// The CD-ROM drive has a medium.
    #[error(
        "the CD-ROM drive {0} has a medium; launcherctl removevolume {0} ejects it, then another can be put in"
    )]
    DriveFull(String),
    /// The CD-ROM drive has no medium.
    #[error(
        "the CD-ROM drive {0} is empty; launcherctl addvolume {0} --file FILE puts a medium into it"
    )]
    DriveEmpty(String),
    /// The guest agent reports that a file system of the volume is mounted.
    #[error(
        "by the guest agent's last report, which is up to five minutes old, {name} is mounted at {directory}: unmount it there (umount {directory}), or what is not written yet is lost; --force detaches it all the same"
    )]
    Mounted {
        /// The volume.
        name: String,
        /// Where in the guest.
        directory: String,
    },
    /// A medium for a VM whose changes are tracked.
    #[error(
        "no medium can be put into the CD-ROM drive {0} while the guest runs: the VM was started with --track-changes, and libvirt tracks the changes of qcow2 disks only; name the medium in the VMI before the start, or start the VM without --track-changes"
    )]
    TrackedDrive(String),
    /// An option for a disk, where a medium is put into a drive.
    #[error(
        "{0} is a CD-ROM drive of the VMI, which says its bus, cache and serial: leave out --bus, --cache and --serial"
    )]
    OptionOfDrive(String),
    /// A disk of this VM is the same file.
    #[error("{file} is attached already, as volume {volume} ({target})", file = file.display())]
    AlreadyAttached {
        /// The image.
        file: PathBuf,
        /// The volume that has it.
        volume: String,
        /// Where the guest has it, e.g. `sda`.
        target: String,
    },
    /// The guest still has a disk of that name, which the VMI has no more.
    #[error(
        "the guest still has a disk of volume {0:?}, which was taken out of the VMI: it goes when the guest releases it, or with a restart; choose another name"
    )]
    StillAttached(String),
    /// The launcher accepted the VMI and did not attach the disk.
    #[error("{name} was not attached: {}", why.as_deref().map_or_else(|| format!("can the launcher read {}?", image.display()), str::to_owned))]
    NotAttached {
        /// The launcher's reason, if it gives one.
        why: Option<String>,
        /// The volume.
        name: String,
        /// Its image, as the launcher sees it.
        image: PathBuf,
    },
    /// It was there when the guest started.
    #[error(
        "the VM has had volume {0:?} since its start; only a hotplugged volume can be removed while the guest runs"
    )]
    NotHotplugged(String),
    /// It is not there.
    #[error("the VM has no volume {name:?}; it has {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The VM's volumes, and the one that was probably meant.
        known: String,
    },
    /// The guest has not released the disk.
    #[error(
        "the guest has not released {name} within {} s: {}",
        timeout.as_secs(),
        if *is_medium {
            "it has mounted the medium, or locked the CD-ROM drive; unmount it there (umount, eject), then try again"
        } else {
            "it still uses the disk; unmount it there, then try again"
        }
    )]
    NotReleased {
        /// The medium of a CD-ROM drive.
        is_medium: bool,
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
    /// KVM does not run the guest.
    #[error("{0}")]
    KvmFailed(String),
    /// The launcher ended before it could be called.
    #[error("the launcher ended before it was ready ({0})")]
    EndedBeforeReady(ExitStatus),
    /// The launcher speaks other versions of the cmd service.
    #[error("the launcher speaks cmd versions {0:?}, not 1")]
    Versions(Vec<u32>),
    /// A call was needed before the launcher was ready.
    #[error("the launcher is not ready")]
    NotReady,
    /// The guest ended by a panic of its kernel.
    #[error("the guest has crashed: its kernel has panicked")]
    Panicked,
    /// The guest ended without having been shut down, or a panic that its devices have reported.
    #[error(
        "the guest has crashed: its QEMU was killed (by the kernel, if memory ran out: dmesg) or has failed"
    )]
    Crashed,
    /// The launcher ended under its guest.
    #[error("the launcher ended on its own ({0})")]
    EndedOnItsOwn(ExitStatus),
    /// The launcher ended with a failure after its guest.
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
    /// The console was closed before the text of `--until` appeared on it.
    #[error("the guest's console was closed before {0:?} appeared on it")]
    ConsoleClosed(String),
    /// The launcher is still starting the guest.
    #[error("the guest has not started within {} s; --timeout gives it more", .0.as_secs())]
    NotStarted(Duration),
    /// The text of `--until` did not appear.
    #[error("{text:?} has not appeared on the console after {} s", timeout.as_secs())]
    NotUp {
        /// The text.
        text: String,
        /// `--timeout`.
        timeout: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_of_a_manifest_leads_to_the_verb_that_finds_all() {
        let refused = |file: &str, error| CtlError::manifest(Path::new(file))(error).text();
        let text = refused("a.yaml", ManifestError::NoMemory);
        let hint = "\n  what to do: launcherctl check a.yaml shows all that is wrong";
        assert!(text.ends_with(hint), "{text}");
        let text = refused("-", ManifestError::NoName);
        assert!(
            text.ends_with("launcherctl check - shows all that is wrong"),
            "{text}"
        );
        assert!(!refused("a.yaml", ManifestError::Empty).contains("launcherctl check"));
        // check does not know the VM that runs.
        let other = ManifestError::OtherVm {
            field: "name",
            wanted: "a".to_owned(),
            running: "b".to_owned(),
        };
        assert!(!refused("a.yaml", other).contains("launcherctl check"));
    }
}
