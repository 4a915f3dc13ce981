//! virt-launcher: one process that owns one KubeVirt virtual machine.
#![cfg(feature = "libvirt")]
#![forbid(unsafe_code)]

mod cmd;
mod launcher;
mod nbd;
mod notify;
pub mod supervisor;
