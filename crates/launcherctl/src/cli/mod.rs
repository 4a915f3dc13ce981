//! The command line.
//!
//! ```text
//!  from files       convert · explain                        neither a launcher nor libvirt nor root
//!  a VM             run                                       starts a launcher and does virt-handler's part
//!  VMs of run       list · console · logs · stop · …          by name
//!  a launcher       query · lifecycle · plan · volumes · …    one call, by Target and Client
//! ```
//!
//! Each verb is a line of [`Verb`], with its help and its arguments, and a line of [`perform`],
//! with its function.

mod help;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::{Shell, generate};

use crate::error::{CtlError, RuntimeError};
use crate::files::FileError;
use crate::verbs::target::VmArgs;
use crate::view::output::{Format, print_bytes, print_error};
use crate::{host, verbs};
use api::Action;

/// Runs, inspects and drives a KubeVirt virtual machine on this machine.
#[derive(Debug, Parser)]
#[command(name = "launcherctl", version = os::version::get(), arg_required_else_help = true)]
struct Cli {
    /// What to print: text for a person, or json for a program
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Text, hide_possible_values = true,
        global = true, help_heading = "Global options")]
    output: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a VM from a VMI or VM manifest; Ctrl-] leaves its console, and it runs on
    Run(verbs::run::RunArgs),
    /// The process behind a VM of run
    #[command(hide = true)]
    Supervise {
        /// The VM's directory
        directory: PathBuf,
    },
    /// List the VMs of run
    List,
    /// Print a VM's state, guest, addresses and files, and what is wrong with it
    Status(VmArgs),
    /// Connect to a VM's serial console; Ctrl-] leaves
    ///
    /// Without a terminal, standard input is typed into the guest, and the verb ends after it, once
    /// the guest has written nothing for a second (at most 10 seconds later); with --until, when
    /// TEXT appears. logs --console prints the console without typing anything.
    Console(verbs::console::ConsoleArgs),
    /// Log in to a guest, or run a command there, by its SSH server
    Ssh(verbs::ssh::SshArgs),
    /// Serve a VM's screen to VNC viewers, and print the address for them
    Vnc(verbs::vnc::VncArgs),
    /// Print the log of a VM's launcher, or of its console
    Logs(verbs::logs::LogsArgs),
    /// Stop VMs of run, and remove what is left of lost ones
    Stop(verbs::stop::StopArgs),
    /// Report all that is wrong with manifests: unknown fields, wrong types, refused values
    ///
    /// ConfigMaps and Secrets beside a VM are checked too. What only a cluster's scheduler reads,
    /// such as affinity and tolerations, is checked for the names of its fields, not for their
    /// values.
    Check(verbs::check::CheckArgs),
    /// Print the domain XML of a VMI
    Convert(verbs::inputs::Inputs),
    /// Print what a sync would change on the running domain, and why
    Plan(verbs::plan::PlanArgs),
    /// Print which VMI field or rule each part of the domain XML comes from
    Explain(verbs::explain::ExplainArgs),
    /// Send the VMI again, or a changed one
    ///
    /// The guest then has what the file says, as far as it can while it runs; its volumes stay. plan
    /// shows what would change.
    Sync(verbs::plan::PlanArgs),
    /// Save a picture of the guest's screen
    Screenshot(verbs::screenshot::ScreenshotArgs),
    /// Print what the guest uses: CPU, memory, disks, network interfaces
    Stats(VmArgs),
    /// What the guest agent knows, and commands in the guest
    #[command(subcommand)]
    Guest(verbs::guest::GuestVerb),
    /// Pause the guest
    Pause(VmArgs),
    /// Resume a paused guest
    Unpause(VmArgs),
    /// Reset the guest, like the reset button
    Reset(VmArgs),
    /// Ask the guest to reboot
    SoftReboot(VmArgs),
    /// Ask the guest to shut down, and wait until it is down
    ///
    /// Succeeds at once where no guest runs, as a preStop handler has to.
    Shutdown(verbs::shutdown::ShutdownArgs),
    /// Attach a file as a disk to the running guest, or put it into an empty CD-ROM drive
    Addvolume(verbs::volumes::AddArgs),
    /// Detach a disk that was attached with addvolume, or eject what is in a CD-ROM drive
    Removevolume(verbs::volumes::RemoveArgs),
    /// Migrate the running VM to another launcher on this machine
    Migrate(Box<verbs::migrate::MigrateArgs>),
    /// List the VM's volumes: target, size, serial, state and file of each
    ///
    /// The target is libvirt's name of the disk. The guest may number its disks otherwise: it finds
    /// one by its serial, in /dev/disk/by-id, or by its size.
    Volumes(VmArgs),
    /// What a launcher's developer needs: its calls, domain, metrics, start, sidecars
    #[command(subcommand)]
    Launcher(LauncherVerb),
    /// Print a shell's completions of launcherctl: source <(launcherctl completion bash)
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages of launcherctl and its verbs into a directory
    #[command(hide = true)]
    Manual {
        /// The directory
        directory: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum LauncherVerb {
    /// Check that the launcher answers
    Ping(VmArgs),
    /// Print the domain as virt-handler sees it, as JSON
    Domain(VmArgs),
    /// Print libvirt's XML of the running domain
    Dumpxml(VmArgs),
    /// Print the launcher's metrics as OpenMetrics text
    Metrics(VmArgs),
    /// Print the steps of the start, with their times
    Timeline(VmArgs),
    /// List the launcher's hook sidecars, and what each did last
    Hooks(verbs::hooks::HooksArgs),
}

/// The command line, for help, man pages and completions.
fn command() -> clap::Command {
    help::with_texts(Cli::command())
}

fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let arguments = std::iter::once(OsString::from("launcherctl")).chain(arguments);
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Entry point; `arguments` follow the program's name.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(error.exit_code().try_into().unwrap_or(2));
        }
    };
    let format = cli.output;
    match perform(cli, format) {
        Ok(code) => code,
        Err(error) => {
            print_error(format, &error.text(), error.details());
            ExitCode::FAILURE
        }
    }
}

fn perform(Cli { verb, .. }: Cli, format: Format) -> Result<ExitCode, CtlError> {
    let act = |action, args| block_on(verbs::lifecycle::act(action, args, format));
    match &verb {
        Verb::Run(args) => block_on(verbs::run::run(args, format)),
        Verb::Supervise { directory } => block_on(host::supervise::supervise(directory)),
        Verb::List => block_on(verbs::list::list(format)),
        Verb::Status(args) => block_on(verbs::status::status(args, format)),
        Verb::Console(args) => block_on(verbs::console::console(args)),
        Verb::Ssh(args) => block_on(verbs::ssh::ssh(args)),
        Verb::Vnc(args) => block_on(verbs::vnc::vnc(args, format)),
        Verb::Logs(args) => block_on(verbs::logs::logs(args, format)),
        Verb::Stop(args) => block_on(verbs::stop::stop(args, format)),
        Verb::Check(args) => verbs::check::check(args, format),
        Verb::Convert(args) => verbs::convert::convert(args, format),
        Verb::Plan(args) => block_on(verbs::plan::plan(args, format)),
        Verb::Explain(args) => verbs::explain::explain(args, format),
        Verb::Sync(args) => block_on(verbs::plan::sync(args, format)),
        Verb::Screenshot(args) => block_on(verbs::screenshot::screenshot(args, format)),
        Verb::Stats(args) => block_on(verbs::query::stats(args, format)),
        Verb::Guest(verb) => block_on(verbs::guest::guest(verb, format)),
        Verb::Pause(args) => act(Action::Pause, args),
        Verb::Unpause(args) => act(Action::Unpause, args),
        Verb::Reset(args) => act(Action::Reset, args),
        Verb::SoftReboot(args) => act(Action::SoftReboot, args),
        Verb::Shutdown(args) => block_on(verbs::shutdown::shutdown(args, format)),
        Verb::Addvolume(args) => block_on(verbs::volumes::add(args, format)),
        Verb::Removevolume(args) => block_on(verbs::volumes::remove(args, format)),
        Verb::Migrate(args) => block_on(verbs::migrate::migrate(args, format)),
        Verb::Volumes(args) => block_on(verbs::volumes::list(args, format)),
        Verb::Launcher(verb) => launcher(verb, format),
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            generate(*shell, &mut command(), "launcherctl", &mut script);
            print_bytes(&script)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Manual { directory } => {
            clap_mangen::generate_to(command(), directory)
                .map_err(FileError::on("write to", directory))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn launcher(verb: &LauncherVerb, format: Format) -> Result<ExitCode, CtlError> {
    match verb {
        LauncherVerb::Ping(args) => block_on(verbs::query::ping(args, format)),
        LauncherVerb::Domain(args) => block_on(verbs::query::domain(args, format)),
        LauncherVerb::Dumpxml(args) => block_on(verbs::query::dumpxml(args, format)),
        LauncherVerb::Metrics(args) => block_on(verbs::query::metrics(args, format)),
        LauncherVerb::Timeline(args) => block_on(verbs::query::timeline(args, format)),
        LauncherVerb::Hooks(args) => block_on(verbs::hooks::hooks(args, format)),
    }
}

fn block_on(work: impl Future<Output = Result<ExitCode, CtlError>>) -> Result<ExitCode, CtlError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().map_err(RuntimeError)?;
    let result = runtime.block_on(work);
    // A read of the terminal may still be blocked; it must not keep the program from ending.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_stand_after_the_verb_and_the_form_of_the_output_anywhere() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from).collect());
        let target = |line: &str| match parse(line).unwrap().verb {
            Verb::Launcher(LauncherVerb::Ping(args)) => args.target(),
            Verb::Pause(args) => args.target(),
            Verb::Guest(verbs::guest::GuestVerb::Info(args)) => args.target(),
            other => panic!("{other:?}"),
        };
        for line in [
            "launcher ping --name web",
            "launcher ping web",
            "pause web",
            "guest info web",
        ] {
            let target = target(line);
            assert_eq!(target.name.as_deref(), Some("web"), "{line}");
        }
        assert!(target("launcher ping --root /vm").root.is_some());
        for line in ["-o json list", "list -o json"] {
            assert_eq!(parse(line).unwrap().output, Format::Json);
        }
        for line in [
            "list --root /vm",
            "ssh web --root /vm",
            "convert vmi.yaml --root /vm",
            "launcher hooks check ./sidecar --name web",
            "run vmi.yaml --name web",
            "launcher ping --root /vm --name web",
            "stop web --all",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    /// Verbs about one VM that have another argument take the VM's name only by the option.
    #[test]
    fn a_verb_without_another_argument_takes_the_vms_name() {
        fn check(verb: &clap::Command, only_by_option: &mut Vec<String>) {
            for inner in verb.get_subcommands() {
                check(inner, only_by_option);
            }
            let mut arguments = verb.get_arguments();
            let is_about_a_vm = arguments.any(|argument| argument.get_id() == "name");
            let mut positionals = verb.get_positionals();
            let takes_name =
                positionals.any(|argument| matches!(argument.get_id().as_str(), "vm" | "vms"));
            if is_about_a_vm && !takes_name {
                only_by_option.push(verb.get_name().to_owned());
            }
        }
        let mut only_by_option = Vec::new();
        let command = command();
        for verb in command.get_subcommands() {
            check(verb, &mut only_by_option);
        }
        let expected = [
            "plan",
            "sync",
            "screenshot",
            "addvolume",
            "removevolume",
            "hooks",
        ];
        only_by_option.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(only_by_option, expected);
        for name in expected.into_iter().filter(|name| *name != "hooks") {
            let verb = command.find_subcommand(name).unwrap();
            assert!(verb.get_positionals().next().is_some(), "{name}");
        }
    }

    #[test]
    fn sync_takes_its_manifest_as_plan_does() {
        for line in ["sync a.yaml", "plan a.yaml"] {
            let words = line.split(' ').map(OsString::from).collect();
            assert!(parse(words).is_ok(), "{line}");
        }
    }

    #[test]
    fn options_of_hooks_check_stand_after_its_program_too() {
        let parse = |line: &str| parse(line.split(' ').map(OsString::from).collect());
        for line in [
            "launcher hooks check ./a -v",
            "launcher hooks check ./a -o json",
            "launcher hooks check ./watchdog {}",
            "launcher hooks check -- ./watchdog --dir {}",
            "launcher hooks check ./watchdog -- --dir={}",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        let json = parse("launcher hooks check ./a -o json").unwrap();
        assert_eq!(json.output, Format::Json);
        for (line, part) in [
            ("launcher hooks check ./a --help", "Usage: "),
            ("launcher hooks check ./a --blub", "'--blub'"),
            ("launcher hooks check ./watchdog --dir {}", "-- --dir"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn a_misspelt_verb_has_a_suggestion() {
        let error = parse(vec![OsString::from("puase")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("similar subcommand") && error.contains("'pause'"),
            "{error}"
        );
    }
}
