//! VMs on this machine: their directories, images and networks, and the supervisor that runs one.

pub mod attend;
pub mod config_data;
pub mod console;
pub mod console_hub;
mod console_log;
pub mod control;
pub mod data_volumes;
pub mod error;
pub mod facts;
pub mod failure;
pub mod image_content;
pub mod images;
pub mod launcher;
mod launcher_log;
mod launcher_start;
pub mod log_follower;
pub mod network;
pub mod own_libvirt;
pub mod processes;
pub mod registry;
pub mod remains;
pub mod sidecar_program;
pub mod sidecars;
pub mod start_args;
pub mod status;
pub mod supervise;
pub mod vm_dir;
