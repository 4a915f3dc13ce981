//! A network for the guest, without root: passt, or QEMU's own user network where passt is missing.
//!
//! ```text
//!  the VMI's interfaces ─► cards ─┐
//!  -p HOST:GUEST ─► forwards ─────┼─► Network, stored in the VM's directory
//!  --network ─► backend ──────────┘     └─► the supervisor's hook sidecar adds the cards to the domain
//! ```

mod backend;
mod forward;
pub mod sidecar;
mod xml;

use std::collections::BTreeMap;
use std::path::PathBuf;

use backend::Backend;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::registry::VmDir;
use crate::files::FileError;
use crate::manifest::{Card, Manifest};
pub use backend::Wanted;
pub use forward::{Forward, Protocol};

/// Where the network is stored, below the VM's root.
const NETWORK_FILE: &str = "/network.json";
/// The guest's SSH server.
const SSH_PORT: u16 = 22;

fn note_of_left_out(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "left out, as only a cluster has them: interfaces {}",
            names.join(", ")
        )
    })
}

/// What the interfaces of passt's and of QEMU's own network cannot be.
pub fn notes_of_links(manifest: &Manifest) -> impl Iterator<Item = String> {
    let note = |name: String| {
        format!(
            "the link of interface {name} stays up: its state, down, needs a tap device, which only a cluster's guests have"
        )
    };
    manifest.links_down().into_iter().map(note)
}

/// Why a guest cannot have its network.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another program has the port, or it is privileged.
    #[error(
        "cannot listen on {address}; choose another port with --publish",
        address = .0.listen_address()
    )]
    Port(Forward, #[source] std::io::Error),
    /// Two of `--publish` have the same port of this machine.
    #[error("--publish has {0} twice; give each of the guest's ports another one of this machine")]
    PortTwice(std::net::SocketAddr),
    /// `--publish` of a VM without interfaces.
    #[error(
        "--publish needs a network interface; the VMI has none, or --network none takes it away"
    )]
    NoInterface,
    /// `--network passt` without the program.
    #[error("passt is not installed (Debian's package passt); --network user needs nothing")]
    NoPasst,
    /// `--network passt` of root.
    #[error("passt does not run as root; start the VM as another user, or with --network user")]
    PasstAsRoot,
    /// The stored network cannot be read.
    #[error("{file}: not valid JSON", file = .0.display())]
    Stored(PathBuf, #[source] serde_json::Error),
}

/// Options of `run` about the network.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// Forward a port of this machine to the guest; without ADDRESS, of 127.0.0.1
    #[arg(short, long, value_name = "[ADDRESS:]HOST:GUEST[/udp]")]
    publish: Vec<Forward>,
    /// How the guest's interfaces of masquerade and bridge bindings are connected
    #[arg(long, value_enum, default_value_t = Wanted::Auto)]
    network: Wanted,
}

/// The network of a VM.
#[derive(Debug, Serialize, Deserialize)]
pub struct Network {
    backend: Backend,
    cards: Vec<Card>,
    /// Of the first card.
    forwards: Vec<Forward>,
}

impl Network {
    /// Makes the manifest's interfaces those of a network binding plugin; none if it has none. Second, what to tell the
    /// user.
    ///
    /// # Errors
    /// If a port is in use, or passt is missing.
    pub fn of(
        manifest: &mut Manifest,
        args: &NetworkArgs,
    ) -> Result<(Option<Self>, Vec<String>), NetworkError> {
        let mut notes = Vec::new();
        if args.network == Wanted::None {
            manifest.strip_network();
        }
        let (cards, left_out) = manifest.use_plugin_network();
        notes.extend(note_of_left_out(&left_out));
        notes.extend(notes_of_links(manifest));
        if cards.is_empty() {
            return if args.publish.is_empty() {
                Ok((None, notes))
            } else {
                Err(NetworkError::NoInterface)
            };
        }
        let (backend, reason) = args.network.backend()?;
        notes.extend(reason.map(str::to_owned));
        let forwards = forward::with_ssh(args.publish.clone(), SSH_PORT)?;
        let network = Self {
            backend,
            cards,
            forwards,
        };
        Ok((Some(network), notes))
    }

    /// Stores it for the supervisor, `ssh` and `status`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store(&self, dir: &VmDir) -> Result<(), NetworkError> {
        let file = dir.path(NETWORK_FILE);
        let text = serde_json::json!(self).to_string();
        Ok(std::fs::write(&file, text).map_err(FileError::on("write", file))?)
    }

    /// Takes other ports of this machine, which are free now. Old and new ones.
    ///
    /// # Errors
    /// If no port is free.
    pub fn use_other_ports(&mut self) -> Result<BTreeMap<u16, u16>, NetworkError> {
        let mut ports = BTreeMap::new();
        for forward in &mut self.forwards {
            let other = forward
                .other_port()
                .map_err(|source| NetworkError::Port(forward.clone(), source))?;
            ports.insert(forward.host, other);
            forward.host = other;
        }
        Ok(ports)
    }

    /// Forgets that of another VM.
    pub fn remove(dir: &VmDir) {
        let _ = std::fs::remove_file(dir.path(NETWORK_FILE));
    }

    /// The network of the VM, if it has one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load(dir: &VmDir) -> Result<Option<Self>, NetworkError> {
        let file = dir.path(NETWORK_FILE);
        match std::fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::on("read", file)(error).into()),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|source| NetworkError::Stored(file, source)),
        }
    }

    /// The ports that are forwarded.
    #[must_use]
    pub fn forwards(&self) -> &[Forward] {
        &self.forwards
    }

    /// Where the guest's SSH server can be reached.
    #[must_use]
    pub fn ssh(&self) -> Option<&Forward> {
        let is_ssh = |it: &&Forward| it.guest == SSH_PORT && it.protocol == Protocol::Tcp;
        self.forwards.iter().find(is_ssh)
    }
}
