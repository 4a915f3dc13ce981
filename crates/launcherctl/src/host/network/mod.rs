//! A network for the guest, without root: QEMU's own user network.
//!
//! ```text
//!  the VMI's interfaces ─► cards ─┐
//!  -p HOST:GUEST ─► forwards ─────┴─► Network, stored in the VM's directory
//!                                       └─► the supervisor's hook sidecar adds the cards to the domain
//! ```

mod forward;
pub mod sidecar;
mod xml;

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::vm_dir::VmDir;
use crate::error::{CtlError, TextError, fail};
use crate::files::FileError;
use crate::manifest::{Card, Manifest};
pub use forward::Forward;

/// Where the network is stored, below the VM's root.
const NETWORK_FILE: &str = "/network.json";

/// Options of `run` about the network.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// Forward a port of this machine to the guest; without ADDRESS, of 127.0.0.1
    #[arg(short, long, value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    publish: Vec<Forward>,
    /// How the guest's interfaces of masquerade and bridge bindings are connected
    #[arg(long, value_enum, default_value_t = Wanted::User)]
    network: Wanted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// QEMU's own user network; it needs nothing
    User,
    /// No network
    None,
}

/// The network of a VM.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostNetwork {
    cards: Vec<Card>,
    /// For the first card.
    forwards: Vec<Forward>,
}

impl HostNetwork {
    /// Turns the manifest's interfaces into those of a network binding plugin; `None` without
    /// interfaces. Also returns notes for the user.
    ///
    /// # Errors
    /// A port is in use.
    pub fn of(
        manifest: &mut Manifest,
        args: &NetworkArgs,
    ) -> Result<(Option<Self>, Vec<String>), CtlError> {
        let mut notes = Vec::new();
        if args.network == Wanted::None {
            manifest.strip_network();
        }
        let (cards, left_out) = manifest.use_plugin_network();
        if !left_out.is_empty() {
            let names = left_out.join(", ");
            notes.push(format!(
                "left out, as only a cluster has them: interfaces {names}"
            ));
        }
        if cards.is_empty() {
            if args.publish.is_empty() {
                return Ok((None, notes));
            }
            fail!(
                "--publish needs a network interface; the VMI has none, or --network none takes it away"
            );
        }
        let forwards = forward::with_ssh(args.publish.clone())?;
        Ok((Some(Self { cards, forwards }), notes))
    }

    /// Stores it for the supervisor, `ssh` and `status`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store(&self, dir: &VmDir) -> Result<(), FileError> {
        dir.store(NETWORK_FILE, self)
    }

    /// Switches to other free ports of this machine. Returns old and new ports.
    ///
    /// # Errors
    /// No port is free.
    pub fn use_other_ports(&mut self) -> Result<BTreeMap<u16, u16>, TextError> {
        let mut ports = BTreeMap::new();
        for forward in &mut self.forwards {
            let old = std::mem::take(&mut forward.host);
            forward.find_free()?;
            ports.insert(old, forward.host);
        }
        Ok(ports)
    }

    /// Removes another VM's stored network.
    pub fn remove(dir: &VmDir) {
        let _ = std::fs::remove_file(dir.path(NETWORK_FILE));
    }

    /// The VM's network, if it has one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(dir: &VmDir) -> Result<Option<Self>, CtlError> {
        match dir.path(NETWORK_FILE).exists() {
            true => Ok(Some(dir.load(NETWORK_FILE)?)),
            false => Ok(None),
        }
    }

    pub fn forwards(&self) -> &[Forward] {
        &self.forwards
    }

    /// Where the guest's SSH server can be reached.
    pub fn ssh(&self) -> Option<&Forward> {
        self.forwards.iter().find(|forward| forward.is_ssh())
    }
}
