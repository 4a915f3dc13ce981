//! What fields hold that means something, by the name that they have in JSON. Names of things are
//! few, so that they often match: a disk and its volume, an interface and its network.

/// Names of volumes and disks, of interfaces and networks.
const NAMES: &[&str] = &["root", "data", "seed", "extra", "default", "second"];

/// Values of a text field.
pub fn of(field: &str, parent: &str) -> &'static [&'static str] {
    match (field, parent) {
        ("name", "disks" | "volumes" | "volumeStatus") => &["root", "data", "seed", "extra"],
        ("name", "interfaces" | "networks") => &["default", "second"],
        ("name", "features") => &["vmx", "svm", "lahf_lm"],
        ("bus", "inputs") => &["usb", "virtio", ""],
        ("bus" | "slot", "sourceAddress" | "guestAddress") => &["0x00", "0x3b", "0x81", "0x01"],
        ("bus", _) => &["virtio", "virtio", "sata", "scsi", "usb"],
        ("type", "inputs") => &["tablet"],
        ("type", "video") => &["virtio", "vga", "qxl"],
        ("type", "machine") => &["q35", "virt", "s390-ccw-virtio"],
        ("type", "sourceAddress" | "guestAddress") => &["pci", "usb"],
        ("type", "genericHostDevices" | "gpuHostDevices" | "sriovDevices") => {
            &["pci", "mdev", "usb"]
        }
        ("type", _) => &["DiskOrCreate", "pci", "usb"],
        ("model", "sound") => &["", "ich9", "ac97"],
        ("model", "interfaces") => &["", "virtio", "e1000e"],
        ("model", "cpu") => &["", "host-model", "host-passthrough", "Skylake-Client"],
        ("model", _) => &["", "vfio-pci", "isa"],
        ("policy", _) => &["", "require", "disable", "optional", "forbid"],
        ("cache", _) => &["", "", "none", "writethrough", "writeback"],
        ("io", _) => &["", "native", "threads"],
        ("errorPolicy", _) => &["stop", "ignore", "report", "enospace"],
        ("action", _) => &["poweroff", "reset", "shutdown"],
        ("tray", _) => &["", "open", "closed"],
        ("phase", _) => &["Ready", "MountedToPod", "Pending", "AttachedToNode"],
        ("target", _) => &["", "", "vda", "vdb", "sda", "sdc", "vdaa", "hda"],
        ("pciAddress", _) => &["", "", "", "0000:01:00.0", "0000:81:01.2"],
        ("macAddress", _) => &["", "02:00:00:00:00:01"],
        ("state", _) => &["", "up", "down", "absent"],
        ("protocol", _) => &["", "TCP", "UDP"],
        ("podInterfaceName", _) => &["eth0", "net1"],
        ("ioThreadsPolicy", _) => &["shared", "auto", "supplementalPool"],
        ("rebootPolicy", _) => &["Reboot", "Terminate"],
        ("architecture" | "hostArchitecture", _) => &["amd64", "amd64", "arm64", "s390x"],
        ("hypervisorName", _) => &["kvm", "kvm", "", "hyperv-direct"],
        ("pageSize", _) => &["2Mi", "1Gi"],
        ("guest" | "maxGuest", _) => &["1Gi", "64Mi", "2Gi", "1.5Gi"],
        ("capacity" | "requests" | "limits", _) => &["1Gi", "2", "1500m", "5G"],
        ("filesystemOverhead", _) => &["0", "0.055"],
        ("uuid", _) => &["5d307ca9-b3ef-428c-8861-06e72d69f223"],
        ("unit", _) => &["KiB", "MiB", "b"],
        ("domain", "sourceAddress" | "guestAddress") => &["0x0000"],
        ("function", _) => &["0x0", "0x1"],
        ("timezone", _) => &["Europe/Berlin"],
        ("tickPolicy", _) => &["", "delay", "catchup", "merge", "discard"],
        ("mask", _) => &["", "0-1"],
        ("slicNameRef" | "msdmNameRef", _) => &["", "root", "data"],
        ("kernelPath" | "initrdPath", _) => &["", "/boot/vmlinuz"],
        ("hostFiles" | "hostLinks", _) => &[
            "0",
            "1",
            "-1",
            "0-3",
            "../../devices/pci0000:80/0000:80:01.0/0000:81:00.0",
            "10 20\n",
        ],
        ("annotations", _) => &["true", "false", "", "{\"ignition\": {}}", "/run/qgs.sock"],
        ("environment", _) => &["6", "2", "x"],
        ("domainAttachmentByInterfaceName", _) => &["tap", "tap", "tap", ""],
        ("applyCBT", _) => &["", "/var/lib/libvirt/qemu/cbt/data.qcow2"],
        ("cpus", _) => &["0"],
        ("root", _) => &["", "", "/tmp/root"],
        _ => NAMES,
    }
}

/// Whether the items of the list have the names one after the other.
pub fn in_turn(field: &str, parent: &str) -> bool {
    matches!((field, parent), ("name", "volumes" | "networks"))
}

/// Keys of a map.
pub fn keys(field: &str) -> &'static [&'static str] {
    match field {
        "annotations" => &[
            "kubevirt.io/memfd",
            "kubevirt.io/disablePCIHole64",
            "kubevirt.io/placePCIDevicesOnRootComplex",
            "kubevirt.io/ignitiondata",
            "kubevirt.io/nonroot",
            "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity",
            "sidecar.istio.io/inject",
        ],
        "requests" | "limits" | "capacity" => &["cpu", "memory", "storage"],
        "environment" => &["VIRT_LAUNCHER_LOG_VERBOSITY", "USB_RESOURCE_ROOT", "HOME"],
        "domainAttachmentByInterfaceName" => &["default", "second"],
        "fileBlockSizes" => &[
            "/var/run/kubevirt-private/vmi-disks/root/disk.img",
            "/var/run/kubevirt-private/vmi-disks/data/disk.img",
            "/var/run/kubevirt/hotplug-disks/data.img",
        ],
        "blockDeviceProbes" => &[
            "/dev/root",
            "/dev/data",
            "/var/run/kubevirt/hotplug-disks/data",
        ],
        "hostFiles" | "hostLinks" => &[
            "/sys/bus/pci/devices/0000:81:00.0/numa_node",
            "/sys/bus/pci/devices/0000:3b:00.0/numa_node",
            "/sys/bus/pci/devices/0000:81:00.0",
            "/sys/devices/system/node/online",
            "/sys/class/iommu",
        ],
        _ => &["root", "data", "seed", "extra"],
    }
}

/// What a flag mostly is, where the other way round refuses most VMIs.
pub fn truth(field: &str) -> Option<bool> {
    match field {
        "hypervisorDeviceAvailable" | "directIO" | "allowEmulation" => Some(true),
        "allowCrossArchEmulation"
        | "iommufdEnabled"
        | "graceIOVirtualizationEnabled"
        | "dedicatedCpuPlacement" => Some(false),
        _ => None,
    }
}

/// Optional fields without which little happens.
pub fn always(field: &str, parent: &str) -> bool {
    matches!(
        field,
        "metadata"
            | "spec"
            | "status"
            | "domain"
            | "devices"
            | "disks"
            | "volumes"
            | "networks"
            | "name"
            | "bus"
            | "type"
    ) || matches!((field, parent), ("disk" | "lun" | "cdrom", "disks"))
        || EXCLUSIVE.iter().any(|group| group.contains(&field))
}

/// How many items a list or map has, where it matters.
pub fn many(field: &str) -> Option<usize> {
    match field {
        "cpuSet" => Some(8),
        "volumes" => Some(4),
        "networks" => Some(2),
        "disksInfo" => Some(12),
        "graceHostDeviceAliases" | "missingEmulatorBinaries" => Some(0),
        _ => None,
    }
}

/// Groups of fields of which one is there: kinds of disks, sources of volumes, bindings, networks.
const EXCLUSIVE: &[&[&str]] = &[
    &["disk", "lun", "cdrom"],
    &[
        "hostDisk",
        "persistentVolumeClaim",
        "cloudInitNoCloud",
        "cloudInitConfigDrive",
        "sysprep",
        "containerDisk",
        "ephemeral",
        "emptyDisk",
        "dataVolume",
        "configMap",
        "secret",
        "downwardAPI",
        "serviceAccount",
        "downwardMetrics",
    ],
    &["bridge", "masquerade", "passtBinding", "binding"],
    &["pod", "multus"],
];

/// The group of exclusive fields that all belong to an object with these fields.
pub fn exclusive(fields: &[&str]) -> Option<&'static [&'static str]> {
    EXCLUSIVE
        .iter()
        .copied()
        .find(|group| group.iter().all(|field| fields.contains(field)))
}

/// Whether the field is one of such a group.
pub fn is_exclusive(field: &str) -> bool {
    EXCLUSIVE.iter().any(|group| group.contains(&field))
}
