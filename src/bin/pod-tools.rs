//! The small tools of the pod: one executable, called through links or with the name of the tool as
//! its first argument. It never links libvirt.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    os::signals::reset_inherited();
    os::version::set(env!("VIRT_LAUNCHER_VERSION"));
    tools::main(std::env::args_os().collect())
}
