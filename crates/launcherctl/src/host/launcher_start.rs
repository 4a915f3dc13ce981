//! Starts the launcher's process.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::launcher::{self, Vm};
use super::own_libvirt::keep_capabilities;
use super::processes::{find_on_path, is_executable};
use crate::error::{CtlError, RuntimeError, fail};
use crate::files::{FileError, create_private};
use crate::json::text_at;

const LAUNCHER: &str = "virt-launcher";
/// Where Debian and Fedora have the UEFI images.
const OVMF_PATH: &str = "/usr/share/OVMF";

/// Starts the launcher as a pod does, below the VM's root, for so many hook sidecars.
///
/// # Errors
/// It cannot be started.
pub(super) fn start_launcher(vm: Vm<'_>, sidecars: usize) -> Result<Child, CtlError> {
    let Vm { args, vmi, dir, .. } = vm;
    let given = args.start.launcher.clone();
    let program = given.map_or_else(installed_launcher, Ok)?;
    // To receive a guest takes libvirt's daemon.
    let libvirt = if args.incoming { "auto" } else { "embed" };
    keep_capabilities(dir.root());
    let stderr = create_private(&dir.log_file())?;
    let grace = launcher::grace(vmi).as_secs();
    // It uses KVM if it may open /dev/kvm, else it emulates.
    let mut command = Command::new(&program);
    command
        .args(["--name", vm.name()])
        .args(["--namespace", text_at(vmi, "/metadata/namespace")])
        .args(["--uid", text_at(vmi, "/metadata/uid")])
        .args(["--libvirt", libvirt, "--allow-emulation"])
        .args(["--ovmf-path", OVMF_PATH])
        .args(["--hook-sidecars", &sidecars.to_string()])
        .arg("--grace-period-seconds")
        .arg(grace.saturating_add(15).to_string())
        .arg("--root")
        .arg(dir.root())
        // libvirt stores state in the user's directories, which may be missing, another user's or
        // read-only.
        .env("XDG_RUNTIME_DIR", dir.path("/run"))
        .env("XDG_CACHE_HOME", dir.path("/cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .process_group(0)
        .kill_on_drop(true);
    let verbosity = text_at(vmi, "/metadata/labels/logVerbosity");
    if !verbosity.is_empty() {
        // As virt-controller does.
        command.env("VIRT_LAUNCHER_LOG_VERBOSITY", verbosity);
    }
    if args.start.emulate {
        command.arg("--force-emulation");
    }
    if args.incoming {
        // By its pod's name the launcher knows that it is to end if no guest comes.
        command.env("POD_NAME", format!("launcherctl-{}", std::process::id()));
    }
    Ok(command.spawn().map_err(FileError::on("start", program))?)
}

/// The launcher installed beside this program, else the one on the search path.
fn installed_launcher() -> Result<PathBuf, CtlError> {
    let me = std::env::current_exe().map_err(RuntimeError)?;
    let beside = me.with_file_name(LAUNCHER);
    if is_executable(&beside) {
        return Ok(beside);
    }
    match find_on_path(LAUNCHER) {
        Some(found) => Ok(found),
        None => fail!(
            "there is no {}, and no virt-launcher on the search path; install it there, or say --launcher FILE",
            beside.display()
        ),
    }
}
