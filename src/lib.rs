//! virt-launcher: one process that owns one KubeVirt virtual machine.
#![cfg(feature = "libvirt")]
#![forbid(unsafe_code)]

pub mod cmd;
pub mod launcher;
pub mod nbd;
pub mod notify;
pub mod supervisor;
