//! The pod around the launcher: its files, its host devices, its network ([`network`]).
//!
//! The file-system contract: where each volume is, what it is, and the files that the launcher
//! makes for QEMU. All of these are below one [`Root`]. The conversion's context has all that the
//! conversion needs to know of them.
//!
//! ```text
//!   VMI, options ──► collect_context ──► Context ──► (convert) ──► prepare ──► disk_modes ──► (define, start)
//! ```
//!
//! Everything here but [`network`] blocks, and is idempotent but for the device plugin's iommufd,
//! which comes once. One caller at a time makes files. A file is made beside its place and then
//! renamed, so that readers never see a part of it; only a claim's image grows in its place.
#![forbid(unsafe_code)]

mod access_credentials;
mod backup_dir;
mod block_sizes;
mod cloud_init;
mod collect;
mod config;
mod config_volumes;
mod container_disk;
pub mod daemons_parent;
mod directories;
mod disk_modes;
mod disk_source;
mod downward_metrics;
mod error;
mod expected_arrival;
pub mod firmware;
pub mod flags;
mod growth;
mod host_devices;
mod host_disk;
mod ignition;
mod image;
mod iommufd;
mod iso;
mod kernel_boot;
mod machine;
mod migration_target;
pub mod network;
mod overlay;
mod ownership;
mod prepare;
mod qemu_img;
pub mod restart;
mod root;
mod safe_path;
mod serial_log;
mod side_by_side;
mod staged;
mod sysfs;
#[cfg(test)]
mod tests;
mod thaw_timer;
mod tpm;
mod tracking;
mod volumes;

pub use access_credentials::{AccessCredentials, access_credential_dirs, access_credentials};
pub use backup_dir::BackupDir;
pub use block_sizes::{images, matches_volume};
pub use cloud_init::{
    CloudInitData, ConfigDriveMetadata, DataSource, DeviceData, ExampleCloudInit, NoCloudMetadata,
    cloud_init, device_metadata, example_cloud_init, example_cloud_init_image, write_cloud_init,
    write_empty_cloud_init,
};
pub use collect::{collect_context, of_options, of_vmi};
pub use config_volumes::ANSWER_FILES;
pub use directories::directories;
pub use disk_modes::{disk_modes, disk_ready};
pub use error::PodError;
pub use expected_arrival::{expected_arrival, forget_arrival, keep_arrival};
pub use flags::LauncherFlags;
pub use growth::max_size;
pub use host_devices::hotplug_devices;
pub use image::virtual_size;
pub use iommufd::receive_iommufd;
pub use migration_target::{
    check_hotplugged_volumes, collect_migration_target, migration_socket_dir, track_migrated,
};
pub use prepare::{prepare, prepare_migration_target};
pub use root::Root;
pub use thaw_timer::ThawTimer;
pub use tpm::sync_tpm_state;
pub use tracking::{track, untrack_unplugged};
pub use volumes::ContainerDisks;
