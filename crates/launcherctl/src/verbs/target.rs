//! Finds the running launcher of a verb, and the VMI.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::error::{CtlError, fail, text_error};
use crate::files::{FileError, display_name, read_text};
use crate::host::error::Stopped;
use crate::host::failure::Failure;
use crate::host::registry::{self, CONTROL_SOCKET, RegistryError, VmDir};
use crate::host::remains;
use crate::json::text_at;
use crate::manifest::{self, Manifest, Problem, Severity, in_manifest};
use crate::view::output::{Line, say};
use client::Client;
use client::running::{check_runs, no_domain};
use domain::Domain;
use os::procfs::is_stopped;

/// Why the launcher to call is not known.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// No launcher runs, or none that answers yet.
    #[error("{0}")]
    NotRunning(String),
    /// Nothing was started in the directory of `--root`, or it has ended.
    #[error("no VM in {root}; launcherctl list shows the VMs of run, and their directories", root = .0.display())]
    NoVmIn(PathBuf),
    /// The launcher got no VMI.
    #[error(
        "the launcher was sent no VMI since it started; give its file, or wait for virt-handler's next sync"
    )]
    NeedsVmi,
}

/// Which running launcher to call.
#[derive(Debug, Clone, Default, Args)]
pub struct Target {
    /// The VM's name, as launcherctl list shows it; needed if several run
    #[arg(long, help_heading = "Which VM", add = ArgValueCandidates::new(vm_names))]
    pub name: Option<String>,
    /// In place of the name: the launcher's root directory (of run --root; of a pod:
    /// /proc/PID/root)
    #[arg(long, conflicts_with = "name", help_heading = "Which VM", value_hint = ValueHint::DirPath)]
    pub root: Option<PathBuf>,
}

/// A VM by its name, also as an argument.
#[derive(Debug, Args)]
pub struct VmArgs {
    /// The VM's name; may be left out if there is only one
    #[arg(value_name = "VM", conflicts_with_all = ["name", "root"], add = ArgValueCandidates::new(vm_names))]
    vm: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// For a shell's completion.
pub fn vm_names() -> Vec<CompletionCandidate> {
    let all = registry::all().unwrap_or_default().into_iter();
    all.map(|(name, _)| CompletionCandidate::new(name))
        .collect()
}

impl VmArgs {
    /// In the other verbs' form.
    pub fn target(&self) -> Target {
        Target {
            name: self.vm.clone().or_else(|| self.target.name.clone()),
            ..self.target.clone()
        }
    }
}

impl Target {
    /// Finds the launcher; without a name also the only VM, if it does not run.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn resolve(&self) -> Result<VmDir, CtlError> {
        self.find(false)
    }

    /// Finds the launcher. Without a name, the only VM has to run if `must_run`.
    fn find(&self, must_run: bool) -> Result<VmDir, CtlError> {
        if let Some(root) = &self.root {
            return vm_in(root);
        }
        if let Some(name) = &self.name {
            return Ok(registry::find(name)?);
        }
        let (name, vm) = the_only_one()?;
        match why_not_running(&name, &vm) {
            Some(why) if must_run && !vm.is_running() => Err(why.into()),
            _ => Ok(vm),
        }
    }

    /// Finds the launcher and connects to it.
    ///
    /// # Errors
    /// There is none, or it does not answer.
    pub async fn connect(&self) -> Result<(VmDir, Client), CtlError> {
        let dir = self.find(true)?;
        let client = connect(&dir).await?;
        Ok((dir, client))
    }

    /// Like [`Self::connect`], with the VMI last sent. If that is unknown, as in a pod with a
    /// replaced launcher, one with the VM's identity only; `None` if there is no domain either.
    ///
    /// # Errors
    /// There is no launcher, or it does not answer.
    pub async fn connect_to_vm(&self) -> Result<(VmDir, Client, Option<Value>), CtlError> {
        let (dir, client) = self.connect().await?;
        let vmi = match last_vmi(&dir, &client).await {
            Ok(Some(vmi)) => Some(vmi),
            Err(error) if error.of::<RegistryError>().is_none() => return Err(error),
            _ => client.domain().await?.as_ref().map(identity),
        };
        Ok((dir, client, vmi))
    }
}

/// A VM whose launcher answers.
#[derive(Debug)]
pub struct RunningVm {
    pub dir: VmDir,
    pub name: String,
    pub uid: String,
}

impl RunningVm {
    /// # Errors
    /// There is no such VM, or it has no domain.
    pub async fn find(target: &Target) -> Result<Self, CtlError> {
        let (dir, client) = target.connect().await?;
        let domain = client.domain().await?.ok_or_else(no_domain)?;
        if let Err(not_running) = check_runs(Some(&domain)) {
            say(format!("note: {not_running}"));
        }
        if let Err(stopped) = check_processes(&dir) {
            say(format!("note: {stopped}"));
        }
        Ok(Self {
            dir,
            name: domain.meta.name,
            uid: domain.meta.uid,
        })
    }
}

/// Connects to the launcher of a VM.
///
/// # Errors
/// It does not answer; for a VM of `run`, with the reason.
pub async fn connect(dir: &VmDir) -> Result<Client, CtlError> {
    if let Some(pid) = dir.stopped_launcher().await {
        return Err(Stopped("the launcher", pid).into());
    }
    Client::connect(&dir.cmd_socket()).await.map_err(|error| {
        let vmi = dir.load_vmi().unwrap_or_default();
        let why = why_not_running(text_at(&vmi, "/metadata/name"), dir);
        why.map_or_else(|| error.into(), CtlError::from)
    })
}

/// Refuses to wait for a QEMU or libvirt whose process is stopped, which answers nothing. Does not
/// look for them in a pod, where PIDs differ from those outside.
///
/// # Errors
/// One is stopped.
pub fn check_processes(dir: &VmDir) -> Result<(), Stopped> {
    if !dir.is_of_run() {
        return Ok(());
    }
    if let Some(pid) = remains::guest(dir.root()).filter(|pid| is_stopped(*pid)) {
        return Err(Stopped("QEMU", pid));
    }
    match remains::stopped_libvirt(dir.root()) {
        Some(pid) => Err(Stopped("libvirt", pid)),
        None => Ok(()),
    }
}

/// The VMI last sent: stored by `run`, else from the launcher, as in a pod. `None` if neither has
/// one.
///
/// # Errors
/// It is unreadable, or the launcher does not answer.
pub async fn last_vmi(dir: &VmDir, client: &Client) -> Result<Option<Value>, CtlError> {
    if dir.is_of_run() {
        return Ok(Some(dir.load_vmi()?));
    }
    Ok(client.last_sync().await?.map(|sync| sync.vmi))
}

/// Where the VM that was in `from` runs now, if it has migrated: it has its name and its UID there.
pub fn migrated(vmi: &Value, from: &VmDir) -> Option<VmDir> {
    let uid = |vmi: &Value| text_at(vmi, "/metadata/uid").to_owned();
    let now = registry::find(text_at(vmi, "/metadata/name")).ok()?;
    let is_it = !now.is_same(from) && uid(&now.load_vmi().ok()?) == uid(vmi);
    is_it.then_some(now)
}

/// A VMI's `namespace/name`.
pub fn vm_name(vmi: &Value) -> String {
    let parts = ["/metadata/namespace", "/metadata/name"];
    parts.map(|part| text_at(vmi, part)).join("/")
}

/// A VMI with the VM's identity only, which is enough for all but a sync.
fn identity(Domain { meta, .. }: &Domain) -> Value {
    json!({"metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}})
}

/// Reads a manifest; `-` is standard input.
///
/// # Errors
/// The file is unreadable, or has no VM.
pub fn read_manifest(file: &Path) -> Result<Manifest, CtlError> {
    let text = read_manifest_text(file)?;
    warn_of_unknown_fields(file, &text);
    let manifest = Manifest::parse(&text).map_err(in_manifest(file))?;
    warn_of_refusal(&text);
    Ok(manifest)
}

/// Prints on standard error for what `check` refuses a manifest that is used all the same.
pub fn warn_of_refusal(text: &str) {
    if let Some(refused) = refused_by_check(text) {
        say(Line::Problem(format!(
            "warning: launcherctl check refuses the manifest: {refused}"
        )));
    }
}

/// The text of a manifest; `-` is standard input.
///
/// # Errors
/// The file is unreadable; for a VM's name in its place, the error says so.
pub fn read_manifest_text(file: &Path) -> Result<String, CtlError> {
    read_text(file).map_err(|error| {
        let is_missing = error.source.kind() == ErrorKind::NotFound;
        match file.to_str() {
            Some(name) if is_missing && registry::find(name).is_ok() => text_error!(
                "there is no file {name}, but a VM of this name: the argument is a manifest's file; a verb for a running VM takes --name {name}"
            )
            .into(),
            _ => error.into(),
        }
    })
}

/// Prints on standard error which fields of a manifest are dropped.
pub fn warn_of_unknown_fields(file: &Path, text: &str) {
    for field in manifest::unknown_fields(text) {
        say(Line::Problem(format!(
            "warning: {}:{field}",
            display_name(file)
        )));
    }
}

/// The first of the problems for which `check` refuses a manifest that can be used here. Unknown
/// fields have been named.
pub fn refused_by_check(text: &str) -> Option<String> {
    let unknown = manifest::unknown_fields(text);
    let is_known = |it: &Problem| {
        unknown
            .iter()
            .any(|line| line.contains(&format!(" {}:", it.field)))
    };
    let errors = manifest::problems(text, None).into_iter();
    let mut errors = errors.filter(|it| it.severity == Severity::Error && !is_known(it));
    let first = errors.next()?;
    let more = if errors.next().is_some() {
        " (and more problems)"
    } else {
        ""
    };
    Some(format!("{}: {}{more}", first.field, first.message))
}

/// Why the launcher of a VM of `run` does not answer; `None` for another launcher, as in a pod.
fn why_not_running(name: &str, dir: &VmDir) -> Option<TargetError> {
    let why = match Failure::load(dir) {
        Some(failure) => {
            let (name, text) = (&failure.name, failure.text());
            format!("{name} has failed: {text}; launcherctl logs {name} says more")
        }
        None if !dir.is_of_run() => return None,
        None if dir.is_supervised() => {
            format!("{name} is starting or stopping; launcherctl list says which")
        }
        None => format!(
            "{name} has no launcher any more; launcherctl status {name} says what is left of it"
        ),
    };
    Some(TargetError::NotRunning(why))
}

/// The VM of `--root`: as in the registry, whose path may be shorter; else by the absolute path.
fn vm_in(root: &Path) -> Result<VmDir, CtlError> {
    check_root(root)?;
    // A pod may have no registry.
    if let Ok(Some((_, vm))) = registry::find_in(root) {
        return Ok(vm);
    }
    // The canonical path does not work: that of /proc/PID/root is another root.
    let absolute = std::path::absolute(root);
    Ok(VmDir::at(absolute.unwrap_or_else(|_| root.to_owned())))
}

/// Refuses a root that is not there, and one of another user's VM.
pub(super) fn check_root(root: &Path) -> Result<(), CtlError> {
    if let Err(error) = UnixStream::connect(VmDir::at(root.to_owned()).path(CONTROL_SOCKET))
        && error.kind() == ErrorKind::PermissionDenied
    {
        let remedy = "use launcherctl as the user who has started the VM, or as root";
        let error = FileError::on("use the VM in", root)(error);
        return Err(CtlError::from(error).with_remedy(remedy.to_owned()));
    }
    if !root.is_dir() {
        fail!("no VM in {}: there is no such directory", root.display());
    }
    Ok(())
}

/// The only running VM, else the only VM, with its name.
fn the_only_one() -> Result<(String, VmDir), CtlError> {
    let pod = in_pod().map(|dir| (String::new(), dir));
    let all = match registry::all() {
        Ok(all) => all,
        // A pod may have no writable directory.
        Err(error) => return pod.ok_or_else(|| error.into()),
    };
    let (running, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, vm)| vm.is_running());
    let runs = !running.is_empty();
    let mut found = if runs { running } else { others };
    if let (false, Some(pod)) = (runs, pod) {
        return Ok(pod);
    }
    let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    let names = names.join(", ");
    match found.pop() {
        Some(only) if found.is_empty() => Ok(only),
        Some(_) if runs => fail!("several VMs are running ({names}); choose one with --name VM"),
        Some(_) => fail!(
            "none of the VMs here is running ({names}); launcherctl list says why, --name chooses one"
        ),
        None => {
            let why = "no launcher is running here; start one with launcherctl run, or say --root";
            Err(TargetError::NotRunning(why.to_owned()).into())
        }
    }
}

/// The pod's launcher, whose root is `/`. In a pod, process 1 is the monitor, or a launcher without
/// one. Files cannot tell: a killed launcher leaves its socket in any `/var/run`.
fn in_pod() -> Option<VmDir> {
    let first = os::procfs::arguments(Pid::INIT).ok()?;
    let program = Path::new(first.first()?).file_name()?;
    let is_pod = program == "virt-launcher-monitor" || program == "virt-launcher";
    is_pod.then(|| VmDir::at("/".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_check_refuses_is_named_but_unknown_fields() {
        let text = "apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: a}
spec: {domain: {memory: {guest: 64Mi}, devices: {}, unknown: 1}}
";
        assert_eq!(refused_by_check(text), None);
        let other = refused_by_check(&text.replace("/v1", "/v2")).unwrap_or_default();
        let expected = "apiVersion: \"kubevirt.io/v2\"";
        assert!(other.starts_with(expected), "{other}");
    }
}
