//! `stop`: ends VMs of `run`, and removes the remains of lost ones.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::timeout;

use super::screen::Screen;
use super::shutdown::shut_down;
use super::target::Target;
use crate::error::{CtlError, fail};
use crate::files::absolute;
use crate::host::control::{ControlClient, ControlRequest, SupervisorError, Update};
use crate::host::failure::Failure;
use crate::host::processes::{guest, terminate_all};
use crate::host::registry;
use crate::host::remains::forget;
use crate::host::vm_dir::VmDir;
use crate::view::output::{Format, print};

/// Limit for a supervisor to end a VM at once: longer than its launcher and its QEMU have together.
const FORCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit for a killed supervisor to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The result for a VM that had a supervisor.
const ENDED: &str = "has ended";

/// Arguments of `stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The VMs' names; may be left out if there is only one
    #[arg(value_name = "VM", conflicts_with_all = ["all", "name", "root"])]
    vms: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// All VMs
    #[arg(long, conflicts_with_all = ["name", "root"])]
    all: bool,
    /// Do not ask the guest to shut down, or wait no longer for a guest that was asked
    #[arg(short, long)]
    force: bool,
}

/// `stop`.
///
/// # Errors
/// There is no such VM, or it does not end.
pub async fn stop(args: &StopArgs, format: Format) -> Result<ExitCode, CtlError> {
    let mut errors = Vec::new();
    for dir in chosen(args)? {
        let name = dir.name();
        // One that is refused keeps no other from its end.
        match stop_one(&name, &dir, args.force, format).await {
            Ok(text) => {
                let json = json!({"name": name, "message": text});
                print(format, &json, || [format!("{name}: {text}")]);
            }
            Err(error) => errors.push(error),
        }
    }
    CtlError::of_several(errors).map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The VMs to stop: all if requested, the named ones, else the only one.
fn chosen(args: &StopArgs) -> Result<Vec<VmDir>, CtlError> {
    if args.all {
        return registry::all();
    }
    if !args.vms.is_empty() {
        return args.vms.iter().map(|name| registry::find(name)).collect();
    }
    let dir = args.target.resolve()?;
    if dir.name().is_empty() {
        let root = dir.root().display();
        fail!(
            "no VM in {root} is of launcherctl run; launcherctl shutdown --root {root} shuts another launcher's guest down"
        );
    }
    Ok(vec![dir])
}

async fn stop_one(
    name: &str,
    dir: &VmDir,
    force: bool,
    format: Format,
) -> Result<String, CtlError> {
    let screen = Screen::new(format);
    // A supervisor that ends normally removes the name.
    let has_ended = || registry::find(name).is_err() && !dir.is_of_run();
    let Some(mut control) = ControlClient::connect(dir).await else {
        return match has_ended() {
            true => Ok(ENDED.to_owned()),
            false => stop_unsupervised(name, dir, force, &screen).await,
        };
    };
    let supervisor = control.process();
    let (request, limit) = match force {
        true => (ControlRequest::Force, FORCE_TIMEOUT),
        // No limit here: the supervisor keeps to the grace period (`grace` in host/launcher.rs).
        false => (ControlRequest::Stop, Duration::MAX),
    };
    control.request(request).await;
    match timeout(limit, until_ended(&mut control, &screen)).await {
        Ok(Err(error)) if !matches!(error.of(), Some(SupervisorError::Lost(_)) if has_ended()) => {
            Err(error)
        }
        Ok(_) => Ok(ENDED.to_owned()),
        Err(_) => {
            screen.note("its supervisor does not answer, and is killed");
            if let Some(supervisor) = supervisor {
                let _ = supervisor.signal(Signal::KILL);
                let _ = timeout(KILL_TIMEOUT, supervisor.ended()).await;
            }
            stop_unsupervised(name, dir, true, &screen).await
        }
    }
}

/// Shows the supervisor's reports until the VM has ended.
async fn until_ended(control: &mut ControlClient, screen: &Screen) -> Result<(), CtlError> {
    loop {
        match control.next().await? {
            Update::Ended(_) => return Ok(()),
            update => screen.show(&update),
        }
    }
}

/// Ends a VM whose supervisor was killed, through its launcher if that still answers, and removes the
/// remains. Returns what happened.
async fn stop_unsupervised(
    name: &str,
    dir: &VmDir,
    force: bool,
    screen: &Screen,
) -> Result<String, CtlError> {
    let has_failed = Failure::load(dir).is_some();
    let mut was_shut_down = false;
    if let (false, Ok(vmi)) = (force, dir.load_vmi())
        && let Ok(client) = dir.client().await
    {
        screen.note("it has no supervisor; its launcher is asked to shut the guest down");
        let down = shut_down(&client, &vmi, None).await;
        was_shut_down = down.inspect_err(|it| screen.note(&it.chain())).is_ok();
    }
    let found = terminate_all(dir.root()).await;
    if let Some(pid) = guest(dir.root()) {
        fail!(
            "the guest of {name} does not end when its QEMU, process {pid}, is killed: it may wait for a disk or a device that hangs; launcherctl stop {name} tries again"
        );
    }
    // A short link to the directory goes with the VM.
    let log = (!dir.is_temporary()).then(|| absolute(&dir.log_file()));
    forget(dir);
    Ok(match log.filter(|log| has_failed && log.exists()) {
        _ if was_shut_down => ENDED.to_owned(),
        _ if found => "is forced off, without its supervisor".to_owned(),
        Some(log) => format!("had failed; its log stays: {}", log.display()),
        None if has_failed => "had failed; its logs are removed".to_owned(),
        None => "did not run; its files are removed".to_owned(),
    })
}
