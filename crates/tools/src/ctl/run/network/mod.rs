//! A network for the guest: without root passt, or QEMU's own user network where passt is missing; a tap device for root.
//!
//! ```text
//!  the VMI's interfaces ─► cards ─┐
//!  -p HOST:GUEST ─► forwards ─────┼─► Network, stored in the VM's directory
//!  --network ─► backend ──────────┘     ├─► the supervisor's hook sidecar adds the cards to the domain
//!                                       └─► or it makes a tap device in the launcher's network namespace
//! ```

mod backend;
mod forward;
mod listener;
pub mod sidecar;
pub mod tap;
mod xml;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::ctl::files::FileError;
use crate::ctl::manifest::{Card, Manifest};
use crate::ctl::registry::VmDir;
use backend::Backend;
pub use backend::Wanted;
pub use forward::{Forward, Protocol};
use listener::Listeners;
use os::command::CommandError;
use tap::{HostRules, PodNetwork};

/// Where the network is stored, below the VM's root.
const NETWORK_FILE: &str = "/network.json";
/// The guest's SSH server.
const SSH_PORT: u16 = 22;

/// What a guest's tap device needs on this machine, until it is dropped.
#[derive(Debug)]
pub struct NetworkGuard {
    _rules: HostRules,
    _listeners: Listeners,
}

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
            "the link of interface {name} stays up: its state, down, needs a tap device (--network tap, for root)"
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
        address = forward.listen_address()
    )]
    Port {
        /// What was to be forwarded.
        forward: Forward,
        /// Why not.
        source: std::io::Error,
    },
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
    /// `--network tap` of another user.
    #[error("--network tap needs root; --network passt and user do not")]
    TapNeedsRoot,
    /// A program that `--network tap` runs is missing.
    #[error("--network tap needs the program {program} (Debian's package {package})")]
    NoProgram {
        /// Its name.
        program: &'static str,
        /// What has it.
        package: &'static str,
    },
    /// `--network tap` without the pod's network.
    #[error("--network tap needs an interface of the pod's network with masquerade or bridge")]
    NoTap,
    /// UDP to a guest with an address of its own.
    #[error("--network tap forwards no UDP ports; use the guest's own address")]
    Udp,
    /// The VMI's network behind NAT.
    #[error("vmNetworkCIDR {0:?} is not an IPv4 network of four addresses or more")]
    Cidr(String),
    /// The VMI's hardware address.
    #[error("macAddress {0:?} is not a MAC address")]
    Mac(String),
    /// This program ends meanwhile.
    #[error("the guest's network was not completed, as launcherctl ends")]
    Ended,
    /// 256 VMs have taps.
    #[error("all of the links lctl0 to lctl255 are in use")]
    NoLinkLeft,
    /// A program has failed.
    #[error("the guest's tap device and its network namespace cannot be made")]
    Program(#[source] CommandError),
    /// The stored network cannot be read.
    #[error("{file}: not valid JSON", file = file.display())]
    Stored {
        /// Where it is stored.
        file: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
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
        if args.network == Wanted::Tap {
            return Self::with_tap(manifest, args);
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

    /// A tap device for the interface of the pod's network.
    fn with_tap(
        manifest: &mut Manifest,
        args: &NetworkArgs,
    ) -> Result<(Option<Self>, Vec<String>), NetworkError> {
        PodNetwork::check()?;
        let (tap, left_out) = manifest.use_tap_network();
        let pod = PodNetwork::of(tap.ok_or(NetworkError::NoTap)?)?;
        let is_udp = |forward: &Forward| forward.protocol == Protocol::Udp;
        if args.publish.iter().any(is_udp) {
            return Err(NetworkError::Udp);
        }
        let forwards = forward::with_ssh(args.publish.clone(), SSH_PORT)?;
        let notes = note_of_left_out(&left_out).into_iter().collect();
        let network = Self {
            backend: Backend::Tap(pod),
            cards: Vec::new(),
            forwards,
        };
        Ok((Some(network), notes))
    }

    /// The network namespace of its launcher, if it has one.
    #[must_use]
    pub fn pod(&self) -> Option<&PodNetwork> {
        match &self.backend {
            Backend::Tap(pod) => Some(pod),
            Backend::Passt | Backend::User => None,
        }
    }

    /// Makes the network in the namespace of its launcher, and opens the ports. It lasts as long as what is returned. None
    /// without a namespace.
    ///
    /// # Errors
    /// If a program fails, or a port is in use.
    pub async fn set_up(
        &mut self,
        launcher: u32,
        dir: &VmDir,
    ) -> Result<Option<NetworkGuard>, NetworkError> {
        let Backend::Tap(pod) = &mut self.backend else {
            return Ok(None);
        };
        let (network, of) = (pod.clone(), VmDir::at(dir.root().to_owned()));
        let set_up = tokio::task::spawn_blocking(move || network.set_up(launcher, &of));
        let (network, rules) = set_up.await.map_err(|_| NetworkError::Ended)??;
        *pod = network;
        let listeners = match pod.address() {
            Some(address) => Listeners::open(&self.forwards, address).await?,
            None => Listeners::default(),
        };
        self.store(dir)?;
        Ok(Some(NetworkGuard {
            _rules: rules,
            _listeners: listeners,
        }))
    }

    /// Removes what a supervisor that was killed has left on this machine.
    pub fn remove_stale_rules(&self) {
        if let Some(pod) = self.pod() {
            pod.remove_stale_rules();
        }
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
            let other = forward.other_port().map_err(|source| NetworkError::Port {
                forward: forward.clone(),
                source,
            })?;
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
                .map_err(|source| NetworkError::Stored { file, source }),
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
