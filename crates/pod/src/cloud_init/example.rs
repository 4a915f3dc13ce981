//! Cloud-init data and image of a VMI without its pod, to try hooks with.

use std::path::{Path, PathBuf};

use super::super::{LauncherFlags, PodError, Root};
use super::data::CloudInitData;
use super::image::write_cloud_init;
use super::read::cloud_init;
use api::vmi::Vmi;

/// The cloud-init data of a VMI.
#[derive(Debug)]
pub enum ExampleCloudInit {
    Data(Box<CloudInitData>),
    NoVolume,
    /// A Secret that they need, or a key of it, is not there.
    NeedsSecret,
}

/// The VMI's data as a launcher reads them. `root` stands for a pod's root directory, which may
/// have the Secrets.
///
/// # Errors
/// The data are invalid.
pub fn example_cloud_init(root: &Path, vmi: &Vmi) -> Result<ExampleCloudInit, PodError> {
    match cloud_init(&flags(root), vmi) {
        Ok(Some(data)) => Ok(ExampleCloudInit::Data(Box::new(data))),
        Ok(None) => Ok(ExampleCloudInit::NoVolume),
        Err(error) if needs_secret(&error) => Ok(ExampleCloudInit::NeedsSecret),
        Err(error) => Err(error),
    }
}

/// Writes the image of [`example_cloud_init`] below the directory, if there are data.
///
/// # Errors
/// The data are invalid, or the image cannot be made.
pub fn example_cloud_init_image(root: &Path, vmi: &Vmi) -> Result<Option<PathBuf>, PodError> {
    match example_cloud_init(root, vmi)? {
        ExampleCloudInit::Data(data) => write_cloud_init(&flags(root), vmi, &data).map(Some),
        ExampleCloudInit::NoVolume | ExampleCloudInit::NeedsSecret => Ok(None),
    }
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
