use std::path::PathBuf;
use std::time::Duration;

/// Why a volume cannot be added to a running VM, or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Kubernetes does not accept the volume's name.
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
        name: String,
        /// The mount point in the guest.
        directory: String,
    },
    /// A medium for a VM with tracked changes.
    #[error(
        "no medium can be put into the CD-ROM drive {0} while the guest runs: the VM was started with --track-changes, and libvirt tracks the changes of qcow2 disks only; name the medium in the VMI before the start, or start the VM without --track-changes"
    )]
    TrackedDrive(String),
    /// An option for a disk, given for a medium.
    #[error(
        "{0} is a CD-ROM drive of the VMI, which says its bus, cache and serial: leave out --bus, --cache and --serial"
    )]
    OptionOfDrive(String),
    /// Another disk of this VM uses the same file.
    #[error("{file} is attached already, as volume {volume} ({target})", file = file.display())]
    AlreadyAttached {
        file: PathBuf,
        volume: String,
        /// The guest's target, e.g. `sda`.
        target: String,
    },
    /// The guest still has a disk of that name, which the VMI no longer has.
    #[error(
        "the guest still has a disk of volume {0:?}, which was taken out of the VMI: it goes when the guest releases it, or with a restart; choose another name"
    )]
    StillAttached(String),
    /// The launcher accepted the VMI but did not attach the disk.
    #[error("{name} was not attached: {}", why.as_deref().map_or_else(|| format!("can the launcher read {}?", image.display()), str::to_owned))]
    NotAttached {
        /// The launcher's reason, if known.
        why: Option<String>,
        name: String,
        /// Its image, as the launcher sees it.
        image: PathBuf,
    },
    /// The volume existed when the guest started.
    #[error(
        "the VM has had volume {0:?} since its start; only a hotplugged volume can be removed while the guest runs"
    )]
    NotHotplugged(String),
    /// No such volume.
    #[error("the VM has no volume {name:?}; it has {known}")]
    Unknown {
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
        name: String,
        /// How long it was awaited.
        timeout: Duration,
    },
}
