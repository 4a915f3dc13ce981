//! Cloud-init: user data, network data and metadata for the guest, on an ISO image in one of two
//! forms that cloud-init knows as data sources.

mod data;
mod devices;
mod example;
mod image;
mod read;

pub use data::{CloudInitData, ConfigDriveMetadata, DataSource, DeviceData, NoCloudMetadata};
pub use devices::device_metadata;
pub use example::{ExampleCloudInit, example_cloud_init, example_cloud_init_image};
pub use image::{write_cloud_init, write_empty_cloud_init};
pub use read::cloud_init;
