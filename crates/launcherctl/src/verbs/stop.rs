//! `stop`: ends VMs of `run`, and removes the remains of lost ones.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use rustix::process::{Pid, Signal};
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::screen::Screen;
use super::shutdown::shut_down;
use super::target::{Target, TargetError, check_root, migrated, vm_names};
use crate::error::{CtlError, fail};
use crate::files::absolute;
use crate::host::control::{ControlClient, Request, Update};
use crate::host::facts::check_images;
use crate::host::failure::Failure;
use crate::host::registry::{self, CONTROL_SOCKET, VmDir};
use crate::host::remains::{self, forget};
use crate::json::text_at;
use crate::verbs::run::attach::SupervisorError;
use crate::view::output::{Format, print};
use api::Action;
use client::{Client, is_migrating};
use os::process::Process;

/// Limit for a supervisor to report its VM's progress, and to exit when killed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for a launcher to say whether its guest migrates.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit for a supervisor to end a VM at once: longer than its launcher and its QEMU have together.
const FORCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The result for a VM that had a supervisor.
const ENDED: &str = "has ended";

/// Arguments of `stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The VMs' names; may be left out if there is only one
    #[arg(value_name = "VM", conflicts_with_all = ["all", "name", "root"], add = ArgValueCandidates::new(vm_names))]
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
    let vms = chosen(args)?;
    if vms.is_empty() && format != Format::Json {
        let text = "there is no VM to stop".to_owned();
        print(format, &json!(null), || [text]);
    }
    let mut errors = Vec::new();
    for (name, dir) in vms {
        // One that is refused keeps no other from its end.
        match stop_wherever(&name, &dir, args.force, format).await {
            Ok(text) => {
                let json = json!({"name": name, "message": text});
                print(format, &json, || [format!("{name}: {text}")]);
            }
            Err(error) => errors.push(error),
        }
    }
    CtlError::of_several(errors).map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Stops a VM, also one that migrates meanwhile.
async fn stop_wherever(
    name: &str,
    dir: &VmDir,
    force: bool,
    format: Format,
) -> Result<String, CtlError> {
    let vmi = dir.load_vmi();
    let text = stop_one(name, dir, force, format).await?;
    match vmi.ok().and_then(|vmi| migrated(&vmi, dir)) {
        Some(now) => stop_one(name, &now, force, format).await,
        None => Ok(text),
    }
}

/// The VMs to stop, with their names: the named ones, all if requested, else the only one.
fn chosen(args: &StopArgs) -> Result<Vec<(String, VmDir)>, CtlError> {
    let named = named(args)?;
    let all = registry::all()?;
    match all.len() {
        _ if !named.is_empty() => Ok(named),
        1 => Ok(all),
        _ if args.all => Ok(all),
        0 => fail!("no VM of this user runs here; launcherctl run FILE starts one"),
        _ => {
            let names: Vec<String> = all.into_iter().map(|(name, _)| name).collect();
            let names = names.join(", ");
            fail!("there are several VMs ({names}); say which one, or --all")
        }
    }
}

/// The VMs on the command line, by name or directory.
fn named(args: &StopArgs) -> Result<Vec<(String, VmDir)>, CtlError> {
    if let Some(root) = &args.target.root {
        check_root(root)?;
        let vm = match registry::find_in(root)? {
            Some(vm) => vm,
            None => unlisted(root)?,
        };
        return Ok(vec![vm]);
    }
    let names = args.vms.iter().chain(&args.target.name);
    let find = |name: &String| Ok((name.clone(), registry::find(name)?));
    names.map(find).collect()
}

/// A VM of `run` whose name is gone with the user's runtime directory.
fn unlisted(root: &Path) -> Result<(String, VmDir), CtlError> {
    let dir = VmDir::at(root.to_owned());
    if let Ok(vmi) = dir.load_vmi() {
        return Ok((text_at(&vmi, "/metadata/name").to_owned(), dir));
    }
    if !dir.is_running() {
        return Err(TargetError::NoVmIn(root.to_owned()).into());
    }
    let root = root.display();
    fail!(
        "the launcher in {root} was not started here with launcherctl run, so stop does not end it; launcherctl shutdown --root {root} shuts its guest down"
    );
}

async fn stop_one(
    name: &str,
    dir: &VmDir,
    force: bool,
    format: Format,
) -> Result<String, CtlError> {
    let screen = Screen::new(format);
    if !force {
        check_images(name, dir)?;
        note_migration(dir, &screen).await;
    }
    // A supervisor that ends normally removes the name.
    let has_ended = || registry::find(name).is_err() && !dir.is_of_run();
    let Ok(stream) = UnixStream::connect(dir.path(CONTROL_SOCKET)).await else {
        if has_ended() {
            return Ok(ENDED.to_owned());
        }
        return stop_unsupervised(name, dir, force, &screen).await;
    };
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let mut control = ControlClient::new(stream);
    let answers = timeout(ANSWER_TIMEOUT, control.next()).await.is_ok();
    if !answers && !force {
        fail!(
            "the process that supervises {name} ({}) does not answer; kill -CONT lets it go on if it was stopped, launcherctl stop {name} --force kills it, its launcher and its guest",
            pid.unwrap_or_default()
        );
    }
    let request = if force { Request::Force } else { Request::Stop };
    control.request(request).await;
    let limit = match (answers, force) {
        (false, _) => Duration::ZERO,
        (true, true) => FORCE_TIMEOUT,
        // The VMI's grace period.
        (true, false) => Duration::MAX,
    };
    match timeout(limit, last_update(&mut control, &screen)).await {
        Ok(Some(Update::Failed { message, details })) => {
            Err(SupervisorError::failed(message, details))
        }
        Ok(None) if !has_ended() => Err(SupervisorError::Lost(name.to_owned()).into()),
        Ok(_) => Ok(ENDED.to_owned()),
        Err(_) => {
            screen.note("its supervisor does not answer, and is killed");
            kill(pid).await;
            stop_unsupervised(name, dir, true, &screen).await
        }
    }
}

/// Says why the end may take longer than the grace period.
async fn note_migration(dir: &VmDir, screen: &Screen) {
    let domain = async {
        let client = Client::connect(&dir.cmd_socket()).await.ok()?;
        client.domain().await.ok()?
    };
    if let Ok(domain) = timeout(QUESTION_TIMEOUT, domain).await
        && is_migrating(domain.as_ref())
    {
        screen.note(
            "a migration is under way, which may delay the end; launcherctl status says if it is stuck",
        );
    }
}

/// Shows the supervisor's reports until its last update; `None` if it ended without one.
async fn last_update(control: &mut ControlClient, screen: &Screen) -> Option<Update> {
    loop {
        match control.next().await? {
            last @ (Update::Ended { .. } | Update::Failed { .. }) => return Some(last),
            update => screen.show(&update),
        }
    }
}

/// Kills the supervisor, which then does not end what it has started.
async fn kill(pid: Option<i32>) {
    let supervisor = pid.and_then(Pid::from_raw).map(Process::open);
    if let Some(Ok(supervisor)) = supervisor {
        let _ = supervisor.signal(Signal::KILL);
        let _ = timeout(ANSWER_TIMEOUT, supervisor.ended()).await;
    }
}

/// Ends a VM whose supervisor was killed, or that never had one, through its launcher if that still
/// answers, and removes the remains. Returns what happened.
async fn stop_unsupervised(
    name: &str,
    dir: &VmDir,
    force: bool,
    screen: &Screen,
) -> Result<String, CtlError> {
    let has_failed = Failure::load(dir).is_some();
    let was_shut_down = !force && shut_down_by_launcher(dir, screen).await;
    let found = remains::terminate(dir.root()).await;
    if let Some(pid) = remains::guest(dir.root()) {
        fail!(
            "the guest of {name} does not end when its QEMU, process {pid}, is killed: it may wait for a disk or a device that hangs; launcherctl stop {name} tries again"
        );
    }
    // A short link to the directory goes with the VM.
    let log = (!dir.is_temporary()).then(|| absolute(&dir.log_file()));
    let is_temporary = dir.is_temporary();
    let notes = remains::image_notes(dir);
    notes.iter().for_each(|text| screen.note(text));
    forget(name, dir);
    let what = if was_shut_down {
        "has ended; it had no supervisor"
    } else if found {
        "is forced off, without its supervisor"
    } else if has_failed {
        return Ok(match log.filter(|log| log.exists()) {
            Some(log) => format!("had failed; its log stays: {}", log.display()),
            None => "had failed; its logs are removed".to_owned(),
        });
    } else if is_temporary {
        "did not run; its files are removed"
    } else {
        "did not run; its directory stays, without its sockets and secrets"
    };
    Ok(what.to_owned())
}

/// Asks the guest to shut down, and waits for the grace period. Returns false if it is not down
/// then.
async fn shut_down_by_launcher(dir: &VmDir, screen: &Screen) -> bool {
    let (Ok(client), Ok(vmi)) = (Client::connect(&dir.cmd_socket()).await, dir.load_vmi()) else {
        return false;
    };
    screen.note("it has no supervisor; its launcher is asked to shut the guest down");
    match shut_down(&client, &vmi, None).await {
        Ok(()) => {
            // It may be gone already.
            let _ = client.act(Action::Delete, &vmi).await;
            true
        }
        Err(error) => {
            screen.note(&error.chain());
            false
        }
    }
}
