//! The entry point of the pod.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use os::logging;
use pod::LauncherFlags;
use pod::flags::{Parsed, usage};
use virt_launcher::supervisor::{FAILED, run};

fn main() -> ExitCode {
    // First of all: an earlier signal ends the process by itself.
    os::signals::reset_inherited();
    os::version::set(env!("VIRT_LAUNCHER_VERSION"));
    match LauncherFlags::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(flags)) => {
            logging::init("virt-launcher");
            run(*flags)
        }
        Ok(Parsed::Help) => {
            print!("{}", usage());
            ExitCode::SUCCESS
        }
        Ok(Parsed::Version) => {
            println!("virt-launcher {}", os::version::get());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}\n\n{}", logging::chain(&error), usage());
            ExitCode::from(FAILED)
        }
    }
}
