//! What phase 2 needs to know of a VMI.

use crate::network::error::NetworkError;

/// The networks and interfaces of a VMI.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkRequest {
    /// `spec.domain.devices.interfaces`, all of them in the order of the spec: the address of a
    /// bridge's DHCP server depends on it.
    pub interfaces: Vec<Interface>,
    /// `spec.networks`, all of them in the order of the spec: ordinal names of links depend on it.
    pub networks: Vec<Network>,
    /// `spec.subdomain`; may be empty.
    pub subdomain: String,
}

/// An interface of the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name. Its network has the same name, and so has the alias of the domain's
    /// interface, after `ua-`.
    pub name: String,
    /// How it is bound to its network.
    pub binding: Binding,
    /// Whether virt-handler says that the domain is attached by a tap device
    /// (`interfaceDomainAttachment` is `tap`). All others are left alone.
    pub tap: bool,
    /// Whether the interface's state is `absent`: it is unplugged, or has to be.
    pub absent: bool,
    /// `macAddress`; may be empty: then the pod link's address is the guest's.
    pub mac_address: String,
    /// `podInterfaceName` of its entry in `status.interfaces`; may be empty.
    pub pod_interface_name: String,
    /// `dhcpOptions`.
    pub dhcp_options: DhcpOptions,
}

/// How an interface is bound to its network, as far as DHCP depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The guest has the pod's address.
    Bridge,
    /// The guest has an address of its own behind NAT.
    Masquerade,
    /// Others, such as network binding plugins: no DHCP server.
    Other,
}

/// A network of the VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    pub name: String,
    pub source: NetworkSource,
}

/// The kinds of networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSource {
    Pod {
        /// `vmNetworkCIDR`, the IPv4 network of a masqueraded guest; may be empty.
        vm_network_cidr: String,
        /// `vmIPv6NetworkCIDR`, likewise.
        vm_ipv6_network_cidr: String,
    },
    Multus {
        /// Whether it takes the place of the pod's network.
        default: bool,
    },
    /// Others, such as resource claims' networks: they have no link in the pod.
    Other,
}

/// DHCP options that the VMI asks for (`dhcpOptions`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DhcpOptions {
    /// `tftpServerName` (option 66); may be empty.
    pub tftp_server_name: String,
    /// `bootFileName` (option 67); may be empty.
    pub boot_file_name: String,
    /// `ntpServers` (option 42): IPv4 addresses.
    pub ntp_servers: Vec<String>,
    /// `privateOptions`: code and value. Only 224 to 254 are served.
    pub private_options: Vec<(i64, String)>,
}

/// Which networks to set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Those of all interfaces that are not absent: at a start, and on a migration target.
    All,
    /// The network of an interface that is plugged into a running VM.
    Network(&'a str),
}

impl NetworkRequest {
    /// The interfaces of `scope` that are attached by a tap, in the order of the spec.
    ///
    /// # Errors
    /// No interface uses the one network that is asked for.
    pub fn tapped(&self, scope: Scope<'_>) -> Result<Vec<&Interface>, NetworkError> {
        let no_interface = |name: &str| NetworkError::NoInterface {
            network: name.to_owned(),
        };
        let selected: Vec<&Interface> = match scope {
            Scope::All => self.interfaces.iter().filter(|one| !one.absent).collect(),
            Scope::Network(name) => {
                vec![self.interface(name).ok_or_else(|| no_interface(name))?]
            }
        };
        Ok(selected.into_iter().filter(|one| one.tap).collect())
    }

    /// The interface of a network.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces
            .iter()
            .find(|interface| interface.name == name)
    }

    /// The network of a name.
    pub fn network(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.name == name)
    }
}

impl Network {
    /// Whether it is a Multus network besides the primary one.
    pub fn is_secondary(&self) -> bool {
        self.source == NetworkSource::Multus { default: false }
    }

    /// Whether it may be the primary network.
    pub fn is_primary(&self) -> bool {
        matches!(
            self.source,
            NetworkSource::Pod { .. } | NetworkSource::Multus { default: true }
        )
    }
}
