//! Which tool `pod-tools` is, by the name it was called with.
#![forbid(unsafe_code)]

pub mod container_disk;
pub mod ctl;
pub mod monitor;
pub mod sidecar_shim;
pub mod virt_tail;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// A tool: its name, its purpose, and its entry point, which gets the arguments after its name.
struct Tool {
    name: &'static str,
    purpose: &'static str,
    main: fn(Vec<OsString>) -> ExitCode,
}

impl Tool {
    fn run(&self, arguments: Vec<OsString>) -> ExitCode {
        // sidecar-shim's --version is that of the hook protocol.
        if self.name != "sidecar-shim" && matches!(&arguments[..], [only] if only == "--version") {
            return print_version(self.name);
        }
        (self.main)(arguments)
    }
}

fn print_version(program: &str) -> ExitCode {
    println!("{program} {}", os::version::get());
    ExitCode::SUCCESS
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "container-disk",
        purpose: "show where a disk image's container is",
        main: crate::container_disk::main,
    },
    Tool {
        name: "launcherctl",
        purpose: "run, inspect and drive a virtual machine",
        main: crate::ctl::main,
    },
    Tool {
        name: "virt-launcher-monitor",
        purpose: "process 1 of the pod, around virt-launcher",
        main: crate::monitor::main,
    },
    Tool {
        name: "sidecar-shim",
        purpose: "make a hook sidecar of a program or script",
        main: crate::sidecar_shim::main,
    },
    Tool {
        name: "virt-tail",
        purpose: "print the guest's console log as it grows",
        main: crate::virt_tail::main,
    },
];

/// Runs the tool with the program's own name, else the one that the first argument names.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let called = arguments.next().unwrap_or_default();
    if let Some(tool) = find(&called) {
        return tool.run(arguments.collect());
    }
    match arguments.next() {
        Some(first) if first == "--list" => {
            TOOLS.iter().for_each(|tool| println!("{}", tool.name));
            ExitCode::SUCCESS
        }
        Some(first) if first == "--version" => print_version("pod-tools"),
        Some(first) if first == "--help" || first == "-h" => {
            println!("{}", usage());
            ExitCode::SUCCESS
        }
        Some(first) => match find(&first) {
            Some(tool) => tool.run(arguments.collect()),
            None => refuse(&format!("unknown tool {}", first.to_string_lossy())),
        },
        None => refuse("the name of a tool is missing"),
    }
}

fn find(called: &OsStr) -> Option<&'static Tool> {
    let name = Path::new(called).file_name()?;
    TOOLS.iter().find(|tool| tool.name == name)
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("pod-tools: {problem}\n\n{}", usage());
    ExitCode::from(2)
}

fn usage() -> String {
    let tools: String = TOOLS
        .iter()
        .map(|tool| format!("\n  {:<22} {}", tool.name, tool.purpose))
        .collect();
    format!(
        "usage: pod-tools TOOL [ARGUMENTS]   (or a link named like the tool; --list prints the names, --version the version){tools}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_its_link() {
        assert_eq!(
            find(OsStr::new("/usr/bin/launcherctl")).map(|t| t.name),
            Some("launcherctl")
        );
        assert!(find(OsStr::new("/usr/bin/pod-tools")).is_none());
        assert!(find(OsStr::new("")).is_none());
    }
}
