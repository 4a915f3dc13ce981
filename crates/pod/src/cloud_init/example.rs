//! Cloud-init data and image of a VMI without its pod, to try hooks with.

use std::path::{Path, PathBuf};

use super::super::{LauncherFlags, PodError, Root};
use super::data::CloudInitData;
use super::image::write_cloud_init;
use super::read::cloud_init;
use api::vmi::Vmi;

/// The VMI's data as a launcher reads them, or why there are none. `empty` is an empty directory: a
/// pod without Secrets.
///
/// # Errors
/// The data are invalid.
pub fn example_cloud_init(
    empty: &Path,
    vmi: &Vmi,
) -> Result<Result<CloudInitData, &'static str>, PodError> {
    match cloud_init(&flags(empty), vmi) {
        Ok(data) => Ok(data.ok_or("the VMI has no cloud-init volume")),
        Err(error) if needs_secret(&error) => Ok(Err(
            "the VMI's cloud-init volume needs a Secret, and there is none here; give its text as userData",
        )),
        Err(error) => Err(error),
    }
}

/// Writes the image of [`example_cloud_init`] below the directory, if there are data.
///
/// # Errors
/// The data are invalid, or the image cannot be made.
pub fn example_cloud_init_image(empty: &Path, vmi: &Vmi) -> Result<Option<PathBuf>, PodError> {
    let data = example_cloud_init(empty, vmi)?.ok();
    data.map(|data| write_cloud_init(&flags(empty), vmi, &data))
        .transpose()
}

fn flags(root: &Path) -> LauncherFlags {
    LauncherFlags {
        root: Root::new(root),
        ..LauncherFlags::default()
    }
}

fn needs_secret(error: &PodError) -> bool {
    match error {
        PodError::Volume { source, .. } => needs_secret(source),
        other => other.is_not_found(),
    }
}
