//! Which network interfaces are plugged in, are unplugged, or have their link set up or down.
//!
//! | VMI | live | wanted | |
//! |---|---|---|---|
//! | network attached to the pod | no interface | interface | attach |
//! | interface absent | tap device named after the network | | detach |
//! | interface absent | another tap device | | left alone |
//! | | interface | interface with another link state | update |
//!
//! As in KubeVirt, a network is attached to the pod once the info source of its entry in
//! `status.interfaces` has `multus-status`, nothing is done before the VMI is Running, and an
//! interface whose tap device has an ordinal name (`tap1`, of a pod that an older KubeVirt made) is
//! not unplugged. Other changes of an interface need a restart.

use std::fmt;

use api::link_names;
use api::vmi::Vmi;
use api::vmi::interfaces::Interface as VmiInterface;
use api::vmi::networks::Network;
use domain::DomainSpec;
use domain::interfaces::Interface;

/// What Multus has attached to the pod has this info source.
const MULTUS_STATUS: &str = "multus-status";
/// Between the info sources of an interface's status.
const SEPARATOR: &str = ", ";
/// The state of an interface that is to be unplugged.
const ABSENT: &str = "absent";

/// An interface to act on.
#[derive(Debug, Clone, PartialEq)]
pub struct InterfaceChange {
    /// For an attach the wanted interface, as the conversion makes it: its tap device, MTU and MAC
    /// address come from network phase 2. For a detach the live one, for an update the live one
    /// with its new link state.
    pub interface: Interface,
    pub why: InterfaceWhy,
}

/// What to do with the network interfaces of a running domain, see [`interfaces`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InterfacePlan {
    /// Interfaces to plug in, first; in the order of the VMI's networks.
    pub attach: Vec<InterfaceChange>,
    /// Interfaces to unplug, second; in the order of the VMI's interfaces.
    pub detach: Vec<InterfaceChange>,
    /// Interfaces with another link state, last; in the order of the wanted domain.
    pub update: Vec<InterfaceChange>,
    /// Changes that are not made now, and why.
    pub deferred: Vec<InterfaceWhy>,
}

/// Why an interface is changed, or is not. Interfaces are named as the VMI names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterfaceWhy {
    /// The running domain lacks the interface.
    New { name: String },
    /// The interface is no longer wanted.
    Absent { name: String },
    /// The link is in another state than it should be.
    Link {
        name: String,
        /// `up` or `down`.
        state: String,
    },
    /// The pod does not have the network yet.
    NotAttached { name: String },
    /// The pod has the network, but virt-handler has not prepared it for the guest.
    NotReady { name: String, reason: String },
    /// The conversion makes no `<interface>` of it, as with a network binding plugin that brings
    /// its own device.
    NoDevice { name: String },
    /// The interface is absent, and its tap device is not named after the network.
    OtherTap {
        name: String,
        /// The tap device, if it has one.
        device: Option<String>,
    },
}

impl InterfaceWhy {
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::New { name }
            | Self::Absent { name }
            | Self::Link { name, .. }
            | Self::NotAttached { name }
            | Self::NotReady { name, .. }
            | Self::NoDevice { name }
            | Self::OtherTap { name, .. } => name,
        }
    }
}

impl fmt::Display for InterfaceWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New { name } => write!(f, "interface {name:?} is new"),
            Self::Absent { name } => write!(f, "interface {name:?} is no longer wanted"),
            Self::Link { name, state } => {
                write!(f, "the link of interface {name:?} is to be {state}")
            }
            Self::NotAttached { name } => write!(
                f,
                "interface {name:?} has to wait: its network is not attached to the pod yet"
            ),
            Self::NotReady { name, reason } => {
                write!(f, "interface {name:?} has to wait: {reason}")
            }
            Self::NoDevice { name } => write!(
                f,
                "interface {name:?} cannot be plugged in: its binding has no <interface> in the domain"
            ),
            Self::OtherTap { name, device: None } => write!(
                f,
                "interface {name:?} cannot be unplugged: it has no tap device"
            ),
            Self::OtherTap {
                name,
                device: Some(device),
            } => write!(
                f,
                "interface {name:?} cannot be unplugged: its tap device {device:?} is not named after the network"
            ),
        }
    }
}

/// The steps that make the interfaces of the `live` domain the VMI's; `wanted` is the VMI's
/// conversion.
#[must_use]
pub fn interfaces(live: &DomainSpec, wanted: &DomainSpec, vmi: &Vmi) -> InterfacePlan {
    if vmi.status.phase != "Running" {
        return InterfacePlan::default();
    }
    let mut plan = InterfacePlan {
        update: link_updates(live, wanted),
        ..InterfacePlan::default()
    };
    for network in &vmi.spec.networks {
        let interface = interface(vmi, &network.name);
        match interface.map(|interface| attach(live, wanted, vmi, interface)) {
            Some(Ok(change)) => plan.attach.extend(change),
            Some(Err(why)) => plan.deferred.push(why),
            None => {}
        }
    }
    for interface in absent(vmi) {
        match detach(live, vmi, interface) {
            Ok(change) => plan.detach.extend(change),
            Err(why) => plan.deferred.push(why),
        }
    }
    plan
}

/// The links of the `live` domain that are in another state than in the `wanted` one, where the
/// conversion (`tap` in `../interfaces.rs`) has set those `down` that the VMI wants so.
#[must_use]
pub fn link_updates(live: &DomainSpec, wanted: &DomainSpec) -> Vec<InterfaceChange> {
    let update = |wanted: &Interface| {
        let name = name(wanted)?;
        let live = find(live, name).filter(|live| live.link_state != wanted.link_state)?;
        let link = wanted.link_state.as_ref();
        let state = link.map_or_else(|| "up".into(), |link| link.state.clone());
        Some(InterfaceChange {
            interface: Interface {
                link_state: wanted.link_state.clone(),
                ..live.clone()
            },
            why: InterfaceWhy::Link {
                name: name.clone(),
                state,
            },
        })
    };
    let wanted = wanted.devices.interfaces.iter();
    wanted.filter_map(update).collect()
}

/// An interface that the live domain lacks, or why it still has to lack it.
// D-net-14 (docs/differences.md).
fn attach(
    live: &DomainSpec,
    wanted: &DomainSpec,
    vmi: &Vmi,
    interface: &VmiInterface,
) -> Result<Option<InterfaceChange>, InterfaceWhy> {
    let name = interface.name.clone();
    // SR-IOV interfaces are host devices, which have a call of their own.
    if interface.state == ABSENT || interface.sriov.is_some() || find(live, &name).is_some() {
        return Ok(None);
    }
    match find(wanted, &name).cloned() {
        None if !is_attached_to_pod(vmi, &name) => Ok(None),
        Some(_) if !is_attached_to_pod(vmi, &name) => Err(InterfaceWhy::NotAttached { name }),
        None => Err(InterfaceWhy::NoDevice { name }),
        Some(interface) => Ok(Some(InterfaceChange {
            interface,
            why: InterfaceWhy::New { name },
        })),
    }
}

/// A live interface that is to go, or why it cannot.
fn detach(
    live: &DomainSpec,
    vmi: &Vmi,
    interface: &VmiInterface,
) -> Result<Option<InterfaceChange>, InterfaceWhy> {
    let Some(live) = find(live, &interface.name) else {
        return Ok(None);
    };
    let name = interface.name.clone();
    let device = live.target.as_ref().map(|target| target.device.clone());
    if device.as_ref() != Some(&hashed_tap(vmi, &name)) {
        return Err(InterfaceWhy::OtherTap { name, device });
    }
    Ok(Some(InterfaceChange {
        interface: live.clone(),
        why: InterfaceWhy::Absent { name },
    }))
}

fn interface<'v>(vmi: &'v Vmi, name: &str) -> Option<&'v VmiInterface> {
    let mut interfaces = vmi.spec.domain.devices.interfaces.iter();
    interfaces.find(|interface| interface.name == name)
}

fn absent(vmi: &Vmi) -> impl Iterator<Item = &VmiInterface> {
    let interfaces = vmi.spec.domain.devices.interfaces.iter();
    interfaces.filter(|interface| interface.state == ABSENT)
}

/// Whether Multus has attached the network to the pod (`infoSource` of the status).
fn is_attached_to_pod(vmi: &Vmi, name: &str) -> bool {
    vmi.status.interfaces.iter().any(|status| {
        let mut sources = status.info_source.split(SEPARATOR);
        status.name == name && sources.any(|source| source == MULTUS_STATUS)
    })
}

/// The tap device of an interface in a pod that names its links by hash.
fn hashed_tap(vmi: &Vmi, name: &str) -> String {
    let mut networks = vmi.spec.networks.iter();
    let network = networks.find(|network| network.name == name);
    let is_secondary = network.is_some_and(Network::is_secondary);
    link_names::tap(&link_names::hashed_link(name), is_secondary)
}

/// The interface of this name.
fn find<'d>(domain: &'d DomainSpec, wanted: &str) -> Option<&'d Interface> {
    let mut interfaces = domain.devices.interfaces.iter();
    interfaces.find(|interface| name(interface).is_some_and(|name| name == wanted))
}

/// The name that the VMI gives to the interface; libvirt's own names (`net0`) mean nothing there.
// D-net-15 (docs/differences.md).
fn name(interface: &Interface) -> Option<&String> {
    let alias = interface.alias.as_ref().filter(|alias| alias.user_defined);
    alias.map(|alias| &alias.name)
}
