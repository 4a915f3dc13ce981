//! `migrate`: moves a running VM to another launcher on this machine, acting as both virt-handlers.
//!
//! ```text
//!  target: SyncMigrationTarget ─► sockets ─► source: MigrateVirtualMachine ─► events until it has ended
//!                                                                               │
//!      FinalizeVirtualMachineMigration ◄─ the guest's arrival is reported ◄─────┤ the guest has left
//!      SignalTargetPodCleanup ◄─ the guest runs on in the source ◄──────────────┘ failed, or cancelled
//! ```
//!
//! libvirt and QEMU decide where the guest runs; whatever is interrupted here, it runs on one side.

pub mod error;
mod flow;
mod options;
mod output;
mod proxies;
mod record;
mod side;
mod vmi;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::run::{Incoming, receive};
use super::target::{VmArgs, check_processes};
use crate::error::{CtlError, RuntimeError, TextError, fail};
use crate::files::absolute;
use crate::host::console::is_terminal;
use crate::host::registry::{CONTROL_SOCKET, VmDir};
use crate::host::remains;
use crate::json::text_at;
use crate::view::output::{Format, print};
use client::is_migrating;
use domain::Domain;
use domain::status::{LifeCycle, StateChangeReason};

use flow::Migration;
use options::MigrationLimits;
use os::signals::EndSignals;
use output::Output;
use record::Record;
use side::Side;

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    source: VmArgs,
    /// Migrate to the launcher with this root directory (of a pod: /proc/PID/root). Without it, to
    /// a new launcher on this machine; a terminal then has the VM's console, as with `run`
    #[arg(long, value_name = "ROOT")]
    to: Option<PathBuf>,
    /// The launcher to start, if not the one beside this program
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    launcher: Option<PathBuf>,
    /// Return once the VM has moved, and leave it running, without its console
    #[arg(short, long, conflicts_with = "to")]
    detach: bool,
    /// Cancel the migration after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    #[command(flatten)]
    limits: MigrationLimits,
}

/// Arguments of `migration`.
#[derive(Debug, Args)]
pub struct MigrationArgs {
    #[command(flatten)]
    vm: VmArgs,
    /// Follow a migration that is in progress to its end
    #[arg(long)]
    follow: bool,
}

/// `migrate`: moves the VM and prints the progress.
///
/// # Errors
/// It is not moved.
pub async fn migrate(args: &MigrateArgs, format: Format) -> Result<ExitCode, CtlError> {
    // From here on a signal cancels the migration instead of abandoning it.
    let mut stop = EndSignals::listen().map_err(RuntimeError)?;
    let (source, vmi) = Side::source(&args.source.target()).await?;
    if is_migrating(source.client.domain().await?.as_ref()) {
        // A pod's needs no name.
        let name = match source.is_pod() {
            true => String::new(),
            false => format!(" {}", text_at(&vmi, "/metadata/name")),
        };
        fail!(
            "a migration of this VM is in progress; launcherctl migration{name} --follow shows it to its end"
        );
    }
    check_processes(&source.dir)?;
    let guest = source.guest().await?;
    check_disk_errors(&guest)?;
    if let Some(to) = &args.to {
        move_to(to, (&source, &vmi), args, format, &mut stop).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if source.is_pod() {
        fail!("the VM is in a pod: say with --to which launcher is to get it");
    }
    let incoming = Incoming {
        source: &source.dir,
        vmi: &vmi,
        emulate: guest.spec.is_emulated(),
        launcher: args.launcher.clone(),
        // Nobody could leave a console that is not on a terminal.
        detach: args.detach || !is_terminal(),
    };
    let migrate = async |dir: &VmDir, stop: &mut EndSignals| {
        move_to(dir.root(), (&source, &vmi), args, format, stop).await
    };
    receive(&incoming, format, &mut stop, migrate).await
}

/// libvirt of the target would not know why the guest is paused.
///
/// # Errors
/// An error of a disk has paused the guest.
fn check_disk_errors(guest: &Domain) -> Result<(), TextError> {
    let status = &guest.status;
    if status.status == LifeCycle::Paused && status.reason == StateChangeReason::IoError {
        fail!(
            "the guest is paused by an error of a disk, which another launcher would not know of; launcherctl status says what to do first"
        );
    }
    Ok(())
}

async fn move_to(
    to: &Path,
    (source, vmi): (&Side, &Value),
    args: &MigrateArgs,
    format: Format,
    stop: &mut EndSignals,
) -> Result<(), CtlError> {
    let target = Side::target(to).await?;
    let migration = Migration::new(source, &target, vmi, args, Output::new(format)).await?;
    let summary = migration.run(stop).await?;
    end_lost_source(&source.dir, text_at(vmi, "/metadata/name")).await;
    let root = absolute(target.dir.root()).display().to_string();
    let json = json!({"success": true, "message": summary, "root": root});
    print(format, &json, || {
        [format!("{summary}; the VM runs in {root} now")]
    });
    Ok(())
}

/// Ends the source's launcher if its supervisor was killed, and removes its files: the VM's name
/// leads to the target now, so nobody else would find them.
async fn end_lost_source(source: &VmDir, name: &str) {
    // A launcher that was started by hand never had one.
    let had_supervisor = source.is_of_run() && source.path(CONTROL_SOCKET).exists();
    if had_supervisor && !source.is_supervised() {
        remains::terminate(source.root()).await;
        remains::forget(name, source);
    }
}

/// `migration`: prints the last migration from the launcher.
/// The exit status is 1 if it failed.
///
/// # Errors
/// There was none, or the launcher does not answer.
pub async fn migration(args: &MigrationArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (_, client) = args.vm.target().connect().await?;
    let (mut record, output) = (Record::default(), Output::new(format));
    let mut add = |event| {
        record.add(&event);
        output.event(&event);
    };
    match client.migration_events(!args.follow).await {
        // The stream also ends with the launcher.
        Ok(mut events) => {
            while let Ok(Some(event)) = events.message().await {
                add(event);
            }
        }
        Err(error) if error.is_not_found() => {
            fail!(
                "no migration from here has begun since this launcher was started; one that brought the VM here is known to the launcher that it came from"
            );
        }
        Err(error) => return Err(error.into()),
    }
    let summary = record.summary();
    let success = record.has_succeeded();
    let json = json!({"message": summary, "success": success});
    print(format, &json, || [summary.clone()]);
    Ok(ExitCode::from(u8::from(success == Some(false))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: MigrateArgs,
    }

    #[test]
    fn a_migration_that_would_be_cancelled_at_once_is_a_wrong_argument() {
        let timeout = |seconds| Line::try_parse_from(["migrate", "--timeout", seconds]);
        assert!(timeout("0").is_err() && timeout("soon").is_err());
        assert!(timeout("1").is_ok_and(|line| line.args.timeout == Some(1)));
    }
}
