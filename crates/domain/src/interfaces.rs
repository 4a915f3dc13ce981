//! `<interface>`: network interfaces.
//!
//! libvirt: [network interfaces](https://libvirt.org/formatdomain.html#network-interfaces)
use super::address::{Address, BootOrder};
use super::alias::Alias;
use super::vocabulary::{OnOff, YesNo};
use super::xml::elements;

elements! {
/// `<interface>`.
Interface {
    name "interface",
    child "address" "Address" address: Option<Address>,
    attr "type" "Type" r#type: String,
    /// Whether the host follows when the guest changes its MAC.
    attr? "trustGuestRxFilters" "TrustGuestRxFilters" trust_guest_rx_filters: YesNo,
    child "source" "Source" source: InterfaceSource,
    child "target" "Target" target: Option<InterfaceTarget>,
    child "model" "Model" model: Option<Model>,
    child "mac" "MAC" mac: Option<Mac>,
    child "mtu" "MTU" mtu: Option<Mtu>,
    child "bandwidth" "BandWidth" bandwidth: Option<BandWidth>,
    child "boot" "BootOrder" boot_order: Option<BootOrder>,
    child "link" "LinkState" link_state: Option<LinkState>,
    child "filterref" "FilterRef" filter_ref: Option<FilterRef>,
    child "alias" "Alias" alias: Option<Alias>,
    child "driver" "Driver" driver: Option<InterfaceDriver>,
    child "rom" "Rom" rom: Option<Rom>,
    child "acpi" "ACPI" acpi: Option<Acpi>,
    child "backend" "Backend" backend: Option<InterfaceBackend>,
    child "portForward" "PortForward" port_forward: Vec<InterfacePortForward>,
}
/// `<portForward>`: ports that passt brings in.
InterfacePortForward {
    attr "proto" "Proto" proto: String,
    attr? "address" "Address" address: String,
    attr? "dev" "Dev" dev: String,
    child "range" "Ranges" ranges: Vec<InterfacePortForwardRange>,
}
/// `<range>`: a port, or some.
InterfacePortForwardRange {
    attr "start" "Start" start: u64,
    attr? "end" "End" end: u64,
    /// The port of the guest where it differs.
    attr? "to" "To" to: u64,
    attr? "exclude" "Exclude" exclude: YesNo,
}
/// `<backend>`: passt, and its log.
InterfaceBackend {
    attr? "type" "Type" r#type: String,
    attr? "logFile" "LogFile" log_file: String,
}
/// `<acpi>`: the index in the name that the guest gives (`eno1`).
Acpi {
    attr "index" "Index" index: u64,
}
/// `<driver>`: vhost and queues.
InterfaceDriver {
    attr "name" "Name" name: String,
    attr? "queues" "Queues" queues: Option<u64>,
    attr? "iommu" "IOMMU" iommu: OnOff,
}
/// `<link>`: the cable is in or out.
LinkState {
    attr "state" "State" state: String,
}
/// `<bandwidth>`: not used by the launcher, but reported.
BandWidth {}
/// `<mac>`: the hardware address.
Mac {
    attr "address" "MAC" mac: String,
}
/// `<mtu>`.
Mtu {
    attr "size" "Size" size: String,
}
/// `<filterref>`: rules of the host for its traffic.
FilterRef {
    attr "filter" "Filter" filter: String,
}
/// `<source>`: what it is connected to on the host.
InterfaceSource {
    attr? "network" "Network" network: String,
    attr? "dev" "Device" device: String,
    attr? "bridge" "Bridge" bridge: String,
    attr? "mode" "Mode" mode: String,
    child "address" "Address" address: Option<Address>,
}
/// `<model>`: what card the guest sees.
Model {
    attr "type" "Type" r#type: String,
}
/// `<target>`: the tap device.
InterfaceTarget {
    attr "dev" "Device" device: String,
    attr? "managed" "Managed" managed: YesNo,
}
/// `<rom>`: the boot ROM.
Rom {
    attr "enabled" "Enabled" enabled: YesNo,
}
}
