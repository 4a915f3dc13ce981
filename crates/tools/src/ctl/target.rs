//! Which running launcher a verb is about, and which VMI.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use super::error::{CtlError, TargetError};
use super::files::read_text;
use super::json::copy_at;
use super::manifest::Manifest;
use super::registry::{self, VmDir};

/// Which running launcher to call.
#[derive(Debug, Clone, Default, Args)]
pub struct Target {
    /// The VM's name, as given by `launcherctl run` (needed if several are running)
    #[arg(short, long)]
    pub name: Option<String>,
    /// Root directory of the launcher (its --root)
    #[arg(long, conflicts_with = "name")]
    pub root: Option<PathBuf>,
    /// Its cmd socket
    #[arg(long, conflicts_with_all = ["name", "root"])]
    pub socket: Option<PathBuf>,
}

/// A launcher, and which VMI to send instead of the last one.
#[derive(Debug, Args)]
pub struct VmiTarget {
    #[command(flatten)]
    pub target: Target,
    /// VMI or VM manifest, YAML or JSON, in place of the one that was started
    #[arg(long)]
    pub vmi: Option<PathBuf>,
}

/// A launcher to call.
#[derive(Debug)]
pub struct Launcher {
    /// Its directory, unless only its socket is known.
    pub dir: Option<VmDir>,
    /// Its cmd socket.
    pub socket: PathBuf,
}

impl Target {
    /// Finds the launcher.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub fn resolve(&self) -> Result<Launcher, CtlError> {
        if let Some(socket) = &self.socket {
            return Ok(Launcher {
                dir: None,
                socket: socket.clone(),
            });
        }
        let dir = match (&self.root, &self.name) {
            (Some(root), _) => VmDir::at(root.clone()),
            (None, Some(name)) => registry::find(name)?,
            (None, None) => the_only_one()?,
        };
        Ok(Launcher {
            socket: dir.cmd_socket(),
            dir: Some(dir),
        })
    }

    /// Connects to the launcher.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub async fn connect(&self) -> Result<Client, CtlError> {
        Ok(Client::connect(&self.resolve()?.socket).await?)
    }
}

impl Launcher {
    /// Its directory.
    ///
    /// # Errors
    /// If only its socket is known; `verb` says what needs more.
    pub fn into_dir(self, verb: &'static str) -> Result<VmDir, TargetError> {
        self.dir.ok_or(TargetError::NeedsRoot(verb))
    }
}

impl VmiTarget {
    /// As [`Self::connect`]; where the VMI is not known, as in a pod, one that only says whose it is. None if there is no
    /// domain either.
    ///
    /// # Errors
    /// If there is no launcher, or the file is of another VM.
    pub async fn connect_by_identity(&self) -> Result<(Client, Option<Value>), CtlError> {
        match self.connect().await {
            Ok((_, client, vmi)) => Ok((client, Some(vmi))),
            Err(CtlError::Registry(_) | CtlError::Target(TargetError::NeedsVmi)) => {
                let client = self.target.connect().await?;
                let domain = client.domain().await?;
                Ok((client, domain.as_ref().map(identity)))
            }
            Err(error) => Err(error),
        }
    }

    /// Connects to the launcher; the VMI from the file, else the one that was sent last.
    ///
    /// # Errors
    /// If there is no launcher or no VMI, or the file is of another VM.
    pub async fn connect(&self) -> Result<(Launcher, Client, Value), CtlError> {
        let launcher = self.target.resolve()?;
        let vmi = match (&self.vmi, &launcher.dir) {
            (Some(file), dir) => {
                let sent = dir.as_ref().and_then(|dir| dir.load_vmi().ok());
                read_update(file, sent.as_ref())?
            }
            (None, Some(dir)) => dir.load_vmi()?,
            (None, None) => return Err(TargetError::NeedsVmi.into()),
        };
        let client = Client::connect(&launcher.socket).await?;
        Ok((launcher, client, vmi))
    }
}

/// A VMI that only says whose it is: that is enough for all but a sync.
fn identity(domain: &Value) -> Value {
    let part = |name| copy_at(domain, &format!("/ObjectMeta/{name}"));
    json!({"metadata": {"name": part("name"), "namespace": part("namespace"), "uid": part("uid")}})
}

/// Reads a manifest; `-` is standard input.
///
/// # Errors
/// If the file cannot be read or has no VM.
pub fn read_manifest(file: &Path) -> Result<Manifest, CtlError> {
    Manifest::parse(&read_text(file)?).map_err(CtlError::manifest(file))
}

/// The VMI of a manifest; as a later version of the one that was sent, if there is one.
fn read_update(file: &Path, sent: Option<&Value>) -> Result<Value, CtlError> {
    let manifest = read_manifest(file)?;
    let Some(sent) = sent else {
        return Ok(manifest.into_value());
    };
    let mut update = manifest
        .into_update_of(sent)
        .map_err(CtlError::manifest(file))?;
    update.strip_network();
    Ok(update.into_value())
}

fn the_only_one() -> Result<VmDir, CtlError> {
    let mut running = registry::running()?;
    match (running.pop(), running.len()) {
        (Some((_, vm)), 0) => Ok(vm),
        (Some(last), _) => {
            let names = running.into_iter().chain([last]).map(|(name, _)| name);
            Err(TargetError::Several(names.collect()).into())
        }
        (None, _) => in_pod().ok_or_else(|| TargetError::NoneRunning.into()),
    }
}

/// In a pod the root is `/`.
fn in_pod() -> Option<VmDir> {
    let dir = VmDir::at("/".into());
    dir.cmd_socket().exists().then_some(dir)
}
