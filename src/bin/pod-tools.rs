//! The small tools of the pod: one executable, called through links or with the name of the tool as
//! its first argument. It never links libvirt.

use std::process::ExitCode;

fn main() -> ExitCode {
    virt_launcher::inherited::unblock_signals();
    virt_launcher::tools::main(std::env::args_os().collect())
}
