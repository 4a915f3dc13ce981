//! The cloud-init image.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::super::error::unusable;
use super::super::iso::{self, Tree};
use super::super::safe_path::{Dir, vmi_dir};
use super::super::{LauncherFlags, PodError, staged};
use super::data::{CloudInitData, DataSource};
use super::read::fill_in_metadata;
use api::pod_paths::{CONFIG_DRIVE_IMAGE, NO_CLOUD_IMAGE};
use api::vmi::Vmi;

/// Files of a data source: directory, then metadata, user data and network data in it.
struct Layout {
    label: &'static str,
    image: &'static str,
    directory: &'static str,
    metadata: &'static str,
    user_data: &'static str,
    network_data: &'static str,
}

const NO_CLOUD: Layout = Layout {
    label: "cidata",
    image: NO_CLOUD_IMAGE,
    directory: "",
    metadata: "meta-data",
    user_data: "user-data",
    network_data: "network-config",
};
const CONFIG_DRIVE: Layout = Layout {
    label: "config-2",
    image: CONFIG_DRIVE_IMAGE,
    directory: "openstack/latest",
    metadata: "meta_data.json",
    user_data: "user_data",
    network_data: "network_data.json",
};

fn layout(source: DataSource) -> &'static Layout {
    match source {
        DataSource::NoCloud => &NO_CLOUD,
        DataSource::ConfigDrive => &CONFIG_DRIVE,
    }
}

/// Writes the cloud-init image of the VMI, and returns its path. Leaves an image of the same data
/// as it is.
///
/// Device metadata is known only when libvirt has given addresses, so for a VMI with
/// tagged devices the launcher writes the image once more between definition and start.
///
/// # Errors
/// There are no data, or the image cannot be made.
pub fn write_cloud_init(
    flags: &LauncherFlags,
    vmi: &Vmi,
    data: &CloudInitData,
) -> Result<PathBuf, PodError> {
    write(flags, vmi, data).map_err(PodError::of(&data.volume_name))
}

fn write(flags: &LauncherFlags, vmi: &Vmi, data: &CloudInitData) -> Result<PathBuf, PodError> {
    if data.user_data.is_empty() && data.network_data.is_empty() {
        return Err(unusable!(
            "UserData or NetworkData is required for cloud-init data source"
        ));
    }
    let layout = layout(data.data_source);
    let dir = domain_dir(flags, vmi)?;
    let tree = Scratch::new(&dir)?;
    tree.fill(layout, data, &metadata(vmi, data)?)?;
    iso::make(&dir, layout.image, layout.label, &Tree::Directory(&tree.0))?;
    Ok(dir.path().join(layout.image))
}

/// Makes an image of `size` zero bytes. On a migration target the source's image arrives with the
/// disk.
///
/// # Errors
/// It cannot be written.
pub fn write_empty_cloud_init(
    flags: &LauncherFlags,
    vmi: &Vmi,
    source: DataSource,
    size: u64,
) -> Result<(), PodError> {
    staged::write_zeros(&domain_dir(flags, vmi)?, layout(source).image, size, 0o600)
}

fn domain_dir(flags: &LauncherFlags, vmi: &Vmi) -> Result<Dir, PodError> {
    let dir = vmi_dir(&flags.cloud_init_dir(), &vmi.metadata)?;
    Dir::of_pod_made(&flags.root, &dir)
}

fn metadata(vmi: &Vmi, data: &CloudInitData) -> Result<Vec<u8>, PodError> {
    let mut data = data.clone();
    let is_missing = match data.data_source {
        DataSource::NoCloud => data.no_cloud_meta_data.is_none(),
        DataSource::ConfigDrive => data.config_drive_meta_data.is_none(),
    };
    // A sidecar may have changed the data source, or left the metadata out.
    if is_missing {
        fill_in_metadata(vmi, Default::default(), &mut data);
    }
    let text = match data.data_source {
        DataSource::NoCloud => serde_json::to_vec(&data.no_cloud_meta_data.unwrap_or_default()),
        DataSource::ConfigDrive => {
            let mut metadata = data.config_drive_meta_data.unwrap_or_default();
            metadata.devices = data.devices_data;
            serde_json::to_vec(&metadata)
        }
    };
    text.map_err(|error| unusable!("cloud-init metadata cannot be written as JSON: {error}"))
}

/// The image's files while it is made. They may hold secrets, so only the launcher can read them,
/// and they are removed whatever happens.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: &Dir) -> Result<Self, PodError> {
        let path = dir.path().join("data");
        remove(&path)?;
        rustix::fs::mkdirat(dir, "data", Mode::from_raw_mode(0o700))
            .map_err(PodError::io("make the directory", &path))?;
        Ok(Self(path))
    }

    fn fill(&self, layout: &Layout, data: &CloudInitData, metadata: &[u8]) -> Result<(), PodError> {
        let dir = self.0.join(layout.directory);
        fs::create_dir_all(&dir).map_err(PodError::io("make the directory", &dir))?;
        let write = |name: &str, content: &[u8]| {
            let path = dir.join(name);
            fs::write(&path, content).map_err(PodError::io("write", &path))?;
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .map_err(PodError::io("set the mode of", &path))
        };
        write(layout.user_data, &data.user_data.0)?;
        write(layout.metadata, metadata)?;
        if !data.network_data.is_empty() {
            write(layout.network_data, &data.network_data.0)?;
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: the next attempt removes it as well.
        let _ = remove(&self.0);
    }
}

fn remove(path: &Path) -> Result<(), PodError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(PodError::io("remove the left-over", path)(e))
        }
        _ => Ok(()),
    }
}
