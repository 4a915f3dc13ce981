//! The entry point of the pod.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use os::inherited::unblock_signals;
use os::logging;
use virt_launcher::supervisor::flags::{Parsed, USAGE, parse};
use virt_launcher::supervisor::{FAILED, run};

fn main() -> ExitCode {
    unblock_signals();
    match parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Run(flags)) => {
            logging::init("virt-launcher");
            run(*flags)
        }
        Ok(Parsed::Help) => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}\n\n{USAGE}", logging::chain(&error));
            ExitCode::from(FAILED)
        }
    }
}
