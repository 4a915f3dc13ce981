//! Why a volume of the VMI cannot be used.

use std::path::PathBuf;

use api::vmi::QuantityError;

/// A volume cannot be used: its source in the VMI, or its files in the pod, are wrong.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// virt-handler has not mounted the container disk.
    #[error(
        "no image of the container disk {image:?} at {}; has virt-handler mounted it?",
        path.display()
    )]
    NoContainerDisk {
        image: String,
        /// Where the disk's image should be.
        path: PathBuf,
    },
    /// The container image of the disk lacks something.
    #[error(
        "no {what} in the container disk {image:?}, mounted at {}; put the disk's image there, or name it in the VMI (containerDisk.path)",
        mount.display()
    )]
    NoDiskInImage {
        what: String,
        image: String,
        /// Where it is mounted.
        mount: PathBuf,
    },
    /// The container image has several disks.
    #[error(
        "the container disk {image:?} has several files in /disk ({}); one is allowed, or name it in the VMI (containerDisk.path)",
        files.join(", ")
    )]
    SeveralDisksInImage {
        image: String,
        /// The names of the files.
        files: Vec<String>,
    },
    /// A file of the kernel boot container is missing.
    #[error(
        "no {artifact:?} of the kernel boot container {image:?} below {}; is the path in the VMI right?",
        dir.display()
    )]
    NoBootArtifact {
        /// The kernel or initrd, as the VMI names it.
        artifact: String,
        image: String,
        /// Where its files should be.
        dir: PathBuf,
    },
    /// A capacity is not a quantity.
    #[error("{field}")]
    Capacity {
        /// Such as `emptyDisk.capacity`.
        field: &'static str,
        /// What is wrong with it.
        #[source]
        source: QuantityError,
    },
    /// A capacity is less than the smallest disk.
    #[error("{field}: {capacity:?} is less than 1Mi, the smallest disk")]
    TooSmall {
        /// Such as `emptyDisk.capacity`.
        field: &'static str,
        /// As in the VMI.
        capacity: String,
    },
    /// The path of a host disk does not end with a file's name.
    #[error("hostDisk.path: {path:?} does not name a file")]
    HostDiskPath {
        /// As in the VMI.
        path: String,
    },
    /// A host disk does not fit into its file system.
    #[error(
        "hostDisk.capacity: {} does not have the {needed} bytes that {path:?} needs; free some space or ask for less",
        dir.display()
    )]
    NoSpace {
        /// The directory of the host disk in the pod.
        dir: PathBuf,
        /// The path in the VMI.
        path: String,
        /// Bytes of the image.
        needed: u64,
    },
    /// On a migration target: virt-handler has not mounted all hotplugged volumes.
    #[error(
        "{} has {found} hotplugged volumes, {ready} of them ready; the VMI has {expected}",
        dir.display()
    )]
    HotpluggedNotReady {
        /// Where they are mounted.
        dir: PathBuf,
        /// How many are there.
        found: usize,
        /// How many of those can be opened.
        ready: usize,
        /// How many there should be.
        expected: usize,
    },
    /// On a migration target: the size of the source's image is not known.
    #[error(
        "failed to find the status of volume {volume}: status.volumeStatus must say how large the source's image is"
    )]
    NoSizeInStatus { volume: String },
    /// The directory of a ConfigMap, Secret or the like is missing.
    #[error("{} is not there; is the volume mounted in this pod?", dir.display())]
    NotMounted { dir: PathBuf },
    /// A Sysprep volume has no answer file.
    #[error(
        "Sysprep drive should contain {} or {} but neither were found in {}",
        names[0], names[1], dir.display()
    )]
    NoAnswerFile {
        /// The names that are accepted.
        names: [&'static str; 2],
        dir: PathBuf,
    },
}
