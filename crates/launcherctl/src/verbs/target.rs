//! Finds the running launcher of a verb, and the VMI.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{display_name, read_text};
use crate::host::failure::Failure;
use crate::host::network::notes_of_links;
use crate::host::registry::{self, RegistryError, VmDir};
use crate::json::{copy_at, text_at};
use crate::manifest::{self, Manifest, ManifestError, in_manifest};
use crate::view::output::say;
use client::Client;

/// Why the launcher to call is not known.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Nothing runs here.
    #[error(
        "no launcher is running here; start one with launcherctl run, or say --root or --socket"
    )]
    NoneRunning,
    /// Any running VMs are in other namespaces.
    #[error("no VM of namespace {0} runs here; launcherctl list shows those of all namespaces")]
    NoneInNamespace(String),
    /// Nothing was started in the directory of `--root`, or it has ended.
    #[error("no VM in {root}; launcherctl list shows the VMs of run, and their directories", root = .0.display())]
    NoVmIn(PathBuf),
    /// Nothing answers, as the VM has failed.
    #[error("{name} has failed: {reason}; launcherctl status {name} says more")]
    Failed { name: String, reason: String },
    /// Nothing answers yet, or any longer.
    #[error("{0} is starting or stopping; launcherctl list says which")]
    Changing(String),
    /// Nothing answers, as the launcher was killed.
    #[error("{0} has no launcher any more; launcherctl status {0} says what is left of it")]
    LauncherGone(String),
    /// The VM is in another namespace.
    #[error("the VM is not in namespace {0:?}; leave out -n, or choose another VM with --name VM")]
    OtherNamespace(String),
    /// Only the socket is known, but the verb needs files too.
    #[error("{0} needs the launcher's --root or --name, not its socket")]
    NeedsRoot(&'static str),
    /// The launcher got no VMI.
    #[error(
        "the launcher was sent no VMI since it started; give its file (--vmi FILE, or plan FILE), or wait for virt-handler's next sync"
    )]
    NeedsVmi,
}

/// Which running launcher to call.
#[derive(Debug, Clone, Default, Args)]
pub struct Target {
    /// Only a VM of this namespace; names are unique on a machine
    #[arg(short = 'n', long, help_heading = "Which VM")]
    pub namespace: Option<String>,
    /// The VM's name, as launcherctl list shows it; needed if several run
    #[arg(long, help_heading = "Which VM")]
    pub name: Option<String>,
    /// In place of the name: the launcher's root directory, as given to run --root
    #[arg(long, conflicts_with = "name", help_heading = "Which VM")]
    pub root: Option<PathBuf>,
    /// In place of the name: the launcher's cmd socket
    #[arg(long, conflicts_with_all = ["name", "root"], help_heading = "Which VM")]
    pub socket: Option<PathBuf>,
}

/// A launcher, and which VMI to send instead of the last one.
#[derive(Debug, Clone, Args)]
pub struct VmiTarget {
    #[command(flatten)]
    pub target: Target,
    /// VMI or VM manifest to send, YAML or JSON, in place of the VMI that was sent last
    #[arg(long)]
    pub vmi: Option<PathBuf>,
}

/// As [`VmiTarget`], with the VM's name also as an argument.
#[derive(Debug, Args)]
pub struct NamedVmiTarget {
    /// The VM's name; may be left out if there is only one
    #[arg(value_name = "VM", conflicts_with_all = ["name", "root", "socket"])]
    vm: Option<String>,
    #[command(flatten)]
    target: VmiTarget,
}

impl NamedVmiTarget {
    /// As the other verbs have it.
    pub fn target(&self) -> VmiTarget {
        let mut target = self.target.clone();
        if self.vm.is_some() {
            target.target.name.clone_from(&self.vm);
        }
        target
    }
}

#[derive(Debug, Default)]
pub struct Launcher {
    /// Its directory, unless only its socket is known.
    pub dir: Option<VmDir>,
    pub socket: PathBuf,
    /// Volumes in which a file's VMI differs from the sent one, as only a restart of the guest
    /// applies them; in a plan's format.
    pub restart: Vec<Value>,
}

impl Target {
    /// Finds the launcher.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn resolve(&self) -> Result<Launcher, CtlError> {
        self.find(true)
    }

    /// Like [`Self::resolve`]; without a name also finds the only VM, if it does not run.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn resolve_any(&self) -> Result<Launcher, CtlError> {
        self.find(false)
    }

    /// Finds the launcher. Without a name, the only VM has to run if `must_run`.
    fn find(&self, must_run: bool) -> Result<Launcher, CtlError> {
        if let Some(socket) = &self.socket {
            return Ok(Launcher {
                socket: socket.clone(),
                ..Launcher::default()
            });
        }
        let dir = match (&self.root, &self.name) {
            (Some(root), _) => vm_in(root)?,
            (None, Some(name)) => registry::find(name)?,
            (None, None) => {
                let (name, vm) = the_only_one(self.namespace.as_deref())?;
                match why_not_running(&name, &vm) {
                    Some(why) if must_run && !vm.is_running() => return Err(why.into()),
                    _ => vm,
                }
            }
        };
        if let Some(namespace) = &self.namespace
            && !is_in(&dir, namespace)
        {
            return Err(TargetError::OtherNamespace(namespace.clone()).into());
        }
        Ok(Launcher {
            socket: dir.cmd_socket(),
            dir: Some(dir),
            restart: Vec::new(),
        })
    }

    /// Connects to the launcher.
    ///
    /// # Errors
    /// There is none, or it does not answer.
    pub async fn connect(&self) -> Result<Client, CtlError> {
        self.resolve()?.connect().await
    }
}

impl Launcher {
    /// Connects to it.
    ///
    /// # Errors
    /// It does not answer; for a VM of `run`, with the reason.
    pub async fn connect(&self) -> Result<Client, CtlError> {
        Client::connect(&self.socket).await.map_err(|error| {
            let why = self.dir.as_ref().and_then(|dir| {
                let vmi = dir.load_vmi().unwrap_or_default();
                why_not_running(text_at(&vmi, "/metadata/name"), dir)
            });
            why.map_or_else(|| error.into(), CtlError::from)
        })
    }

    /// The VMI last sent: stored by `run`, else from the launcher, as in a pod. `None` if neither
    /// has one.
    ///
    /// # Errors
    /// It is unreadable, or the launcher does not answer.
    pub async fn last_vmi(&self, client: &Client) -> Result<Option<Value>, CtlError> {
        match &self.dir {
            Some(dir) if dir.is_of_run() => Ok(Some(dir.load_vmi()?)),
            _ => Ok(client.last_sync().await?.map(|sync| sync.vmi)),
        }
    }

    /// Stores a sent VMI, if `run` stored the previous one, and which of its fields wait for a
    /// restart, for a later plan.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn store(&self, vmi: &Value) -> Result<(), CtlError> {
        if let Some(dir) = &self.dir
            && dir.is_of_run()
        {
            dir.store_vmi(vmi)?;
            dir.store_restart(&self.restart)?;
        }
        Ok(())
    }

    /// Its directory.
    ///
    /// # Errors
    /// Only its socket is known; `verb` names the verb that needs more.
    pub fn into_dir(self, verb: &'static str) -> Result<VmDir, TargetError> {
        self.dir.ok_or(TargetError::NeedsRoot(verb))
    }
}

impl VmiTarget {
    /// Like [`Self::connect`]. If the VMI is unknown, as in a pod with a replaced launcher, returns
    /// one with the VM's identity only; `None` if there is no domain either.
    ///
    /// # Errors
    /// There is no launcher, or the file is of another VM.
    pub async fn connect_by_identity(&self) -> Result<(Client, Option<Value>), CtlError> {
        match self.connect().await {
            Ok((_, client, vmi)) => Ok((client, Some(vmi))),
            Err(error)
                if error.of::<RegistryError>().is_some()
                    || matches!(error.of(), Some(TargetError::NeedsVmi)) =>
            {
                let client = self.target.connect().await?;
                let domain = client.domain().await?;
                Ok((client, domain.as_ref().map(identity)))
            }
            Err(error) => Err(error),
        }
    }

    /// Connects to the launcher. Returns the file's VMI, else the last sent one.
    ///
    /// # Errors
    /// There is no launcher or no VMI, or the file is of another VM.
    pub async fn connect(&self) -> Result<(Launcher, Client, Value), CtlError> {
        let update = match &self.vmi {
            Some(file) => Some((file, read_manifest_in(file, None)?)),
            None => None,
        };
        let mut launcher = self.target.resolve()?;
        let client = launcher.connect().await?;
        let sent = launcher.last_vmi(&client).await;
        let vmi = match update {
            Some((file, update)) => update_of(update, &mut launcher, sent.ok().flatten().as_ref())
                .map_err(in_manifest(file))?,
            None => {
                let dir = launcher.dir.as_ref();
                launcher.restart = dir.map(VmDir::load_restart).unwrap_or_default();
                sent?.ok_or(TargetError::NeedsVmi)?
            }
        };
        Ok((launcher, client, vmi))
    }
}

/// A VMI's `namespace/name`.
pub fn vm_name(vmi: &Value) -> String {
    let parts = ["/metadata/namespace", "/metadata/name"];
    parts.map(|part| text_at(vmi, part)).join("/")
}

/// A VMI with the VM's identity only, which is enough for all but a sync.
fn identity(domain: &Value) -> Value {
    let part = |name| copy_at(domain, &format!("/ObjectMeta/{name}"));
    json!({"metadata": {"name": part("name"), "namespace": part("namespace"), "uid": part("uid")}})
}

/// Reads a manifest, with `namespace` if it has none; `-` is standard input.
///
/// # Errors
/// The file is unreadable, has no VM, or another namespace.
pub fn read_manifest_in(file: &Path, namespace: Option<&str>) -> Result<Manifest, CtlError> {
    let text = read_manifest_text(file)?;
    warn_of_unknown_fields(file, &text);
    Manifest::parse_in(&text, namespace).map_err(in_manifest(file))
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
        say(&format!("warning: {}:{field}", display_name(file)));
    }
}

/// A manifest's VMI, as a later version of the sent one, if there is one.
fn update_of(
    manifest: Manifest,
    launcher: &mut Launcher,
    sent: Option<&Value>,
) -> Result<Value, ManifestError> {
    let Some(sent) = sent else {
        return Ok(manifest.into_value());
    };
    let mut update = manifest.into_update_of(sent)?;
    // In a pod virt-handler does both.
    if launcher.dir.as_ref().is_some_and(VmDir::is_of_run) {
        update.network_as_in(sent);
        notes_of_links(&update).for_each(|note| say(&note));
        for name in update.keep_volumes(sent) {
            let why = ": the guest keeps the one of its start as long as it runs";
            launcher.restart.push(restart_of_volume(&name, why));
        }
        for name in update.leave_out_new_volumes(sent) {
            launcher.restart.push(restart_of_volume(&name, " is new"));
        }
        for name in update.leave_out_volumes(sent) {
            say(&format!(
                "the volume {name} is new and has no image here, so it is left out; launcherctl addvolume {name} --file FILE plugs it in"
            ));
        }
    }
    Ok(update.into_value())
}

/// In a plan's format.
fn restart_of_volume(name: &str, why: &str) -> Value {
    let field = format!("spec.volumes[{name}]");
    let why = format!("needs a restart: {field}{why}");
    json!({"field": field, "needs": "restart", "why": why})
}

/// Why the launcher of a VM of `run` does not answer; `None` for another launcher, as in a pod.
fn why_not_running(name: &str, dir: &VmDir) -> Option<TargetError> {
    if let Some(Failure { name, reason, .. }) = Failure::load(dir) {
        return Some(TargetError::Failed { name, reason });
    }
    if !dir.is_of_run() {
        return None;
    }
    let why = if dir.is_supervised() {
        TargetError::Changing
    } else {
        TargetError::LauncherGone
    };
    Some(why(name.to_owned()))
}

/// The VM of `--root`: as in the registry, whose path may be shorter; else by the absolute path.
fn vm_in(root: &Path) -> Result<VmDir, TextError> {
    check_is_directory(root)?;
    // A pod may have no registry.
    if let Ok(Some((_, vm))) = registry::find_in(root) {
        return Ok(vm);
    }
    // The canonical path does not work: that of /proc/PID/root is another root.
    let absolute = std::path::absolute(root);
    Ok(VmDir::at(absolute.unwrap_or_else(|_| root.to_owned())))
}

/// Accepts a root that this user may not read.
pub(super) fn check_is_directory(root: &Path) -> Result<(), TextError> {
    let missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
    match std::fs::metadata(root) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Err(error) if !missing.contains(&error.kind()) => Ok(()),
        _ => fail!("no VM in {}: there is no such directory", root.display()),
    }
}

/// Whether the VM is in this namespace; true if the VMI is not stored here, as in a pod.
pub(super) fn is_in(dir: &VmDir, namespace: &str) -> bool {
    match (Failure::load(dir), dir.load_vmi()) {
        (Some(failure), _) => failure.namespace == namespace,
        (None, Ok(vmi)) => text_at(&vmi, "/metadata/namespace") == namespace,
        (None, Err(_)) => true,
    }
}

/// The only running VM, else the only VM, with its name.
fn the_only_one(namespace: Option<&str>) -> Result<(String, VmDir), CtlError> {
    let pod = in_pod().map(|dir| (String::new(), dir));
    let mut all = match registry::all() {
        Ok(all) => all,
        // A pod may have no writable directory.
        Err(error) => return pod.ok_or_else(|| error.into()),
    };
    all.retain(|(_, vm)| namespace.is_none_or(|namespace| is_in(vm, namespace)));
    let (running, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, vm)| vm.is_running());
    let runs = !running.is_empty();
    let mut found = if runs { running } else { others };
    if let (false, Some(pod)) = (runs, pod) {
        return Ok(pod);
    }
    let names: Vec<String> = found.iter().map(|(name, _)| name.clone()).collect();
    let names = names.join(", ");
    match (found.pop(), namespace) {
        (Some(only), _) if found.is_empty() => Ok(only),
        (Some(_), _) if runs => {
            fail!("several VMs are running ({names}); choose one with --name VM")
        }
        (Some(_), _) => fail!(
            "none of the VMs here is running ({names}); launcherctl list says why, --name chooses one"
        ),
        (None, Some(namespace)) => Err(TargetError::NoneInNamespace(namespace.to_owned()).into()),
        (None, None) => Err(TargetError::NoneRunning.into()),
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
