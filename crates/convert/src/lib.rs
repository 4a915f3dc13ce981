//! VMI and context in, domain out: KubeVirt's rules as pure functions. No I/O, no clock, no
//! globals; an error always names the field of the input that caused it.
//!
//! ```text
//! (VMI, Context) ──► Input ──► rule 1 ──► rule 2 ──► … ──► rule n ──► Domain
//!                    facts that         each adds its part to the domain
//!                    several rules need
//! ```
//!
//! The rules are the table [`RULES`], in the order in which they run. A rule that reads or changes
//! what another one writes names it ([`Rule::after`]); all others may change places.
#![forbid(unsafe_code)]

pub mod arch;
pub mod backup;
mod character;
mod clock;
pub mod context;
mod controllers;
mod cpu;
mod cpu_pool;
mod devices;
pub mod disk_modes;
mod disks;
mod display;
mod error;
pub mod explain;
mod features;
mod firmware;
mod host_devices;
pub mod hotplug_ports;
mod hyperv;
mod hypervisor;
mod ignored;
mod input;
mod interfaces;
mod iothreads;
mod launch_security;
mod machine;
mod memory;
pub mod migration;
mod numa;
mod passt;
mod pci;
mod pinning;
pub mod plan;
pub mod premigration;
mod qemu_command;
#[cfg(test)]
mod refusal_tests;
mod sysinfo;

pub use arch::Arch;
pub use context::Context;
pub use cpu::parse_list;
pub use devices::VSOCK_NS_MODE;
pub use error::ConvertError;
pub use host_devices::IOMMUFD_GROUP;
pub use hotplug_ports::{HotplugPorts, HotplugPortsError};
pub use ignored::{IgnoredParts, ignored_parts};
pub use input::{CpuTopology, Input};
pub use iothreads::count::IoThreads;
pub use pci::{NODE_DIRS_WITHOUT_LINKS, NODE_LINK_DEPTH};

use api::vmi::Vmi;
use domain::DomainSpec;

/// The name of a rule, unique in the table.
type Name = &'static str;
type Apply = fn(&Input<'_>, &mut DomainSpec) -> Result<(), ConvertError>;

/// One rule of the conversion.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub name: Name,
    /// The rules that must run before it, because it reads or changes what they write. The others
    /// only decide which of a VMI's faults is named. `tests/corpora/rule_order.rs` checks both.
    pub after: &'static [Name],
    /// The elements that it adds to the domain, and their source, in one line.
    pub about: &'static str,
    pub apply: Apply,
}

/// Shorthand for a line of the table.
#[rustfmt::skip]
const fn rule(name: Name, after: &'static [Name], about: &'static str, apply: Apply) -> Rule {
    Rule { name, after, about, apply }
}

/// All rules, in the order in which they run.
#[rustfmt::skip]
pub static RULES: &[Rule] = &[
    rule("name", &[], "<name>: <namespace>_<name> of the VMI", name),
    rule("interfaces", &[], "<interface>: spec.domain.devices.interfaces with a tap device or passt", interfaces::interfaces),
    rule("tpm", &[], "<tpm>: spec.domain.devices.tpm", devices::tpm),
    rule("vsock", &[], "<vsock>: status.VSOCKCID, chosen by virt-controller; 3 where vsock's ns_mode is local", devices::vsock),
    rule("launch security", &[], "<launchSecurity>: SEV, SEV-ES, SEV-SNP or TDX of spec.domain.launchSecurity", launch_security::launch_security),
    rule("channels", &[], "<channel>: the guest agent's, and spec.domain.devices.downwardMetrics", character::channels),
    rule("clock", &[], "<clock>: spec.domain.clock, and the scheduler's TSC frequency", clock::clock),
    rule("rng", &[], "<rng>: spec.domain.devices.rng", devices::rng),
    rule("inputs", &[], "<input>: spec.domain.devices.inputs, and what the architecture adds to a display", display::inputs),
    rule("balloon", &[], "<memballoon>: spec.domain.devices.autoattachMemBalloon, and cluster options", devices::balloon),
    rule("graphics", &[], "<graphics>, <video>: spec.domain.devices.autoattachGraphicsDevice and video", display::graphics),
    rule("sound", &[], "<sound>: spec.domain.devices.sound", devices::sound),
    rule("host devices", &[], "<hostdev>: devices of the node that were given to the pod", host_devices::host_devices),
    rule("watchdog", &[], "<watchdog>: spec.domain.devices.watchdog", devices::watchdog),
    rule("console", &[], "<serial>, <console>: spec.domain.devices.autoattachSerialConsole, and its log", character::console),
    rule("panic devices", &[], "<panic>: spec.domain.devices.panicDevices", devices::panic_devices),
    rule("features", &[], "<features>: spec.domain.features, with Hyper-V", features::features),
    rule("sysinfo", &[], "<sysinfo>: firmware's uuid and serial, the cluster's SMBIOS values, chassis", sysinfo::sysinfo),
    rule("os", &[], "<os>: firmware, kernel boot, ACPI tables, machine type, boot menu", firmware::os),
    rule("virtiofs", &[], "<filesystem>: spec.domain.devices.filesystems", devices::virtiofs),
    rule("usb redirection", &[], "<redirdev>: spec.domain.devices.clientPassthrough", devices::usb_redirection),
    rule("controllers", &[], "<controller>: USB, SCSI and virtio-serial, as devices need them", controllers::apply),
    rule("qemu command line", &[], "<qemu:commandline>: Ignition data, the firmware's log", qemu_command::apply),
    rule("cpu", &[], "<cpu>, <vcpu>, <vcpus>: model, features and topology, up to maxSockets", cpu::cpu),
    rule("iothreads", &[], "<iothreads>: spec.domain.ioThreadsPolicy, dedicatedIOThread of disks", iothreads::total),
    rule("memory", &[], "<memory>, <maxMemory>: guest memory, else what the pod requests", memory::memory),
    rule("reboot policy", &[], "<on_reboot>: spec.domain.rebootPolicy", machine::reboot_policy),
    rule("iommufd", &[], "<iommufd>: the IOMMU descriptor that the pod offers", host_devices::iommufd),
    rule("hypervisor", &[], "type of <domain>, <emulator>: KVM, Microsoft hypervisor, emulation", hypervisor::hypervisor),
    rule("memory backing", &["cpu"], "<memoryBacking>: hugepages, and memory shared with virtiofsd and passt", memory::backing),
    rule("disks", &[], "<disk>: spec.domain.devices.disks with their spec.volumes", disks::apply),
    rule("grace requirements", &[], "nothing: refuses Grace GPUs where something that they need is missing", pci::grace_requirements),
    rule("pinning", &["features", "iothreads"], "<cputune>: dedicated CPUs for vCPUs, IOThreads and the emulator", pinning::pinning),
    rule("numa", &["memory backing", "pinning"], "<numa>, <numatune>: the host's NUMA cells below the vCPUs", numa::numa),
    rule("grace", &["controllers", "host devices", "numa"], "<iommu>, buses, NUMA cells and PCI hole of NVIDIA Grace GPUs", pci::grace),
    rule("pci numa", &["controllers", "host devices", "numa"], "<address> of host devices: on buses next to their guest NUMA cell", pci::numa),
    rule("pci root complex", &["interfaces", "rng", "inputs", "balloon", "host devices", "watchdog", "controllers", "disks", "pci numa"], "<address> of PCI devices: on the root complex, by annotation", pci::root_complex),
    rule("defaults", &["os", "hypervisor"], "<type> of <os>, type of <domain>: where no other rule has set them", machine::defaults),
    rule("disk modes", &["disks"], "cache and io of <driver>: what the disks' files and devices can do", disk_modes::apply),
];

/// Converts a VMI to the domain that libvirt is to run.
///
/// # Errors
/// When KubeVirt's rules refuse the VMI; the error names the field.
pub fn domain(vmi: &Vmi, ctx: &Context) -> Result<DomainSpec, ConvertError> {
    let input = Input::new(vmi, ctx)?;
    let mut domain = DomainSpec::default();
    for rule in RULES {
        (rule.apply)(&input, &mut domain)?;
    }
    Ok(domain)
}

fn name(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    domain.name = input.vmi.domain_name();
    Ok(())
}
