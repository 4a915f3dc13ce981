//! What the launcher's flags say about the pod.

use std::path::PathBuf;

use api::pod_paths;

use super::Root;

/// The pod as the launcher's flags describe it. Paths are pod paths: without the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Below what the pod's paths are (`--root`).
    pub root: Root,
    /// `--ephemeral-disk-dir`.
    pub ephemeral_disk_dir: String,
    /// `--container-disk-dir`.
    pub container_disk_dir: String,
    /// `--hotplug-disk-dir`.
    pub hotplug_disk_dir: String,
    /// `--kubevirt-share-dir`.
    pub share_dir: String,
    /// `--ovmf-path`, a directory of the machine, not below the root; empty on s390x.
    pub ovmf_path: String,
    /// `--run-as-nonroot`.
    pub run_as_nonroot: bool,
    /// `--image-volume`: container disks are mounted as image volumes.
    pub image_volume: bool,
    /// `--allow-emulation`.
    pub allow_emulation: bool,
    /// `--allow-cross-arch-emulation`.
    pub allow_cross_arch_emulation: bool,
    /// `--force-emulation`: never use the hypervisor's device.
    pub force_emulation: bool,
    /// `--firmware-auto-selection`.
    pub firmware_auto_selection: bool,
    /// `--hypervisor`: `kvm` (or empty), or `hyperv-direct`.
    pub hypervisor: String,
    /// `--disk-memory-limit`: address space of `qemu-img` while it looks at a foreign image, in bytes.
    pub disk_memory_limit: u64,
}

impl Default for Config {
    /// The defaults of the flags (pod contract, section 3).
    fn default() -> Self {
        Self {
            root: Root::default(),
            ephemeral_disk_dir: pod_paths::EPHEMERAL_DISK_DIR.into(),
            container_disk_dir: pod_paths::CONTAINER_DISK_DIR.into(),
            hotplug_disk_dir: pod_paths::HOTPLUG_DISK_DIR.into(),
            share_dir: pod_paths::SHARE_DIR.into(),
            ovmf_path: "/usr/share/edk2/ovmf".into(),
            run_as_nonroot: false,
            image_volume: false,
            allow_emulation: false,
            allow_cross_arch_emulation: false,
            force_emulation: false,
            firmware_auto_selection: false,
            hypervisor: "kvm".into(),
            disk_memory_limit: 2_097_152_000,
        }
    }
}

impl Config {
    /// Overlays of container disks and ephemeral volumes.
    pub(super) fn overlay_dir(&self) -> String {
        self.ephemeral(pod_paths::OVERLAYS)
    }

    /// Cloud-init images.
    pub(super) fn cloud_init_dir(&self) -> String {
        self.ephemeral(pod_paths::CLOUD_INIT)
    }

    /// Ignition files.
    pub(super) fn ignition_dir(&self) -> String {
        self.ephemeral(pod_paths::IGNITION)
    }

    fn ephemeral(&self, name: &str) -> String {
        format!("{}/{name}", self.ephemeral_disk_dir.trim_end_matches('/'))
    }

    /// Images of container disks.
    pub(super) fn container_disk_dir(&self) -> &str {
        self.container_disk_dir.trim_end_matches('/')
    }

    /// Kernel and initrd of the kernel boot container.
    pub(super) fn kernel_boot_dir(&self) -> String {
        format!(
            "{}/{}",
            self.container_disk_dir(),
            pod_paths::KERNEL_BOOT_DIR
        )
    }

    /// A file of the directory that is shared with virt-handler, such as [`pod_paths::COMMAND_SOCKET`].
    #[must_use]
    pub fn shared(&self, name: &str) -> PathBuf {
        self.root
            .path(self.share_dir.trim_end_matches('/'))
            .join(name)
    }

    /// Where virt-handler puts hotplugged volumes.
    pub(super) fn hotplug_dir(&self) -> &str {
        self.hotplug_disk_dir.trim_end_matches('/')
    }
}
