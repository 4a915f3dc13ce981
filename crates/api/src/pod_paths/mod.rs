//! Every path of the pod, named once. virt-handler, virt-controller, libvirt, QEMU and the other
//! containers of the pod rely on them, so they are the same in every pod; four directories can be
//! changed by flags, see [`PodPaths`].
//!
//! They are paths as the pod has them. A launcher with a root of its own (`--root`) has all of them
//! below that root.

macro_rules! share {
    ($rest:literal) => {
        concat!("/var/run/kubevirt", $rest)
    };
}
macro_rules! private {
    ($rest:literal) => {
        concat!("/var/run/kubevirt-private", $rest)
    };
}
macro_rules! ephemeral {
    ($rest:literal) => {
        concat!("/var/run/kubevirt-ephemeral-disks", $rest)
    };
}
macro_rules! libvirt_run {
    ($rest:literal) => {
        concat!("/var/run/libvirt", $rest)
    };
}

mod paths;

pub use paths::{PodPaths, cbt_dir};

// ---- directories that flags can change: their defaults

/// Shared with virt-handler (`--kubevirt-share-dir`).
pub const SHARE_DIR: &str = share!("");
/// Overlays and images that the launcher makes (`--ephemeral-disk-dir`).
pub const EPHEMERAL_DISK_DIR: &str = ephemeral!("");
/// Images of container disks, mounted by virt-handler (`--container-disk-dir`).
pub const CONTAINER_DISK_DIR: &str = share!("/container-disks");
/// Hotplugged volumes, mounted by virt-handler (`--hotplug-disk-dir`).
pub const HOTPLUG_DISK_DIR: &str = share!("/hotplug-disks");

// ---- in the directory for ephemeral disks

/// Overlays of container disks and ephemeral volumes.
pub const OVERLAYS: &str = "disk-data";
pub const CLOUD_INIT: &str = "cloud-init-data";
pub const IGNITION: &str = "ignition-data";

// ---- in the share directory

/// Command socket of a launcher that is ready.
pub const COMMAND_SOCKET: &str = "sockets/launcher-sock";
/// Command socket of a launcher that is still starting.
pub const STARTING_COMMAND_SOCKET: &str = "sockets/launcher-init-sock";
/// Socket on which virt-handler takes domain and Kubernetes events.
pub const NOTIFY_SOCKET: &str = "domain-notify-pipe.sock";
/// Socket from which the launcher gets an open `/dev/iommu`; the device plugin listens.
pub const IOMMUFD_SOCKET: &str = "iommufd.sock";
/// Sockets by which a migration leaves its source and reaches QEMU on its target.
pub const MIGRATION_SOCKET_DIR: &str = "migrationproxy";
/// Ports by which KubeVirt tells QEMU's connections of a migration apart: one for the memory, one
/// for copied disks.
pub const MIGRATION_MEMORY_PORT: u16 = 49152;
/// See [`MIGRATION_MEMORY_PORT`].
pub const MIGRATION_DISKS_PORT: u16 = 49153;
/// Socket on which a migration target changes the domain that arrives; `libvirt-hook-client`
/// connects.
pub const MIGRATION_HOOK_SOCKET: &str = share!("/migration-hook-socket");
/// Sockets of the virtiofsd containers: `<volume>.sock`.
pub const VIRTIOFS_DIR: &str = share!("/virtiofs-containers");
/// Socket of the persistent reservation helper.
pub const RESERVATION_SOCKET: &str = share!("/daemons/pr/pr-helper.sock");
pub const PASST_LOG: &str = share!("/passt.log");
/// Socket of QEMU's NBD server, while a backup is pulled.
pub const BACKUP_SOCKET: &str = share!("/sockets/backup-nbd-sock");
/// Not in KubeVirt: how the hooks were called, for `launcherctl launcher hooks`.
pub const HOOKS_REPORT: &str = share!("/hooks.json");
/// Not in KubeVirt: the plugins of the last sync, if one has a hook that no sync calls.
pub const PLUGINS_FILE: &str = share!("/plugins.json");

// ---- private: the launcher, libvirt and QEMU

/// Files that the launcher shares with libvirt and QEMU; configuration and cache of libvirt's
/// session.
pub const PRIVATE_DIR: &str = private!("");
/// Claims with a file system, and host disks: a directory for each volume.
pub const CLAIM_DIR: &str = private!("/vmi-disks");
/// Secrets: a directory for each volume, and for each access credential.
pub const SECRET_DIR: &str = private!("/secret");
/// ConfigMaps: a directory for each volume.
pub const CONFIG_MAP_DIR: &str = private!("/config-map");
/// Downward API fields: a directory for each volume.
pub const DOWNWARD_API_DIR: &str = private!("/downwardapi");
/// Answer files for sysprep: a directory for each volume.
pub const SYSPREP_DIR: &str = private!("/sysprep");
/// Service account token and certificates, projected by the kubelet.
pub const SERVICE_ACCOUNT_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// ISO images made from ConfigMaps.
pub const CONFIG_MAP_IMAGE_DIR: &str = private!("/config-map-disks");
/// ISO images made from Secrets.
pub const SECRET_IMAGE_DIR: &str = private!("/secret-disks");
/// ISO images made from downward API fields, and the vhostmd disk.
pub const DOWNWARD_API_IMAGE_DIR: &str = private!("/downwardapi-disks");
/// ISO images with answer files for sysprep.
pub const SYSPREP_IMAGE_DIR: &str = private!("/sysprep-disks");
/// The ISO image with the service account's files.
pub const SERVICE_ACCOUNT_IMAGE_DIR: &str = private!("/service-account-disk");
/// The socket of the downward metrics channel.
pub const METRICS_CHANNEL_DIR: &str = private!("/downwardmetrics-channel");
/// Not in KubeVirt: when a frozen guest is to be thawed, for a launcher that comes later.
pub const THAW_DEADLINE: &str = private!("/thaw-deadline");
/// Not in KubeVirt: the Kubernetes events that virt-handler has not taken yet, for a launcher that
/// comes later.
pub const K8S_EVENTS: &str = private!("/k8s-events");
/// Not in KubeVirt: the domain that is to come from another node, for a launcher that comes later.
pub const EXPECTED_ARRIVAL: &str = private!("/expected-arrival");
/// Directories with images and sockets for QEMU, which belong to its user.
pub const QEMU_DIRS: [&str; 7] = [
    private!("/vm-disks"),
    CONFIG_MAP_IMAGE_DIR,
    SYSPREP_IMAGE_DIR,
    SECRET_IMAGE_DIR,
    DOWNWARD_API_IMAGE_DIR,
    SERVICE_ACCOUNT_IMAGE_DIR,
    METRICS_CHANNEL_DIR,
];

/// FIFO for SeaBIOS's debug output.
pub const SEABIOS_PIPE: &str = private!("/QEMUSeaBiosDebugPipe");
/// Not in KubeVirt: locked by the launcher, so that only one runs below a root.
pub const LAUNCHER_LOCK: &str = private!("/launcher.lock");
/// Not in KubeVirt: root of libvirt's embedded driver.
pub const EMBED_DIR: &str = private!("/embed");

// ---- libvirt, run by root ("system") or by another user ("session")

/// Sockets and state of libvirt's daemons.
pub const LIBVIRT_RUN_DIR: &str = libvirt_run!("");
/// Images of empty disks.
pub const EMPTY_DISK_DIR: &str = libvirt_run!("/empty-disks");
pub const VIRTQEMUD_SOCKET: &str = libvirt_run!("/virtqemud-sock");
/// virtqemud's configuration, written by the launcher.
pub const VIRTQEMUD_CONF: &str = libvirt_run!("/virtqemud.conf");
/// PID files of system libvirt's QEMU processes.
pub const SYSTEM_PID_DIR: &str = libvirt_run!("/qemu");
/// PID files of session libvirt's QEMU processes.
pub const SESSION_PID_DIR: &str = libvirt_run!("/qemu/run");
/// Configuration of the image and of system libvirt.
pub const LIBVIRT_CONF_DIR: &str = "/etc/libvirt";
/// `qemu.conf` of the image and of system libvirt.
pub const SYSTEM_QEMU_CONF: &str = "/etc/libvirt/qemu.conf";
/// `qemu.conf` of session libvirt, written by the launcher.
pub const SESSION_QEMU_CONF: &str = private!("/libvirt/qemu.conf");
/// virtqemud's configuration in the image.
pub const IMAGE_VIRTQEMUD_CONF: &str = "/etc/libvirt/virtqemud.conf";
/// What libvirt runs when a domain starts, arrives or ends.
pub const LIBVIRT_QEMU_HOOK: &str = "/etc/libvirt/hooks/qemu";
/// The program that asks a migration target about the domain that arrives.
pub const LIBVIRT_HOOK_CLIENT: &str = "/usr/bin/libvirt-hook-client";
/// Marker: the guest's state has moved to another node. virt-handler looks for it.
pub const MIGRATED_MARKER: &str = "/run/kubevirt-private/backend-storage-meta/migrated";
/// virtlogd's configuration in the image.
pub const VIRTLOGD_CONF: &str = "/etc/libvirt/virtlogd.conf";
/// State of system libvirt.
pub const SYSTEM_LIB_DIR: &str = "/var/lib/libvirt";
/// Cache of system libvirt.
pub const SYSTEM_CACHE_DIR: &str = "/var/cache/libvirt";
/// Logs of system libvirt.
pub const SYSTEM_LOG_DIR: &str = "/var/log/libvirt";
/// QEMU's logs of system libvirt.
pub const SYSTEM_QEMU_LOG_DIR: &str = "/var/log/libvirt/qemu";
/// QEMU's logs of session libvirt.
pub const SESSION_QEMU_LOG_DIR: &str = private!("/libvirt/qemu/log");
/// UEFI variables of system libvirt's domains.
pub const SYSTEM_NVRAM_DIR: &str = "/var/lib/libvirt/qemu/nvram";
/// UEFI variables of session libvirt's domains.
pub const SESSION_NVRAM_DIR: &str = private!("/libvirt/qemu/nvram");
/// State of system libvirt's TPMs.
pub const SYSTEM_SWTPM_DIR: &str = "/var/lib/libvirt/swtpm";
/// State of session libvirt's TPMs.
pub const SESSION_SWTPM_DIR: &str = private!("/libvirt/qemu/swtpm");
/// Overlays for changed block tracking, root.
pub const SYSTEM_CBT_DIR: &str = "/var/lib/libvirt/qemu/cbt";
/// Overlays for changed block tracking, another user.
pub const SESSION_CBT_DIR: &str = private!("/libvirt/qemu/cbt");

// ---- other containers and the cluster

/// Name servers and search domains of the pod, which the guest gets by DHCP.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Hook sidecars' sockets: a directory for each sidecar.
pub const HOOKS_DIR: &str = "/var/run/kubevirt-hooks";
/// Plugins' sockets: a directory for each plugin.
pub const PLUGIN_DIR: &str = "/var/run/kubevirt-plugin";
/// Container disks mounted as image volumes: `disk_<index in spec.volumes>`.
pub const IMAGE_VOLUME_DIR: &str = "/var/run/kubevirt-image-volume";
/// The kernel boot container mounted as an image volume.
pub const KERNEL_BOOT_VOLUME: &str = "/var/run/kubevirt-kernel-boot";
/// Networks and their devices: directory and name of a downward API file.
pub const NETWORK_INFO: (&str, &str) = ("/etc/podinfo", "network-info");
/// Attributes of devices given by resource claims (Kubernetes KEP 5304).
pub const CLAIMED_DEVICE_DIR: &str = "/var/run/kubernetes.io/dra-device-attributes";
/// Devices of block claims: `<volume>`.
pub const DEVICE_DIR: &str = "/dev";
/// Where huge pages are mounted.
pub const HUGEPAGE_DIR: &str = "/dev/hugepages";

// ---- names of files in these directories

/// Image of a claim with a file system.
pub const CLAIM_IMAGE: &str = "disk.img";
/// Overlay of a container disk or an ephemeral volume.
pub const OVERLAY_IMAGE: &str = "disk.qcow2";
/// Directory of a container disk in which its image is, if the VMI names none.
pub const CONTAINER_DISK_IMAGE_DIR: &str = "disk";
/// Kernel and initrd of the kernel boot container, in the directory of container disks.
pub const KERNEL_BOOT_DIR: &str = "kernel-boot";
/// Cloud-init image of the data source NoCloud.
pub const NO_CLOUD_IMAGE: &str = "noCloud.iso";
/// Cloud-init image of the data source ConfigDrive.
pub const CONFIG_DRIVE_IMAGE: &str = "configdrive.iso";
pub const IGNITION_FILE: &str = "data.ign";
/// ISO image with the service account's files.
pub const SERVICE_ACCOUNT_IMAGE: &str = "service-account.iso";
/// vhostmd disk of downward metrics.
pub const METRICS_DISK: &str = "vhostmd0";
/// Log of the first serial console, in the VM's directory.
pub const SERIAL_LOG: &str = "virt-serial0-log";

/// The last element of a path; empty if it has none.
#[must_use]
pub fn file_name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
}

/// File name of a container disk's image; `index` is its place in `spec.volumes`.
#[must_use]
pub fn container_disk(index: usize) -> String {
    format!("disk_{index}.img")
}
