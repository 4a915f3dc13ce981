//! Why the pod is not as the VMI needs it.

use std::io;
use std::path::PathBuf;

use os::command::CommandError;
use os::file_error::FileError;

/// What failed, on which file or volume, why, and what to do. The message never repeats its
/// source: print the chain.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// A system call on a file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A path that a user controls leads somewhere else, or to something that is neither a file nor
    /// a block device.
    #[error("{} {what}: it is not opened, as it could lead out of the pod's volumes", path.display())]
    Hostile {
        /// The path as asked for.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An image, or another file of the pod, is of a kind that is refused.
    #[error("{}: {reason}", path.display())]
    InvalidFile {
        path: PathBuf,
        /// Why it is refused, and what to do.
        reason: String,
    },
    /// A helper program failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A name in the VMI cannot be the name of a file.
    #[error(
        "{what} {name:?} cannot be a file name: 1 to 253 characters without '/', ',', '=' and control characters, not beginning with '.', are allowed"
    )]
    FileName {
        /// Whose name it is.
        what: &'static str,
        name: String,
    },
    /// A volume, a host device, cloud-init data or the firmware cannot be used: which, why, and what
    /// to do.
    #[error("{0}")]
    Unusable(String),
    /// A file or device that a disk needs is missing. The text names the disk and its volume.
    #[error("disk {disk:?}: {reason}")]
    Absent {
        /// The disk, and the volume of the same name.
        disk: String,
        /// The missing thing, and the remedy.
        reason: String,
    },
    /// Which volume an error is about.
    #[error("volume {name:?}")]
    Volume {
        /// Its name in the VMI.
        name: String,
        /// What is wrong with it.
        source: Box<PodError>,
    },
}

/// What cannot be used, and why, as [`format!`] takes it.
macro_rules! unusable {
    ($($text:tt)+) => { $crate::PodError::Unusable(format!($($text)+)) };
}
pub(crate) use unusable;

impl PodError {
    /// Turns the system's error into ours: `map_err(PodError::io("open", &path))`.
    pub(super) fn io<E: Into<io::Error>>(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let failed = FileError::on(action, path);
        move |e| failed(e).into()
    }

    /// A file of the pod is refused.
    pub(super) fn invalid(path: impl Into<PathBuf>, reason: impl ToString) -> Self {
        Self::InvalidFile {
            path: path.into(),
            reason: reason.to_string(),
        }
    }

    /// Says which volume an error is about.
    pub(super) fn of(volume: &str) -> impl FnOnce(Self) -> Self {
        move |e| match e {
            Self::Absent { .. } => e,
            _ => Self::Volume {
                name: volume.to_owned(),
                source: Box::new(e),
            },
        }
    }

    /// The file does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::File(error) if error.source.kind() == io::ErrorKind::NotFound)
    }
}
