//! The pod's small programs. The executable `pod-tools` contains them and `launcherctl`, and is
//! called through links; the monitor is an executable of its own.
#![forbid(unsafe_code)]

mod container_disk;
mod libvirt_hook_client;
pub mod monitor;
mod sidecar_shim;
mod virt_freezer;
mod virt_probe;
mod virt_tail;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

pub use libvirt_hook_client::HOOK;

#[derive(Debug)]
pub struct Tool {
    /// The name of its link.
    pub name: &'static str,
    /// One line.
    pub purpose: &'static str,
    /// Takes the arguments after the name.
    pub main: fn(Vec<OsString>) -> ExitCode,
}

/// Those of `pod-tools`.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "container-disk",
        purpose: "show where a disk image's container is",
        main: container_disk::main,
    },
    Tool {
        name: "libvirt-hook-client",
        purpose: "let the launcher change a domain that arrives by migration",
        main: libvirt_hook_client::main,
    },
    Tool {
        name: "sidecar-shim",
        purpose: "make a hook sidecar of a program or script",
        main: sidecar_shim::main,
    },
    Tool {
        name: "virt-freezer",
        purpose: "freeze and thaw the guest's file systems",
        main: virt_freezer::main,
    },
    Tool {
        name: "virt-probe",
        purpose: "probe the guest by its agent",
        main: virt_probe::main,
    },
    Tool {
        name: "virt-tail",
        purpose: "print the guest's console log as it grows",
        main: virt_tail::main,
    },
];

/// Runs a future on this thread. Fails if there can be no runtime.
fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(future))
}
