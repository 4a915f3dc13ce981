//! All input of the conversion besides the VMI. In a running launcher `pod` fills it
//! from the real pod, and logs it at debug level; the conformance corpora and `launcherctl convert
//! --context` bring it as JSON, with the member names used here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use api::pod_paths::PodPaths;
use api::vmi::status::VolumeStatus;
use domain::PciAddress;
use domain::address::Address;

/// Facts about the node, the pod, the cluster configuration and the launcher's flags that the
/// conversion needs. A member that is absent has its zero value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Context {
    // ---- host and hypervisor
    /// Whose rules apply: `amd64`, `arm64` or `s390x`.
    pub architecture: String,
    /// Architecture of the node.
    pub host_architecture: String,
    /// `kvm`, or `hyperv-direct` for the Microsoft hypervisor; empty is `kvm`.
    pub hypervisor_name: String,
    /// The hypervisor's device (`/dev/kvm`, `/dev/mshv`) can be used.
    pub hypervisor_device_available: bool,
    /// Fall back to software emulation.
    pub allow_emulation: bool,
    /// The guest's architecture may differ from the host's, and does.
    pub allow_cross_arch_emulation: bool,
    /// Emulators that are not installed; all others are.
    pub missing_emulator_binaries: Vec<String>,
    /// Environment variables that the conversion reads: `VIRT_LAUNCHER_LOG_VERBOSITY`,
    /// `USB_RESOURCE_*`.
    pub environment: BTreeMap<String, String>,
    /// CPUs that the pod may run on, ascending.
    pub cpu_set: Vec<u32>,
    /// NUMA topology of the node.
    pub topology: Option<Topology>,
    /// sysfs files that PCI placement reads, and [`crate::VSOCK_NS_MODE`], with their contents.
    pub host_files: BTreeMap<String, String>,
    /// sysfs links that PCI placement follows, with their targets.
    pub host_links: BTreeMap<String, String>,

    // ---- volumes and disks
    /// Volume → its claim is a block device.
    #[serde(rename = "isBlockPVC")]
    pub is_block_pvc: BTreeMap<String, bool>,
    /// Likewise for data volumes.
    #[serde(rename = "isBlockDV")]
    pub is_block_dv: BTreeMap<String, bool>,
    /// Volume → path of its qcow2 overlay for changed block tracking.
    #[serde(rename = "applyCBT")]
    pub apply_cbt: BTreeMap<String, String>,
    /// Hotplugged volumes with their status.
    pub hotplug_volumes: BTreeMap<String, VolumeStatus>,
    /// All other volumes with their status.
    pub permanent_volumes: BTreeMap<String, VolumeStatus>,
    /// Not read by the conversion.
    pub migrated_volumes: BTreeMap<String, String>,
    /// Volumes that must not get `discard="unmap"`.
    pub volumes_discard_ignore: Vec<String>,
    /// Image information of container disks, by volume.
    pub disks_info: BTreeMap<String, DiskInfo>,
    /// Overlays of container disks and ephemeral volumes; empty is the pod's default.
    pub ephemeral_disk_dir: String,
    /// Cloud-init images; empty is the pod's default.
    pub cloud_init_dir: String,
    /// Ignition files; empty is the pod's default.
    pub ignition_dir: String,
    /// Where virt-handler mounts container disk images; empty is the pod's default.
    pub container_disk_dir: String,
    /// What block size detection reads from a device; a path that is absent cannot be opened.
    pub block_device_probes: BTreeMap<String, BlockDeviceProbe>,
    /// Block size of the file system below an image file; a path that is absent does not exist.
    pub file_block_sizes: BTreeMap<String, u64>,
    /// If present, cache and I/O modes are resolved too (by the last rule).
    pub disk_modes: Option<DiskModes>,

    // ---- devices
    /// Devices for `devices.hostDevices`.
    pub generic_host_devices: Vec<HostDeviceSpec>,
    /// Devices for `devices.gpus`.
    pub gpu_host_devices: Vec<HostDeviceSpec>,
    /// Devices for SR-IOV interfaces.
    pub sriov_devices: Vec<HostDeviceSpec>,
    /// Interface → how it is attached to the domain; `tap` is the value that matters.
    pub domain_attachment_by_interface_name: BTreeMap<String, String>,
    /// The pod offers an IOMMU descriptor, which the launcher takes before the start.
    pub iommufd_enabled: bool,
    /// `devices.useVirtioTransitional` is true.
    pub use_virtio_transitional: bool,

    // ---- firmware, security, cluster configuration
    /// System information for SMBIOS; absent: no such entries.
    pub smbios: Option<Smbios>,
    /// Firmware images chosen for an EFI guest.
    pub efi_configuration: Option<EfiConfiguration>,
    /// SEV, SEV-ES or SEV-SNP requested.
    #[serde(rename = "useLaunchSecuritySEV")]
    pub use_launch_security_sev: bool,
    #[serde(rename = "useLaunchSecurityTDX")]
    pub use_launch_security_tdx: bool,
    /// Secure Execution requested (s390x).
    #[serde(rename = "useLaunchSecurityPV")]
    pub use_launch_security_pv: bool,
    /// Period of balloon statistics in seconds.
    pub mem_balloon_stats_period: u64,
    /// The balloon reports free pages.
    pub free_page_reporting: bool,
    /// The serial console is logged.
    pub serial_console_log: bool,
    /// EFI guests on amd64 get the bochs display.
    #[serde(rename = "bochsForEFIGuests")]
    pub bochs_for_efi_guests: bool,
    /// Place PCI host devices next to their guest NUMA cell.
    #[serde(rename = "pciNUMAAwareTopologyEnabled")]
    pub pci_numa_aware_topology_enabled: bool,
    /// Feature gate for Grace GPUs.
    #[serde(rename = "graceIOVirtualizationEnabled")]
    pub grace_io_virtualization_enabled: bool,
    /// Aliases of the host devices that are Grace GPUs.
    pub grace_host_device_aliases: Vec<String>,

    /// Ours, not in the corpora: where virt-handler mounts hotplugged volumes
    /// (`--hotplug-disk-dir`); empty is the pod's default.
    pub hotplug_disk_dir: String,
    /// Ours, not in the corpora: directory below which all of the pod's paths are (`--root`);
    /// empty in a pod. Every path that the conversion makes itself starts with it.
    pub root: String,
}

impl Context {
    /// Where things are in the pod.
    #[must_use]
    pub fn paths(&self) -> PodPaths<'_> {
        let default = PodPaths::default();
        fn or<'t>(dir: &'t str, default: &'t str) -> &'t str {
            if dir.is_empty() { default } else { dir }
        }
        PodPaths {
            root: &self.root,
            share_dir: default.share_dir,
            container_disk_dir: or(&self.container_disk_dir, default.container_disk_dir),
            hotplug_disk_dir: or(&self.hotplug_disk_dir, default.hotplug_disk_dir),
            overlay_dir: or(&self.ephemeral_disk_dir, default.overlay_dir),
            cloud_init_dir: or(&self.cloud_init_dir, default.cloud_init_dir),
            ignition_dir: or(&self.ignition_dir, default.ignition_dir),
        }
    }
}

/// NUMA topology of the node, as in virt-handler's options.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Topology {
    // virt-handler writes the target's into a VMI's status, by the name in Go.
    #[serde(alias = "numa_cells")]
    pub numa_cells: Vec<NumaCell>,
}

/// One NUMA cell of the node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaCell {
    /// The host's number of the cell.
    pub id: u32,
    /// Memory of the cell.
    pub memory: Option<CellMemory>,
    /// Its pools of pages.
    pub pages: Vec<CellPages>,
    /// Distances to all cells.
    pub distances: Vec<CellDistance>,
    pub cpus: Vec<CellCpu>,
}

/// Memory of a NUMA cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellMemory {
    /// In `unit`.
    pub amount: u64,
    /// Such as `KiB`.
    pub unit: String,
}

/// Pages of one size in a NUMA cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellPages {
    pub count: u64,
    /// Unit of `size`.
    pub unit: String,
    /// Size of a page in `unit`.
    pub size: u32,
}

/// Distance of a NUMA cell to another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellDistance {
    /// The other cell.
    pub id: u32,
    /// ACPI SLIT value.
    pub value: u64,
}

/// A CPU of a NUMA cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellCpu {
    /// The host's number of the CPU.
    pub id: u32,
    /// All threads of its core, itself included.
    pub siblings: Vec<u32>,
}

/// Facts about an image, from `qemu-img info`. Sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskInfo {
    /// Such as `qcow2` or `raw`.
    pub format: String,
    /// Path of the backing file, if there is one.
    pub backing_file: String,
    /// Bytes allocated.
    pub actual_size: u64,
    /// Bytes that the guest sees.
    pub virtual_size: u64,
}

/// Block sizes read from a device, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BlockDeviceProbe {
    /// `BLKSSZGET`.
    pub logical: u64,
    /// `BLKPBSZGET`.
    pub physical: u64,
    /// `queue/discard_granularity`.
    pub discard_granularity: u64,
}

/// What cache and I/O modes of disks depend on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DiskModes {
    /// Opening with `O_DIRECT` works; the empty path always fails.
    #[serde(rename = "directIO")]
    pub direct_io: bool,
    /// Paths for which the opposite is true.
    #[serde(rename = "directIOExceptions")]
    pub direct_io_exceptions: Vec<String>,
    /// Images with an allocated size of at least their virtual size.
    pub preallocated: Vec<String>,
}

/// A host device chosen for the VMI; put in the XML unchanged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostDeviceSpec {
    /// `pci`, `mdev` or `usb`.
    pub r#type: String,
    /// `mode` of `<hostdev>`.
    pub mode: String,
    /// `managed` of `<hostdev>`.
    pub managed: String,
    /// `model` of `<hostdev>`.
    pub model: String,
    /// User alias without `ua-`.
    pub alias: String,
    /// Alias without that prefix.
    pub libvirt_alias: String,
    /// `<address>` in `<source>`.
    pub source_address: Option<AddressSpec>,
    /// `<address>` in the guest.
    pub guest_address: Option<AddressSpec>,
    /// `<boot order>`.
    pub boot_order: Option<u64>,
    /// `display` of `<hostdev>`.
    pub display: String,
    /// `ramfb` of `<hostdev>`.
    #[serde(rename = "ramFB")]
    pub ram_fb: String,
    /// `iommufd` of `<driver>`.
    pub driver_iommufd: String,
    /// `nodeset` of `<acpi>`.
    pub acpi_node_set: String,
}

/// Attributes of libvirt's `<address>`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressSpec {
    pub r#type: String,
    pub domain: String,
    pub bus: String,
    pub slot: String,
    pub function: String,
    pub controller: String,
    pub target: String,
    pub unit: String,
    pub uuid: String,
    pub device: String,
    pub cssid: String,
    pub ssid: String,
    pub devno: String,
}

impl AddressSpec {
    /// The PCI address that it holds, see [`Address::pci`].
    #[must_use]
    pub fn pci(&self) -> Option<PciAddress> {
        Address::from(self).pci()
    }
}

impl From<&AddressSpec> for Address {
    fn from(spec: &AddressSpec) -> Self {
        Self {
            r#type: spec.r#type.as_str().into(),
            domain: spec.domain.clone(),
            bus: spec.bus.clone(),
            slot: spec.slot.clone(),
            function: spec.function.clone(),
            controller: spec.controller.clone(),
            target: spec.target.clone(),
            unit: spec.unit.clone(),
            uuid: spec.uuid.clone(),
            device: spec.device.clone(),
            cssid: spec.cssid.clone(),
            ssid: spec.ssid.clone(),
            devno: spec.devno.clone(),
        }
    }
}

impl From<PciAddress> for AddressSpec {
    fn from(address: PciAddress) -> Self {
        let Address {
            domain,
            bus,
            slot,
            function,
            ..
        } = address.into();
        Self {
            r#type: String::from("pci"),
            domain,
            bus,
            slot,
            function,
            ..Self::default()
        }
    }
}

/// System information for SMBIOS tables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Smbios {
    pub manufacturer: String,
    pub product: String,
    pub version: String,
    pub sku: String,
    pub family: String,
}

/// Firmware images for an EFI guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EfiConfiguration {
    /// Path of the code image.
    pub efi_code: String,
    /// Path of the template of the variables.
    pub efi_vars: String,
    /// The loader is secure (needs SMM).
    pub secure_loader: bool,
    /// libvirt chooses the images itself.
    pub uses_firmware_auto_selection: bool,
}
