//! virt-launcher: one process that owns one KubeVirt virtual machine.

pub mod cmd;
pub mod container_disk;
pub mod convert;
pub mod ctl;
pub mod domain;
#[cfg(feature = "libvirt")]
pub mod faults;
pub mod fs_events;
pub mod hooks;
pub mod inherited;
#[cfg(feature = "libvirt")]
pub mod launcher;
#[cfg(feature = "libvirt")]
pub mod libvirt;
pub mod logging;
pub mod notify;
pub mod plan;
pub mod pod;
pub mod proto;
pub mod sidecar_shim;
#[cfg(feature = "libvirt")]
pub mod supervisor;
pub mod tools;
pub mod virt_tail;
pub mod vmi;
pub mod waiting;
