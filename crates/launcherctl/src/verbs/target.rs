//! From the words of a command line to a VM's directory, and from there to its launcher.
//!
//! ```text
//!  VM, --name, --root, nothing ─► Target ─► VmDir ─► RunningVm: the launcher answers
//! ```

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::error::{CtlError, fail, text_error};
use crate::host::failure::Failure;
use crate::host::registry;
use crate::host::vm_dir::VmDir;
use crate::json::text_at;
use crate::view::output::say;
use api::proto::cmd::v1::VirtualMachineOptions;
use client::running::{check_runs, no_domain};
use client::{CallError, Client};
use domain::Domain;

/// No launcher runs, or none that answers yet.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoLauncher(String);

/// Which VM, or which running launcher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Target {
    /// The VM's name, as launcherctl list shows it; needed if several run
    #[arg(long, help_heading = "Which VM")]
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
    #[arg(value_name = "VM", conflicts_with_all = ["name", "root"])]
    vm: Option<String>,
    #[command(flatten)]
    target: Target,
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
    /// Finds the VM: by name or directory, else the only running one, else the only one.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn resolve(&self) -> Result<VmDir, CtlError> {
        match (&self.root, &self.name) {
            (Some(root), _) => {
                if !root.is_dir() {
                    fail!("no VM in {}: there is no such directory", root.display());
                }
                Ok(registry::find_in(root))
            }
            (None, Some(name)) => registry::find(name),
            (None, None) => the_only_one(),
        }
    }

    /// Finds the VM and connects to its launcher.
    ///
    /// # Errors
    /// There is none, or it does not answer; for a VM of `run`, with the reason.
    pub async fn connect(&self) -> Result<RunningVm, CtlError> {
        RunningVm::connect(self.resolve()?).await
    }
}

/// A VM whose launcher answers.
#[derive(Debug)]
pub struct RunningVm {
    pub dir: VmDir,
    pub client: Client,
}

impl RunningVm {
    /// Connects to the launcher of a VM.
    ///
    /// # Errors
    /// It does not answer; for a VM of `run`, with the reason.
    pub async fn connect(dir: VmDir) -> Result<Self, CtlError> {
        match dir.client().await {
            Ok(client) => Ok(Self { dir, client }),
            Err(error) => Err(not_running(&dir, error)),
        }
    }

    /// The VMI last sent: stored by `run`, else from the launcher, as in a pod.
    ///
    /// # Errors
    /// Neither has one, or the launcher does not answer.
    pub async fn last_vmi(&self) -> Result<Value, CtlError> {
        let unknown = || {
            text_error!(
                "the launcher was sent no VMI since it started; give its file, or wait for virt-handler's next sync"
            )
        };
        let last = self.dir.last_vmi(&self.client).await?;
        Ok(last.ok_or_else(unknown)?)
    }

    /// The VMI last sent. If that is unknown, as in a pod with a replaced launcher, one with the
    /// VM's identity only, which is enough for all but a sync; `None` if there is no domain either.
    ///
    /// # Errors
    /// The launcher does not answer.
    pub async fn known_vmi(&self) -> Result<Option<Value>, CallError> {
        if let Some(vmi) = self.dir.last_vmi(&self.client).await? {
            return Ok(Some(vmi));
        }
        let identity = |Domain { meta, .. }: Domain| json!({"metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}});
        Ok(self.client.domain().await?.map(identity))
    }

    /// virt-handler's options as last sent: with them a further sync changes nothing else.
    ///
    /// # Errors
    /// The launcher does not answer.
    pub async fn options(&self) -> Result<VirtualMachineOptions, CallError> {
        let last = self.client.last_sync().await?;
        Ok(last.map(|last| last.options).unwrap_or_default())
    }

    /// The domain: its `meta` has name and UID. Notes that the guest is paused.
    ///
    /// # Errors
    /// There is none.
    pub async fn guest(&self) -> Result<Domain, CtlError> {
        let domain = self.client.domain().await?.ok_or_else(no_domain)?;
        if let Err(not_running) = check_runs(Some(&domain)) {
            say(format!("note: {not_running}"));
        }
        Ok(domain)
    }
}

/// A VMI's `namespace/name`.
pub fn vm_name(vmi: &Value) -> String {
    let parts = ["/metadata/namespace", "/metadata/name"];
    parts.map(|part| text_at(vmi, part)).join("/")
}

/// Why no launcher answers, of a VM of `run` in its words.
fn not_running(dir: &VmDir, error: CallError) -> CtlError {
    let name = dir.name();
    let why = match Failure::load(dir) {
        Some(Failure { reason, .. }) => {
            format!("{name} has failed: {reason}; launcherctl logs {name} says more")
        }
        None if !dir.is_of_run() => return error.into(),
        None if dir.is_supervised() => {
            format!("{name} is starting or stopping; launcherctl list says which")
        }
        None => format!(
            "{name} has no launcher any more; launcherctl status {name} says what is left of it"
        ),
    };
    NoLauncher(why).into()
}

/// The only running VM, else the only VM.
fn the_only_one() -> Result<VmDir, CtlError> {
    let pod = in_pod();
    let all = match registry::all() {
        Ok(all) => all,
        // A pod may have no writable directory.
        Err(error) => return pod.ok_or(error),
    };
    let (running, others): (Vec<_>, Vec<_>) = all.into_iter().partition(VmDir::is_running);
    let mut found = match (running.is_empty(), pod) {
        (true, Some(pod)) => return Ok(pod),
        (true, None) => others,
        (false, _) => running,
    };
    let names: Vec<String> = found.iter().map(VmDir::name).collect();
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (Some(_), _) => fail!(
            "there are several VMs ({}); say which one (launcherctl list says what each does)",
            names.join(", ")
        ),
        (None, _) => {
            let why = "no VM of this user runs here; launcherctl run FILE starts one, --root names another launcher";
            Err(NoLauncher(why.to_owned()).into())
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
