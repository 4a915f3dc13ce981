//! The pod's small programs and `launcherctl` in one executable, which picks one by the name of the
//! link that called it or by its first argument. It never links libvirt.
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use tools::{HOOK, TOOLS, Tool};

const LAUNCHERCTL: Tool = Tool {
    name: "launcherctl",
    purpose: "run, inspect and drive a virtual machine",
    main: launcherctl::main,
};

fn main() -> ExitCode {
    os::signals::reset_inherited();
    os::version::set(env!("VIRT_LAUNCHER_VERSION"));
    call(std::env::args_os().collect())
}

/// Runs the program that this executable is named after, else the one that the first argument
/// names.
fn call(arguments: Vec<OsString>) -> ExitCode {
    let mut arguments = arguments.into_iter();
    let called = arguments.next().unwrap_or_default();
    if let Some(tool) = find(&called) {
        return run(tool, arguments.collect());
    }
    match arguments.next() {
        Some(first) if first == "--list" => {
            all().for_each(|tool| println!("{}", tool.name));
            ExitCode::SUCCESS
        }
        Some(first) if first == "--version" => print_version("pod-tools"),
        Some(first) if first == "--help" || first == "-h" => {
            println!("{}", usage());
            ExitCode::SUCCESS
        }
        Some(first) => match find(&first) {
            Some(tool) => run(tool, arguments.collect()),
            None => refuse(&format!("unknown tool {}", first.to_string_lossy())),
        },
        None => refuse("the name of a tool is missing"),
    }
}

fn all() -> impl Iterator<Item = &'static Tool> {
    [&LAUNCHERCTL].into_iter().chain(TOOLS)
}

fn find(called: &OsStr) -> Option<&'static Tool> {
    let name = Path::new(called).file_name()?;
    // libvirt calls its hook by the hook's name.
    let name = if name == HOOK {
        OsStr::new("libvirt-hook-client")
    } else {
        name
    };
    all().find(|tool| tool.name == name)
}

fn run(tool: &Tool, arguments: Vec<OsString>) -> ExitCode {
    os::signals::release_end_signals();
    // sidecar-shim's --version means the hook protocol's version.
    if tool.name != "sidecar-shim" && matches!(&arguments[..], [only] if only == "--version") {
        return print_version(tool.name);
    }
    (tool.main)(arguments)
}

fn print_version(program: &str) -> ExitCode {
    println!("{program} {}", os::version::get());
    ExitCode::SUCCESS
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("pod-tools: {problem}\n\n{}", usage());
    ExitCode::from(2)
}

fn usage() -> String {
    let tools: String = all()
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
        assert_eq!(
            find(OsStr::new("/etc/libvirt/hooks/qemu")).map(|t| t.name),
            Some("libvirt-hook-client")
        );
        assert!(find(OsStr::new("/usr/bin/pod-tools")).is_none());
        assert!(find(OsStr::new("")).is_none());
    }
}
