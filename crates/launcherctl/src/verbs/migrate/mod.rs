//! `migrate`: moves a running VM of `run` to a new launcher on this machine, acting as both
//! virt-handlers.
//!
//! ```text
//!  target: SyncMigrationTarget ─► sockets ─► source: MigrateVirtualMachine ─► events until it has ended
//!                                                                               │
//!      FinalizeVirtualMachineMigration ◄─ the guest's arrival is reported ◄─────┤ the guest has left
//!      SignalTargetPodCleanup ◄─ the guest runs on in the source ◄──────────────┘ failed, or cancelled
//! ```
//!
//! libvirt and QEMU decide where the guest runs; whatever is interrupted here, it runs on one side.

mod flow;
mod options;
mod output;
mod vmi;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::run::{Incoming, receive};
use super::target::VmArgs;
use crate::error::{CtlError, RuntimeError, TextError, fail};
use crate::host::vm_dir::VmDir;
use crate::view::output::{Format, print};
use domain::Domain;
use domain::status::{LifeCycle, StateChangeReason};

use flow::{MigrationFlow, target_launcher};
use options::MigrationLimits;
use os::signals::EndSignals;
use output::MigrationOutput;

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    source: VmArgs,
    /// The launcher to start, if not the one beside this program
    #[arg(long, value_name = "FILE")]
    launcher: Option<PathBuf>,
    /// Cancel the migration after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    #[command(flatten)]
    limits: MigrationLimits,
}

/// `migrate`: moves the VM and prints the progress.
///
/// # Errors
/// It is not moved.
pub async fn migrate(args: &MigrateArgs, format: Format) -> Result<ExitCode, CtlError> {
    // From here on a signal cancels the migration instead of abandoning it.
    let mut stop = EndSignals::listen().map_err(RuntimeError)?;
    let source = args.source.target().connect().await?;
    check_place(&source.dir)?;
    let vmi = source.dir.load_vmi()?;
    let guest = source.client.domain().await?;
    check_guest(guest.as_ref())?;
    let guest = guest.unwrap_or_default();
    let incoming = Incoming {
        source: &source.dir,
        vmi: &vmi,
        emulate: guest.spec.is_emulated(),
        launcher: args.launcher.clone(),
    };
    let migrate = async |target: &VmDir, stop: &mut EndSignals| {
        let target = target_launcher(target).await?;
        let output = MigrationOutput::new(format);
        let migration = MigrationFlow::new(&source, &target, &vmi, &guest, args, output).await?;
        let summary = migration.run(stop).await?;
        let root = target.dir.root().display().to_string();
        let json = json!({"success": true, "message": summary, "root": root});
        print(format, &json, || {
            [format!("{summary}; the VM runs in {root} now")]
        });
        Ok(())
    };
    receive(&incoming, format, &mut stop, migrate).await
}

/// Refuses a VM whose files or launcher are not the new launcher's to take over.
fn check_place(dir: &VmDir) -> Result<(), TextError> {
    let root = dir.root().display();
    if !dir.is_of_run() {
        fail!(
            "the launcher in {root} was not started by launcherctl run; virtctl migrate moves a cluster's VM"
        );
    }
    if !dir.is_temporary() {
        fail!("the VM keeps its files in {root} (run --root); only a VM without --root can move");
    }
    if !dir.is_supervised() {
        fail!("the VM has lost its supervisor; launcherctl stop shuts it down");
    }
    Ok(())
}

/// Refuses a guest that cannot leave now.
fn check_guest(guest: Option<&Domain>) -> Result<(), TextError> {
    match guest.map(|guest| (&guest.status.status, &guest.status.reason)) {
        // libvirt of the target would not know why it is paused.
        Some((LifeCycle::Paused, StateChangeReason::IoError)) => fail!(
            "the guest is paused by an error of a disk, which another launcher would not know of; launcherctl status says what to do first"
        ),
        Some((LifeCycle::Running | LifeCycle::Paused, _)) => Ok(()),
        _ => fail!("the source's launcher has no running guest"),
    }
}
