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

mod cancel;
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
use super::target::NamedVmiTarget;
use super::vm_args::VmArgs;
use crate::error::{CtlError, RuntimeError, TextError, fail};
use crate::host::console::is_terminal;
use crate::host::registry::VmDir;
use crate::json::{list_at, text_at};
use crate::reports::guest_state::is_migrating;
use crate::similar::known_names;
use crate::view::output::{Format, print};

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
    source: NamedVmiTarget,
    /// The launcher that is to get the VM: its root directory (of a pod: /proc/PID/root), or its
    /// cmd socket. Without it, a new launcher is started here, and a terminal then has the VM's
    /// console, as with `run`; without a terminal it is as with --detach
    #[arg(long, value_name = "ROOT|SOCKET")]
    to: Option<PathBuf>,
    /// The launcher to start, if not the one beside this program
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    launcher: Option<PathBuf>,
    /// Return once the VM has moved, and leave it running, without its console
    #[arg(short, long, conflicts_with = "to")]
    detach: bool,
    /// Copy the data of claim NAME too: the target has a file of its own for it
    #[arg(long = "copy-volume", value_name = "NAME", requires = "to")]
    copied: Vec<String>,
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
    let (source, vmi) = Side::source(args.source.target()).await?;
    check_copied(&args.copied, &vmi)?;
    if is_migrating(source.client.domain().await?.as_ref()) {
        fail!(
            "a migration of this VM is in progress; launcherctl migration --follow shows it to its end"
        );
    }
    if let Some(to) = &args.to {
        move_to(to, (&source, &vmi), args, format, &mut stop).await?;
        return Ok(ExitCode::SUCCESS);
    }
    if source.is_pod() {
        fail!("the VM is in a pod: say with --to which launcher is to get it");
    }
    let guest = source.guest().await?;
    let incoming = Incoming {
        source: &source.dir,
        vmi: &vmi,
        emulate: text_at(&guest, "/Spec/Type") == "qemu",
        launcher: args.launcher.clone(),
        // Nobody could leave a console that is not on a terminal.
        detach: args.detach || !is_terminal(),
    };
    let migrate = async |dir: &VmDir, stop: &mut EndSignals| {
        move_to(dir.root(), (&source, &vmi), args, format, stop).await
    };
    receive(&incoming, format, &mut stop, migrate).await
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
    let root = target.dir.root().display().to_string();
    let json = json!({"success": true, "message": summary, "root": root});
    print(format, &json, || {
        [format!("{summary}; the VM runs in {root} now")]
    });
    Ok(())
}

/// `migration`: prints the last migration from the launcher, or the one by which its VM arrived.
/// The exit status is 1 if it failed.
///
/// # Errors
/// There was none, or the launcher does not answer.
pub async fn migration(args: &MigrationArgs, format: Format) -> Result<ExitCode, CtlError> {
    let launcher = args.vm.target().resolve()?;
    let client = launcher.connect().await?;
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
            let Some(stored) = launcher.dir.as_ref().and_then(record::load) else {
                fail!(
                    "no migration from here has begun since this launcher was started; one that brought the VM here is known to the launcher that it came from"
                );
            };
            stored.into_iter().for_each(add);
        }
        Err(error) => return Err(error.into()),
    }
    drop(output);
    let summary = record.summary();
    let success = record.has_succeeded();
    let json = json!({"message": summary, "success": success});
    print(format, &json, || [summary.clone()]);
    Ok(ExitCode::from(u8::from(success == Some(false))))
}

/// Checks that the VM has the claims of `--copy-volume`.
fn check_copied(copied: &[String], vmi: &Value) -> Result<(), TextError> {
    let volumes = list_at(vmi, "/spec/volumes").iter();
    let claims = volumes.filter(|volume| vmi::is_claim(volume));
    let claims: Vec<&str> = claims.map(|volume| text_at(volume, "/name")).collect();
    match copied.iter().find(|name| !claims.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => fail!(
            "--copy-volume {name}: the VM has no such claim or data volume; it has {}",
            known_names(name, claims)
        ),
    }
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
    fn a_volume_to_copy_is_one_of_the_vms() {
        let vmi = json!({"spec": {"volumes": [{"name": "root", "containerDisk": {}},
            {"name": "logs", "dataVolume": {}}, {"name": "data", "persistentVolumeClaim": {}}]}});
        let check = |name: &str| check_copied(&[name.to_owned()], &vmi);
        assert!(check("data").is_ok() && check("logs").is_ok());
        assert!(check("root").is_err());
        let error = check("dta").err().map(|error| error.to_string());
        let text = "--copy-volume dta: the VM has no such claim or data volume; it has logs, data; did you mean data?";
        assert_eq!(error.as_deref(), Some(text));
    }

    #[test]
    fn a_migration_that_would_be_cancelled_at_once_is_a_wrong_argument() {
        let timeout = |seconds| Line::try_parse_from(["migrate", "--timeout", seconds]);
        assert!(timeout("0").is_err() && timeout("soon").is_err());
        assert!(timeout("1").is_ok_and(|line| line.args.timeout == Some(1)));
    }
}
