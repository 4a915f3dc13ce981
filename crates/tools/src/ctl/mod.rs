//! `launcherctl`: what a cluster does with a launcher, for a person or a program on one machine.
//!
//! ```text
//!  offline   convert · explain · domain-json          files in, text out; neither libvirt nor root
//!  run       starts a virt-launcher with a root of its own and plays virt-handler for it
//!  client    sync · plan · domain · pause · … · watch   one call to a running launcher
//! ```

mod client;
mod console;
mod documents;
mod error;
mod explain;
mod hooks;
mod images;
mod left_behind;
mod manifest;
mod offline;
mod options;
mod phases;
mod plan;
mod run;
mod session;
mod stop;
mod vm;
mod volumes;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use error::CtlError;

/// Runs, inspects and drives a KubeVirt virtual machine on this machine.
#[derive(Debug, Parser)]
#[command(name = "launcherctl", version = os::version::get(), arg_required_else_help = true)]
struct Cli {
    /// What to print: text for a person, or JSON for a program
    #[arg(short, long, value_enum, default_value_t = Output::Text, global = true)]
    output: Output,
    #[command(subcommand)]
    verb: Verb,
}

/// For whom output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A person.
    Text,
    /// A program.
    Json,
}

/// Which running launcher is meant.
#[derive(Debug, Clone, Default, Args)]
pub struct Target {
    /// The VM's name, as given by `launcherctl run` (needed if several are running)
    #[arg(short, long)]
    name: Option<String>,
    /// Root directory of the launcher (its --root)
    #[arg(long, conflicts_with = "name")]
    root: Option<PathBuf>,
    /// Its cmd socket
    #[arg(long, conflicts_with_all = ["name", "root"])]
    socket: Option<PathBuf>,
}

/// A call about the VM: the VMI is the one that `run` started, or one from a file.
#[derive(Debug, Args)]
struct VmiCall {
    #[command(flatten)]
    target: Target,
    /// VMI or VM manifest, YAML or JSON, in place of the one that was started
    #[arg(long)]
    vmi: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a VM from a VMI or VM manifest until it ends; Ctrl-] shuts it down
    Run(run::RunArgs),
    /// Print the domain XML of a VMI
    Convert(offline::Inputs),
    /// Turn domain XML on standard input into Domain JSON
    DomainJson,
    /// What a sync would change on the running domain, and why, without changing it
    Plan(plan::PlanArgs),
    /// For each part of the domain XML, the VMI field or the rule that it comes from
    Explain(explain::ExplainArgs),
    /// Which versions of the cmd service the launcher speaks
    Info(Target),
    /// Whether the launcher and its libvirt answer
    Ping(Target),
    /// Send the VMI again (with --vmi: a changed one)
    Sync(VmiCall),
    /// The domain as virt-handler sees it
    Domain(Target),
    /// The version of QEMU
    QemuVersion(Target),
    /// Pause the guest
    Pause(VmiCall),
    /// Let a paused guest go on
    Unpause(VmiCall),
    /// Reset the guest, as the button does
    Reset(VmiCall),
    /// Ask the guest to reboot
    SoftReboot(VmiCall),
    /// Ask the guest to shut down
    Shutdown(VmiCall),
    /// End the guest at once
    Kill(VmiCall),
    /// Forget the domain of an ended guest
    Delete(VmiCall),
    /// Attach a file as a disk to the running guest
    Addvolume(volumes::AddArgs),
    /// Detach a disk that addvolume attached
    Removevolume(volumes::RemoveArgs),
    /// The VM's volumes, and where the guest has them
    Volumes(Target),
    /// The launcher's hook sidecars, and what each did last
    Hooks(hooks::HooksArgs),
    /// Serve a notify socket and print what the launcher reports
    Watch(watch::WatchArgs),
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
    match perform(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("launcherctl: {}", os::logging::chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn perform(cli: Cli) -> Result<ExitCode, CtlError> {
    match cli.verb {
        Verb::Convert(args) => offline::convert(&args),
        Verb::DomainJson => offline::domain_json(),
        Verb::Plan(args) => block_on(plan::plan(args, cli.output)),
        Verb::Explain(args) => explain::explain(&args, cli.output),
        Verb::Run(args) => block_on(run::run(args, cli.output)),
        Verb::Addvolume(args) => block_on(volumes::add(args, cli.output)),
        Verb::Removevolume(args) => block_on(volumes::remove(args, cli.output)),
        Verb::Volumes(target) => block_on(volumes::list(target, cli.output)),
        Verb::Hooks(args) => block_on(hooks::hooks(args, cli.output)),
        Verb::Watch(args) => block_on(watch::watch(args, cli.output)),
        verb => block_on(client::call(verb, cli.output)),
    }
}

fn block_on(work: impl Future<Output = Result<ExitCode, CtlError>>) -> Result<ExitCode, CtlError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CtlError::Runtime)?;
    let result = runtime.block_on(work);
    // A read of the terminal that is still under way must not keep the program from ending.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

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
