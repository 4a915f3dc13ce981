//! Process 1 of the pod, an executable of its own: it stays in memory as long as the pod lives.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    os::signals::reset_inherited();
    os::version::set(env!("VIRT_LAUNCHER_VERSION"));
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if matches!(&arguments[..], [only] if only == "--version") {
        println!("virt-launcher-monitor {}", os::version::get());
        return ExitCode::SUCCESS;
    }
    tools::monitor::main(arguments)
}
