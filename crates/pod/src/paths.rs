//! Where things are in the pod (pod contract, sections 6 and 7). Pod paths: without the root.

/// Directory that the launcher shares with virt-handler and QEMU.
pub(super) const PRIVATE: &str = "/var/run/kubevirt-private";
/// Claims with a file system and host disks: a directory for each volume.
pub(super) const CLAIMS: &str = "/var/run/kubevirt-private/vmi-disks";
/// Secrets: a directory for each volume, and for each access credential.
pub(super) const SECRETS: &str = "/var/run/kubevirt-private/secret";
/// Container disks mounted as image volumes: `disk_<index in spec.volumes>`.
pub(super) const IMAGE_VOLUMES: &str = "/var/run/kubevirt-image-volume";
/// The kernel boot container mounted as an image volume.
pub(super) const KERNEL_BOOT_VOLUME: &str = "/var/run/kubevirt-kernel-boot";
/// Images of empty disks.
pub(super) const EMPTY_DISKS: &str = "/var/run/libvirt/empty-disks";
/// Service account token and certificates, projected by the kubelet.
pub(super) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Networks and their devices, a downward API file.
pub(super) const NETWORK_INFO: (&str, &str) = ("/etc/podinfo", "network-info");
/// Attributes of devices that were claimed (Kubernetes KEP 5304).
pub(super) const CLAIMED_DEVICES: &str = "/var/run/kubernetes.io/dra-device-attributes";
/// Where a container disk has its image if the VMI names none.
pub(super) const IMAGE_DEFAULT_DIR: &str = "disk";

/// Directories with images and sockets for QEMU, owned by its user.
pub(super) const QEMU_DIRECTORIES: [&str; 7] = [
    "/var/run/kubevirt-private/vm-disks",
    "/var/run/kubevirt-private/config-map-disks",
    "/var/run/kubevirt-private/sysprep-disks",
    "/var/run/kubevirt-private/secret-disks",
    "/var/run/kubevirt-private/downwardapi-disks",
    "/var/run/kubevirt-private/service-account-disk",
    "/var/run/kubevirt-private/downwardmetrics-channel",
];

/// Directory of an image volume.
pub(super) fn image_volume(index: usize) -> String {
    format!("{IMAGE_VOLUMES}/disk_{index}")
}

/// File name of a container disk's image in the container disk directory.
pub(super) fn container_disk(index: usize) -> String {
    format!("disk_{index}.img")
}

/// The last element of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
}
