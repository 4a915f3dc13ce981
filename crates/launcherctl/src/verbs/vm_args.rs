//! Verbs about this machine's VMs, by name: `console`, `list`, `logs`, `status`, `dumpxml`, `vnc`,
//! `stop`.

use clap::Args;

use super::target::Target;
use crate::error::CtlError;
use crate::host::registry::VmDir;
use crate::json::text_at;
use crate::reports::guest_state::no_domain;

/// A VM, by its name or otherwise.
#[derive(Debug, Args)]
pub struct VmArgs {
    /// The VM's name; may be left out if there is only one
    #[arg(value_name = "VM", conflicts_with_all = ["name", "root", "socket"])]
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

/// A VM whose launcher answers.
#[derive(Debug)]
pub struct RunningVm {
    pub dir: VmDir,
    pub name: String,
    pub uid: String,
}

impl RunningVm {
    /// Finds it; `verb` is for the error.
    ///
    /// # Errors
    /// There is no such VM, or it has no domain.
    pub async fn find(target: &Target, verb: &'static str) -> Result<Self, CtlError> {
        let launcher = target.resolve()?;
        let client = launcher.connect().await?;
        let domain = client.domain().await?.ok_or_else(no_domain)?;
        Ok(Self {
            dir: launcher.into_dir(verb)?,
            name: text_at(&domain, "/ObjectMeta/name").to_owned(),
            uid: text_at(&domain, "/ObjectMeta/uid").to_owned(),
        })
    }
}
