//! Everything in which amd64, arm64 and s390x differ, as data. Rules that depend on the
//! architecture read it here, and nowhere else.

/// When the guest gets a USB host controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usb {
    /// Always: the default input devices sit on it.
    Always,
    /// Only when a device of the VMI is on the USB bus.
    WhenUsed,
    /// The machine has none.
    Never,
}

/// The watchdog that the machine emulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watchdog {
    /// Intel 6300ESB, on PCI.
    I6300Esb,
    /// The z/VM diagnose call 0x288.
    Diag288,
    /// No watchdog can be attached.
    None,
}

/// The rules of one architecture.
#[derive(Debug, PartialEq, Eq)]
pub struct Arch {
    /// KubeVirt's name of it.
    pub name: &'static str,
    /// libvirt's name of it, `<os><type arch=…>`.
    pub os_arch: &'static str,
    /// The default machine type, of a VMI that names none.
    pub default_machine: &'static str,
    /// The emulator when the host has another architecture.
    pub emulator: &'static str,

    /// virtio devices come as PCI devices with or without a legacy interface; without this
    /// (channel I/O) there is only plain `virtio`.
    pub virtio_transitional: bool,
    /// `model` of the SCSI controller; empty: the same as other virtio devices.
    pub scsi_controller: &'static str,
    /// When there is a USB controller.
    pub usb: Usb,
    /// Bus of a tablet that a guest with a display gets when the VMI asks for none.
    pub tablet: Option<&'static str>,
    /// Bus of a keyboard that a guest with a display always gets.
    pub keyboard: Option<&'static str>,
    /// Display of a guest that names none.
    pub video: &'static str,
    /// Video memory of that display in KiB.
    pub video_memory: Option<u64>,
    /// `bochs` may replace the default display of EFI guests.
    pub bochs: bool,
    pub watchdog: Watchdog,

    /// vCPUs can be added while the guest runs: `maxSockets` counts.
    pub cpu_hotplug: bool,
    /// The CPU feature `mpx` must be disabled for named models: QEMU has removed it.
    pub disable_mpx: bool,
    /// `<smbios>` tables are passed to the guest.
    pub smbios: bool,
    /// There is a VMware backdoor port to turn off.
    pub vmport: bool,
    /// Network cards have a boot ROM that can be turned off.
    pub rom: bool,
    /// The firmware can log to an ISA debug port.
    pub firmware_log: bool,
    /// The 64-bit PCI hole can be disabled.
    pub pci_hole64: bool,
    /// PCI Express topology can be laid out (root complex, expander buses, root ports).
    pub pcie_placement: bool,
    /// Largest custom block size in bytes.
    pub max_block_size: Option<u64>,
}

pub static AMD64: Arch = Arch {
    name: "amd64",
    os_arch: "x86_64",
    default_machine: "q35",
    emulator: "/usr/bin/qemu-system-x86_64",
    virtio_transitional: true,
    scsi_controller: "",
    usb: Usb::WhenUsed,
    tablet: None,
    keyboard: None,
    video: "vga",
    video_memory: Some(16384),
    bochs: true,
    watchdog: Watchdog::I6300Esb,
    cpu_hotplug: true,
    disable_mpx: true,
    smbios: true,
    vmport: true,
    rom: true,
    firmware_log: true,
    pci_hole64: true,
    pcie_placement: true,
    max_block_size: None,
};

pub static ARM64: Arch = Arch {
    name: "arm64",
    os_arch: "aarch64",
    default_machine: "virt",
    emulator: "/usr/bin/qemu-system-aarch64",
    virtio_transitional: true,
    scsi_controller: "",
    usb: Usb::Always,
    tablet: Some("usb"),
    keyboard: Some("usb"),
    video: "virtio",
    video_memory: None,
    bochs: false,
    watchdog: Watchdog::None,
    cpu_hotplug: false,
    disable_mpx: false,
    smbios: true,
    vmport: false,
    rom: true,
    firmware_log: false,
    pci_hole64: false,
    pcie_placement: true,
    max_block_size: None,
};

/// IBM Z.
pub static S390X: Arch = Arch {
    name: "s390x",
    os_arch: "s390x",
    default_machine: "s390-ccw-virtio",
    emulator: "/usr/bin/qemu-system-s390x",
    virtio_transitional: false,
    scsi_controller: "virtio-scsi",
    usb: Usb::Never,
    tablet: None,
    keyboard: Some("virtio"),
    video: "virtio",
    video_memory: None,
    bochs: false,
    watchdog: Watchdog::Diag288,
    cpu_hotplug: true,
    disable_mpx: false,
    smbios: false,
    vmport: false,
    rom: false,
    firmware_log: false,
    pci_hole64: false,
    pcie_placement: false,
    max_block_size: Some(4096),
};

impl Arch {
    /// The rules of the architecture with that name; an unknown one is taken as amd64, as the
    /// reference does.
    #[must_use]
    pub fn named(name: &str) -> &'static Self {
        match name {
            "arm64" => &ARM64,
            "s390x" => &S390X,
            _ => &AMD64,
        }
    }

    /// The architecture by either of its names, KubeVirt's or libvirt's.
    #[must_use]
    pub fn by_any_name(name: &str) -> Option<&'static Self> {
        [&AMD64, &ARM64, &S390X]
            .into_iter()
            .find(|arch| arch.name == name || arch.os_arch == name)
    }

    /// `model` of virtio devices: with the legacy interface, without it, or neither.
    #[must_use]
    pub fn virtio_model(&self, transitional: bool) -> String {
        String::from(match (self.virtio_transitional, transitional) {
            (false, _) => "virtio",
            (true, true) => "virtio-transitional",
            (true, false) => "virtio-non-transitional",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_architecture_has_the_rules_of_amd64() {
        assert_eq!(Arch::named("riscv64"), &AMD64);
        assert_eq!(Arch::by_any_name("riscv64"), None);
        assert_eq!(Arch::by_any_name("aarch64"), Some(&ARM64));
    }

    #[test]
    fn channel_io_knows_no_transitional_devices() {
        assert_eq!(S390X.virtio_model(true), "virtio");
        assert_eq!(ARM64.virtio_model(true), "virtio-transitional");
        assert_eq!(AMD64.virtio_model(false), "virtio-non-transitional");
    }
}
