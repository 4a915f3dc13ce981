//! Which tool `pod-tools` is, by the name it was called with.
#![forbid(unsafe_code)]

pub mod container_disk;
pub mod libvirt_hook_client;
pub mod manual;
pub mod monitor;
pub mod sidecar_shim;
pub mod virt_freezer;
pub mod virt_probe;
pub mod virt_tail;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use manual::Manual;

/// A tool: its name, its purpose, and its entry point, which gets the arguments after its name.
struct Tool {
    name: &'static str,
    purpose: &'static str,
    main: fn(Vec<OsString>) -> ExitCode,
    manual: fn(&Tool) -> Manual,
}

impl Tool {
    fn run(&self, arguments: Vec<OsString>) -> ExitCode {
        // The monitor queues them itself, and must lose none.
        if self.name != "virt-launcher-monitor" {
            os::signals::release_end_signals();
        }
        // sidecar-shim's --version is that of the hook protocol.
        if self.name != "sidecar-shim" && matches!(&arguments[..], [only] if only == "--version") {
            return print_version(self.name);
        }
        (self.main)(arguments)
    }

    fn manual_of(&self, usage: &str) -> Manual {
        Manual::of_help(self.name, self.purpose, usage.to_owned())
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
        manual: |tool| tool.manual_of(container_disk::USAGE),
    },
    Tool {
        name: "launcherctl",
        purpose: "run, inspect and drive a virtual machine",
        main: launcherctl::main,
        manual: |tool| Manual::of_clap(launcherctl::command(), tool.purpose),
    },
    Tool {
        name: "libvirt-hook-client",
        purpose: "let the launcher change a domain that arrives by migration",
        main: crate::libvirt_hook_client::main,
        manual: |tool| tool.manual_of(libvirt_hook_client::USAGE),
    },
    Tool {
        name: "virt-launcher-monitor",
        purpose: "process 1 of the pod, around virt-launcher",
        main: crate::monitor::main,
        manual: |tool| tool.manual_of(monitor::USAGE),
    },
    Tool {
        name: "sidecar-shim",
        purpose: "make a hook sidecar of a program or script",
        main: crate::sidecar_shim::main,
        manual: |tool| tool.manual_of(sidecar_shim::USAGE),
    },
    Tool {
        name: "virt-freezer",
        purpose: "freeze and thaw the guest's file systems",
        main: crate::virt_freezer::main,
        manual: |tool| tool.manual_of(virt_freezer::USAGE),
    },
    Tool {
        name: "virt-probe",
        purpose: "probe the guest by its agent",
        main: crate::virt_probe::main,
        manual: |tool| tool.manual_of(virt_probe::USAGE),
    },
    Tool {
        name: "virt-tail",
        purpose: "print the guest's console log as it grows",
        main: crate::virt_tail::main,
        manual: |tool| tool.manual_of(virt_tail::USAGE),
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
        Some(first) if first == "--manual" || first == "--completion" => {
            print_manual(&first, &arguments.collect::<Vec<_>>())
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

/// `--manual NAME` and `--completion SHELL NAME`, of a tool or of virt-launcher.
fn print_manual(what: &OsStr, arguments: &[OsString]) -> ExitCode {
    let names: Vec<&str> = arguments.iter().filter_map(|name| name.to_str()).collect();
    let text = match (what.to_str(), names.as_slice()) {
        (Some("--manual"), [name]) => {
            find_manual(name).map(|manual| manual.page(os::version::get()))
        }
        (_, [shell, name]) => shell.parse().ok().and_then(|shell| {
            let manual = find_manual(name)?;
            Some(manual::completion(shell, &manual))
        }),
        _ => None,
    };
    match text {
        Some(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        None => refuse("--manual needs a program's name, --completion a shell's and a program's"),
    }
}

fn find_manual(name: &str) -> Option<Manual> {
    if name == "virt-launcher" {
        let purpose = "run one KubeVirt virtual machine";
        return Some(Manual::of_help(name, purpose, pod::flags::usage()));
    }
    find(OsStr::new(name)).map(|tool| (tool.manual)(tool))
}

fn find(called: &OsStr) -> Option<&'static Tool> {
    let name = Path::new(called).file_name()?;
    // libvirt runs its hook by the hook's own name.
    let name = if name == libvirt_hook_client::HOOK {
        OsStr::new("libvirt-hook-client")
    } else {
        name
    };
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
        "usage: pod-tools TOOL [ARGUMENTS]   (or a link named like the tool; --list prints the names, --version the version,\n       --manual NAME a man page, --completion bash|zsh|fish NAME a shell completion){tools}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_manual_that_names_its_options() {
        let option = |name: &str| {
            let manual = find_manual(name).unwrap();
            assert!(!manual.purpose.is_empty() && !manual.help.is_empty());
            let options = manual.options.into_iter();
            options.map(|it| it.word).collect::<Vec<_>>()
        };
        for tool in TOOLS {
            assert!(!option(tool.name).is_empty(), "{}", tool.name);
        }
        assert!(option("virt-launcher").contains(&"--qemu-timeout".to_owned()));
        assert!(option("virt-tail").contains(&"--logfile".to_owned()));
        assert!(find_manual("other").is_none());
    }

    #[test]
    fn a_tool_is_found_by_its_link() {
        assert_eq!(
            find(OsStr::new("/usr/bin/launcherctl")).map(|t| t.name),
            Some("launcherctl")
        );
        assert_eq!(
            find(OsStr::new("/etc/libvirt/hooks/qemu")).map(|t| t.name),
            Some("libvirt-hook-client")
        );
        assert!(find(OsStr::new("/usr/bin/pod-tools")).is_none());
        assert!(find(OsStr::new("")).is_none());
    }
}
