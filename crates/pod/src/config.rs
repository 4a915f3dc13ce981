//! Paths that follow from the flags.

use std::path::{Path, PathBuf};

use api::pod_paths;

use super::LauncherFlags;

impl LauncherFlags {
    /// Overlays of container disks and ephemeral volumes.
    pub(super) fn overlay_dir(&self) -> String {
        self.ephemeral(pod_paths::OVERLAYS)
    }

    pub(super) fn cloud_init_dir(&self) -> String {
        self.ephemeral(pod_paths::CLOUD_INIT)
    }

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

    /// A file of the directory that is shared with virt-handler, such as
    /// [`pod_paths::COMMAND_SOCKET`].
    #[must_use]
    pub fn shared(&self, name: &str) -> PathBuf {
        self.root
            .path(self.share_dir.trim_end_matches('/'))
            .join(name)
    }

    /// Whether libvirt's hook can reach this launcher. Below a root of its own, the daemon has
    /// another `/etc/libvirt` and the pod has no hook client. A domain then arrives unchanged.
    #[must_use]
    pub fn has_libvirt_hook(&self) -> bool {
        self.root.dir() == Path::new("/")
    }

    /// Where virt-handler puts hotplugged volumes.
    pub(super) fn hotplug_dir(&self) -> &str {
        self.hotplug_disk_dir.trim_end_matches('/')
    }
}
