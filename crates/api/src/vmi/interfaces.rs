//! `spec.domain.devices.interfaces`.

use super::Text;
use crate::api;

api! {
/// `interfaces` of `Devices`.
Interface {
    "name" name: Text,
    "model" model: Text,
    "bridge" bridge: Option<InterfaceBridge>,
    "slirp" slirp: Option<DeprecatedInterfaceSlirp>,
    "masquerade" masquerade: Option<InterfaceMasquerade>,
    "sriov" sriov: Option<InterfaceSriov>,
    "macvtap" macvtap: Option<DeprecatedInterfaceMacvtap>,
    "passt" passt: Option<DeprecatedInterfacePasst>,
    "passtBinding" passt_binding: Option<InterfacePasstBinding>,
    "binding" binding: Option<PluginBinding>,
    "ports" ports: Vec<Port>,
    "portRanges" port_ranges: Vec<PortRange>,
    "macAddress" mac_address: Text,
    "bootOrder" boot_order: Option<u64>,
    "pciAddress" pci_address: Text,
    "dhcpOptions" dhcp_options: Option<DhcpOptions>,
    "tag" tag: Text,
    "acpiIndex" acpi_index: i64,
    "state" state: Text,
}
/// `bridge` of `Interface`.
InterfaceBridge {
}
/// `slirp` of `Interface`.
DeprecatedInterfaceSlirp {
}
/// `masquerade` of `Interface`.
InterfaceMasquerade {
}
/// `sriov` of `Interface`.
InterfaceSriov {
}
/// `macvtap` of `Interface`.
DeprecatedInterfaceMacvtap {
}
/// `passt` of `Interface`.
DeprecatedInterfacePasst {
}
/// `passtBinding` of `Interface`.
InterfacePasstBinding {
}
/// `binding` of `Interface`.
PluginBinding {
    "name" name: Text,
}
/// `ports` of `Interface`.
Port {
    "name" name: Text,
    "protocol" protocol: Text,
    "port" port: i32,
}
/// `portRanges` of `Interface`.
PortRange {
    "protocol" protocol: Text,
    "start" start: i32,
    "end" end: i32,
}
/// `dhcpOptions` of `Interface`.
DhcpOptions {
    "bootFileName" boot_file_name: Text,
    "tftpServerName" tftp_server_name: Text,
    "ntpServers" ntp_servers: Vec<Text>,
    "privateOptions" private_options: Vec<DhcpPrivateOptions>,
}
/// `privateOptions` of `DhcpOptions`.
DhcpPrivateOptions {
    "option" option: i64,
    "value" value: Text,
}
}
