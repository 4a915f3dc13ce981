//! `launcherctl`: what a cluster does with a launcher, for a person or a program on one machine.
//!
//! ```text
//!  from files       convert · explain · domain-json          neither a launcher nor libvirt nor root
//!  a VM             run                                       starts a launcher and does virt-handler's part
//!  a launcher       query · lifecycle · plan · volumes · …    one call, by Target and Client
//! ```
//!
//! Each verb is a line of [`Verb`], with its help and its arguments, and a line of [`perform`], with its function.

pub(crate) mod client;
mod convert;
mod debug;
mod domain_changes;
mod error;
mod events;
mod explain;
mod files;
pub(crate) mod guest;
mod guest_calls;
mod hooks;
mod inputs;
mod json;
mod json_diff;
mod lifecycle;
mod manifest;
mod node;
mod notify_server;
mod options;
mod output;
mod plan;
mod query;
mod registry;
mod relay;
mod run;
mod screenshot;
mod shutdown;
mod stats;
mod target;
mod timeline;
mod upgrade;
mod volume_table;
mod volumes;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use api::Action;
use error::CtlError;
use output::Format;
use target::{Target, VmiTarget};

/// Runs, inspects and drives a KubeVirt virtual machine on this machine.
#[derive(Debug, Parser)]
#[command(name = "launcherctl", version = os::version::get(), arg_required_else_help = true)]
struct Cli {
    /// What to print: text for a person, or JSON for a program
    #[arg(short, long, value_enum, default_value_t = Format::Text, global = true)]
    output: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a VM from a VMI or VM manifest until it ends; Ctrl-] shuts it down
    Run(run::RunArgs),
    /// Print the domain XML of a VMI
    Convert(inputs::Inputs),
    /// Turn domain XML on standard input into Domain JSON
    DomainJson,
    /// Print what a sync would change on the running domain, and why
    Plan(plan::PlanArgs),
    /// Print which VMI field or rule each part of the domain XML comes from
    Explain(explain::ExplainArgs),
    /// Print which versions of the cmd service the launcher speaks
    Info(Target),
    /// Check that the launcher and its libvirt answer
    Ping(Target),
    /// Send the VMI again (with --vmi: a changed one)
    Sync(VmiTarget),
    /// Print the domain as virt-handler sees it
    Domain(Target),
    /// Print the version of QEMU
    QemuVersion(Target),
    /// Print the launcher's metrics as OpenMetrics text
    Metrics(Target),
    /// Write an archive for a bug report, without secrets
    Debug(debug::DebugArgs),
    /// Save a picture of the guest's screen
    Screenshot(screenshot::ScreenshotArgs),
    /// Print what the guest uses: CPU, memory, disks, network interfaces
    Stats(stats::StatsArgs),
    /// Print the steps of the start, with their times
    Timeline(timeline::TimelineArgs),
    /// What the guest agent knows, and commands in the guest
    #[command(subcommand)]
    Guest(guest::GuestVerb),
    /// Freeze the guest's file systems, for a backup
    Freeze(guest::FreezeArgs),
    /// Thaw the guest's file systems
    Unfreeze(VmiTarget),
    /// Replace the executable of a running launcher; the guest runs on
    Upgrade(upgrade::UpgradeArgs),
    /// Pause the guest
    Pause(VmiTarget),
    /// Resume a paused guest
    Unpause(VmiTarget),
    /// Reset the guest, like the reset button
    Reset(VmiTarget),
    /// Ask the guest to reboot
    SoftReboot(VmiTarget),
    /// Ask the guest to shut down; with --wait, wait until it is down
    Shutdown(shutdown::ShutdownArgs),
    /// Force the guest off
    Kill(VmiTarget),
    /// Remove the domain of an ended guest
    Delete(VmiTarget),
    /// Attach a file as a disk to the running guest
    Addvolume(volumes::AddArgs),
    /// Detach a disk that was attached with addvolume
    Removevolume(volumes::RemoveArgs),
    /// List the VM's volumes, and where the guest has them
    Volumes(Target),
    /// List the launcher's hook sidecars, and what each did last
    Hooks(hooks::HooksArgs),
    /// Print the launcher's events; with DIR, the domains of all launchers below it, and their changes
    Watch(watch::WatchArgs),
}

/// The command line, from which help, man page and completions are made.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Entry point; `arguments` are those after the program's name.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(
        std::iter::once(OsString::from("launcherctl")).chain(arguments),
    ) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match perform(cli.verb, cli.output) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("launcherctl: {}", os::logging::chain(&error));
            for detail in error.details() {
                eprintln!("  {detail}");
            }
            ExitCode::FAILURE
        }
    }
}

fn perform(verb: Verb, format: Format) -> Result<ExitCode, CtlError> {
    let act = |action, args| block_on(lifecycle::act(action, args, format));
    match &verb {
        Verb::Run(args) => block_on(run::run(args, format)),
        Verb::Convert(args) => convert::convert(args),
        Verb::DomainJson => convert::domain_json(),
        Verb::Plan(args) => block_on(plan::plan(args, format)),
        Verb::Explain(args) => explain::explain(args, format),
        Verb::Info(target) => block_on(query::info(target, format)),
        Verb::Ping(target) => block_on(query::ping(target, format)),
        Verb::Sync(args) => block_on(lifecycle::sync(args, format)),
        Verb::Domain(target) => block_on(query::domain(target, format)),
        Verb::QemuVersion(target) => block_on(query::qemu_version(target, format)),
        Verb::Metrics(target) => block_on(query::metrics(target)),
        Verb::Debug(args) => block_on(debug::debug(args, format)),
        Verb::Screenshot(args) => block_on(screenshot::screenshot(args, format)),
        Verb::Stats(args) => block_on(stats::stats(args, format)),
        Verb::Timeline(args) => block_on(timeline::timeline(args, format)),
        Verb::Guest(verb) => block_on(guest::guest(verb, format)),
        Verb::Freeze(args) => block_on(guest::freeze(args, format)),
        Verb::Unfreeze(args) => block_on(guest::unfreeze(args, format)),
        Verb::Upgrade(args) => block_on(upgrade::upgrade(args, format)),
        Verb::Pause(args) => act(Action::Pause, args),
        Verb::Unpause(args) => act(Action::Unpause, args),
        Verb::Reset(args) => act(Action::Reset, args),
        Verb::SoftReboot(args) => act(Action::SoftReboot, args),
        Verb::Shutdown(args) => block_on(shutdown::shutdown(args, format)),
        Verb::Kill(args) => act(Action::Kill, args),
        Verb::Delete(args) => act(Action::Delete, args),
        Verb::Addvolume(args) => block_on(volumes::add(args, format)),
        Verb::Removevolume(args) => block_on(volumes::remove(args, format)),
        Verb::Volumes(target) => block_on(volumes::list(target, format)),
        Verb::Hooks(args) => block_on(hooks::hooks(args, format)),
        Verb::Watch(args) => block_on(watch::watch(args, format)),
    }
}

fn block_on(work: impl Future<Output = Result<ExitCode, CtlError>>) -> Result<ExitCode, CtlError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CtlError::Runtime)?;
    let result = runtime.block_on(work);
    // A read of the terminal may still be blocked; it must not keep the program from ending.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_vmi_is_given_once_with_or_without_its_options_name() {
        for verb in ["convert", "explain"] {
            let parse = |vmi: &[&str]| Cli::try_parse_from([&["launcherctl", verb], vmi].concat());
            for vmi in [
                ["a.yaml"].as_slice(),
                &["--vmi", "a.yaml"],
                &["--vmi=a.yaml"],
            ] {
                let (Verb::Convert(inputs) | Verb::Explain(explain::ExplainArgs { inputs, .. })) =
                    parse(vmi).unwrap().verb
                else {
                    panic!()
                };
                assert_eq!(inputs.vmi(), "a.yaml");
            }
            assert!(
                parse(&[])
                    .unwrap_err()
                    .to_string()
                    .contains("<VMI|--vmi <FILE>>")
            );
            assert!(
                parse(&["a.yaml", "--vmi", "b.yaml"])
                    .unwrap_err()
                    .to_string()
                    .contains("cannot be used with")
            );
        }
    }
}
