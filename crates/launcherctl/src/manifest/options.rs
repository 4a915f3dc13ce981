//! The options that virt-handler sends with a VMI, as a JSON file: the members of the wire message
//! `VirtualMachineOptions` under their names there.

use std::collections::HashMap;

use serde::Deserialize;

use api::proto::cmd::v1;

/// `VirtualMachineOptions` as JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Options {
    #[serde(alias = "VirtualMachineSMBios", alias = "virtualMachineSMBios")]
    smbios: Option<Smbios>,
    #[serde(alias = "MemBalloonStatsPeriod")]
    mem_balloon_stats_period: u32,
    #[serde(alias = "PreallocatedVolumes")]
    preallocated_volumes: Vec<String>,
    topology: Option<Topology>,
    #[serde(alias = "ExpandDisksEnabled")]
    expand_disks_enabled: bool,
    cluster_config: Option<ClusterConfig>,
    interface_domain_attachment: HashMap<String, String>,
    plugins_json: Option<serde_json::Value>,
    #[serde(alias = "GraceHostDeviceAliases")]
    grace_host_device_aliases: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Smbios {
    manufacturer: String,
    product: String,
    version: String,
    sku: String,
    family: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ClusterConfig {
    #[serde(rename = "ExpandDisksEnabled")]
    expand_disks: bool,
    #[serde(rename = "FreePageReportingDisabled")]
    no_free_page_reporting: bool,
    #[serde(rename = "BochsDisplayForEFIGuests")]
    bochs_display: bool,
    #[serde(rename = "SerialConsoleLogDisabled")]
    no_serial_console_log: bool,
    #[serde(rename = "PCINUMAAwareTopologyEnabled")]
    pci_numa: bool,
    #[serde(rename = "VGPULiveMigrationEnabled")]
    vgpu_migration: bool,
    #[serde(rename = "GraceIOVirtualizationEnabled")]
    grace: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Topology {
    #[serde(alias = "numaCells")]
    numa_cells: Vec<Cell>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cell {
    id: u32,
    memory: Option<Memory>,
    pages: Vec<Pages>,
    distances: Vec<Distance>,
    cpus: Vec<Cpu>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Memory {
    amount: u64,
    unit: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pages {
    count: u64,
    unit: String,
    size: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Distance {
    id: u32,
    value: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cpu {
    id: u32,
    siblings: Vec<u32>,
}

impl Options {
    /// The message as it goes over the wire.
    #[must_use]
    pub fn into_message(self) -> v1::VirtualMachineOptions {
        v1::VirtualMachineOptions {
            virtual_machine_sm_bios: self.smbios.map(|s| v1::SmBios {
                manufacturer: s.manufacturer,
                product: s.product,
                version: s.version,
                sku: s.sku,
                family: s.family,
            }),
            mem_balloon_stats_period: self.mem_balloon_stats_period,
            preallocated_volumes: self.preallocated_volumes,
            topology: self.topology.map(|t| v1::Topology {
                numa_cells: t.numa_cells.into_iter().map(Cell::into_message).collect(),
            }),
            expand_disks_enabled: self.expand_disks_enabled,
            cluster_config: self.cluster_config.map(|c| v1::ClusterConfig {
                expand_disks_enabled: c.expand_disks,
                free_page_reporting_disabled: c.no_free_page_reporting,
                bochs_display_for_efi_guests: c.bochs_display,
                serial_console_log_disabled: c.no_serial_console_log,
                pcinuma_aware_topology_enabled: c.pci_numa,
                vgpu_live_migration_enabled: c.vgpu_migration,
                grace_io_virtualization_enabled: c.grace,
            }),
            interface_domain_attachment: self.interface_domain_attachment,
            plugins_json: self
                .plugins_json
                .map(|plugins| plugins.to_string().into())
                .unwrap_or_default(),
            grace_host_device_aliases: self.grace_host_device_aliases,
            ..v1::VirtualMachineOptions::default()
        }
    }
}

impl Cell {
    fn into_message(self) -> v1::Cell {
        v1::Cell {
            id: self.id,
            memory: self.memory.map(|m| v1::Memory {
                amount: m.amount,
                unit: m.unit,
            }),
            pages: self
                .pages
                .into_iter()
                .map(|p| v1::Pages {
                    count: p.count,
                    unit: p.unit,
                    size: p.size,
                })
                .collect(),
            distances: self
                .distances
                .into_iter()
                .map(|d| v1::Sibling {
                    id: d.id,
                    value: d.value,
                })
                .collect(),
            cpus: self
                .cpus
                .into_iter()
                .map(|c| v1::Cpu {
                    id: c.id,
                    siblings: c.siblings,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_wire_names_are_read() {
        let text = r#"{"VirtualMachineSMBios":{"product":"p"},"MemBalloonStatsPeriod":10,"topology":{"numaCells":[{"id":1}]},
            "clusterConfig":{"BochsDisplayForEFIGuests":true},"interfaceDomainAttachment":{"default":"tap"},"pluginsJson":[]}"#;
        let message = serde_json::from_str::<Options>(text)
            .unwrap()
            .into_message();
        assert_eq!(message.virtual_machine_sm_bios.unwrap().product, "p");
        assert_eq!(message.mem_balloon_stats_period, 10);
        assert_eq!(message.topology.unwrap().numa_cells[0].id, 1);
        assert!(message.cluster_config.unwrap().bochs_display_for_efi_guests);
        assert_eq!(message.interface_domain_attachment["default"], "tap");
        assert_eq!(message.plugins_json.as_ref(), b"[]");
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let error = serde_json::from_str::<Options>(r#"{"memBaloonStatsPeriod":1}"#).unwrap_err();
        assert!(
            error.to_string().contains("memBaloonStatsPeriod"),
            "{error}"
        );
    }
}
