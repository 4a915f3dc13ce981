//! `spec.domain.devices.interfaces`.
use crate::api;

api! {
/// `interfaces` of `Devices`.
Interface {
    "name" name: String,
    "model" model: String,
    "bridge" bridge: Option<InterfaceBridge>,
    "masquerade" masquerade: Option<InterfaceMasquerade>,
    "sriov" sriov: Option<InterfaceSriov>,
    "passtBinding" passt_binding: Option<InterfacePasstBinding>,
    "binding" binding: Option<PluginBinding>,
    "ports" ports: Vec<Port>,
    "macAddress" mac_address: String,
    "bootOrder" boot_order: Option<u64>,
    "pciAddress" pci_address: String,
    "dhcpOptions" dhcp_options: Option<DhcpOptions>,
    "tag" tag: String,
    "acpiIndex" acpi_index: i64,
    "state" state: String,
}
/// `bridge` of `Interface`.
InterfaceBridge {
}
/// `masquerade` of `Interface`.
InterfaceMasquerade {
}
/// `sriov` of `Interface`.
InterfaceSriov {
}
/// `passtBinding` of `Interface`.
InterfacePasstBinding {
}
/// `binding` of `Interface`.
PluginBinding {
}
/// `ports` of `Interface`.
Port {
    "protocol" protocol: String,
    "port" port: i32,
}
/// `dhcpOptions` of `Interface`.
DhcpOptions {
    "bootFileName" boot_file_name: String,
    "tftpServerName" tftp_server_name: String,
    "ntpServers" ntp_servers: Vec<String>,
    "privateOptions" private_options: Vec<DhcpPrivateOptions>,
}
/// `privateOptions` of `DhcpOptions`.
DhcpPrivateOptions {
    "option" option: i64,
    "value" value: String,
}
}
