//! Where a disk of the domain has its data.

use std::path::Path;

use super::confine::{Dir, Found};
use super::{Config, PodError};
use domain::disks::{Disk, DiskSource};

/// What is behind a disk. An overlay that only keeps track of changes has its data elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backend<'d> {
    /// Path in the domain, with the root; empty for an empty drive.
    pub path: &'d str,
    /// A block device, not a file.
    pub is_block: bool,
}

impl<'d> Backend<'d> {
    /// The backend of a disk.
    pub fn of(disk: &'d Disk) -> Self {
        let data_store = disk
            .source
            .data_store
            .as_ref()
            .and_then(|store| store.source.as_ref());
        let own = Self::of_source(&disk.source);
        data_store
            .map(Self::of_source)
            .filter(|store| !store.path.is_empty())
            .unwrap_or(own)
    }

    fn of_source(source: &'d DiskSource) -> Self {
        if source.file.is_empty() {
            Self {
                path: &source.dev,
                is_block: !source.dev.is_empty(),
            }
        } else {
            Self {
                path: &source.file,
                is_block: false,
            }
        }
    }
}

/// Finds a file that the domain names. Its directory is one of the pod's; its name must not be a
/// link. Only for image volumes the launcher itself has put a link there.
pub(super) fn find(cfg: &Config, path: &str) -> Result<Found, PodError> {
    let refuse = || PodError::Image {
        path: path.into(),
        reason: "it is not below the pod's root".to_owned(),
    };
    let in_pod = cfg.root.strip(Path::new(path)).ok_or_else(refuse)?;
    let (Some(dir), Some(name)) = (in_pod.parent(), in_pod.file_name()) else {
        return Err(refuse());
    };
    Dir::of_pod(&cfg.root, &dir.to_string_lossy())?.find(&name.to_string_lossy())
}
