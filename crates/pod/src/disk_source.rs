//! Opens the file or device in which a disk of the domain has its data.

use std::path::Path;

use super::safe_path::{Dir, Found};
use super::{LauncherFlags, PodError};

/// Finds a file that the domain names. Its directory is one of the pod's, and the file must not be
/// a link, except for one that the launcher itself has made for an image volume.
pub(super) fn find(flags: &LauncherFlags, path: &str) -> Result<Found, PodError> {
    let refuse = || PodError::invalid(path, "it is not below the pod's root");
    let in_pod = flags.root.strip(Path::new(path)).ok_or_else(refuse)?;
    let (Some(dir), Some(name)) = (in_pod.parent(), in_pod.file_name()) else {
        return Err(refuse());
    };
    Dir::of_pod(&flags.root, &dir.to_string_lossy())?.find(&name.to_string_lossy())
}
