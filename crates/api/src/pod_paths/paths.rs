//! Paths that depend on a flag, on the root, or on a name of the VMI.

use super::*;

/// The pod's paths, with the directories that flags can change. Names are taken as they are: check
/// those that come from a user before a path made of them is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodPaths<'a> {
    /// Before every path; empty in a pod.
    pub root: &'a str,
    /// `--kubevirt-share-dir`.
    pub share_dir: &'a str,
    /// `--container-disk-dir`.
    pub container_disk_dir: &'a str,
    /// `--hotplug-disk-dir`.
    pub hotplug_disk_dir: &'a str,
    /// [`OVERLAYS`] in `--ephemeral-disk-dir`.
    pub overlay_dir: &'a str,
    /// [`CLOUD_INIT`] in `--ephemeral-disk-dir`.
    pub cloud_init_dir: &'a str,
    /// [`IGNITION`] in `--ephemeral-disk-dir`.
    pub ignition_dir: &'a str,
}

impl Default for PodPaths<'_> {
    /// The paths of a pod with the flags' defaults.
    fn default() -> Self {
        Self {
            root: "",
            share_dir: SHARE_DIR,
            container_disk_dir: CONTAINER_DISK_DIR,
            hotplug_disk_dir: HOTPLUG_DISK_DIR,
            overlay_dir: ephemeral!("/disk-data"),
            cloud_init_dir: ephemeral!("/cloud-init-data"),
            ignition_dir: ephemeral!("/ignition-data"),
        }
    }
}

impl PodPaths<'_> {
    /// The root, and behind it the parts as they are.
    fn join(&self, parts: &[&str]) -> String {
        let root = self.root.trim_end_matches('/');
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut path = String::with_capacity(root.len() + length);
        path.push_str(root);
        parts.iter().for_each(|part| path.push_str(part));
        path
    }

    /// A path of the pod that depends on nothing but the root.
    #[must_use]
    pub fn of(&self, path: &str) -> String {
        self.join(&[path])
    }

    /// A file of the share directory, such as [`COMMAND_SOCKET`].
    #[must_use]
    pub fn shared(&self, name: &str) -> String {
        self.join(&[trimmed(self.share_dir), "/", name])
    }

    // ---- volumes

    /// Directory of a claim with a file system, or of a host disk.
    #[must_use]
    pub fn claim_dir(&self, volume: &str) -> String {
        self.join(&[CLAIM_DIR, "/", volume])
    }

    /// Image of a claim with a file system.
    #[must_use]
    pub fn claim_image(&self, volume: &str) -> String {
        self.join(&[CLAIM_DIR, "/", volume, "/", CLAIM_IMAGE])
    }

    /// Device of a block claim.
    #[must_use]
    pub fn claim_device(&self, volume: &str) -> String {
        self.join(&[DEVICE_DIR, "/", volume])
    }

    /// Image of a hotplugged claim with a file system.
    #[must_use]
    pub fn hotplug_image(&self, volume: &str) -> String {
        self.join(&[trimmed(self.hotplug_disk_dir), "/", volume, ".img"])
    }

    /// Device of a hotplugged block claim.
    #[must_use]
    pub fn hotplug_device(&self, volume: &str) -> String {
        self.join(&[trimmed(self.hotplug_disk_dir), "/", volume])
    }

    /// Image of a host disk that is `path` on the node.
    #[must_use]
    pub fn host_disk(&self, volume: &str, path: &str) -> String {
        match file_name(path) {
            "" => self.claim_dir(volume),
            file => self.join(&[CLAIM_DIR, "/", volume, "/", file]),
        }
    }

    /// Writable overlay of a container disk or an ephemeral volume.
    #[must_use]
    pub fn ephemeral_overlay(&self, volume: &str) -> String {
        self.join(&[trimmed(self.overlay_dir), "/", volume, "/", OVERLAY_IMAGE])
    }

    /// Image of an empty disk.
    #[must_use]
    pub fn empty_disk(&self, volume: &str) -> String {
        self.join(&[EMPTY_DISK_DIR, "/", volume, ".qcow2"])
    }

    /// Image of the container disk that is the `index`-th of `spec.volumes`.
    #[must_use]
    pub fn container_disk(&self, index: usize) -> String {
        let dir = trimmed(self.container_disk_dir);
        self.join(&[dir, "/", &container_disk(index)])
    }

    /// Container disk that is the `index`-th of `spec.volumes`, mounted as an image volume.
    #[must_use]
    pub fn image_volume(&self, index: usize) -> String {
        let index = index.to_string();
        self.join(&[IMAGE_VOLUME_DIR, "/disk_", &index])
    }

    /// A file of the kernel boot container: kernel, initrd.
    #[must_use]
    pub fn kernel_boot(&self, artifact: &str) -> String {
        let dir = trimmed(self.container_disk_dir);
        self.join(&[dir, "/", KERNEL_BOOT_DIR, "/", file_name(artifact)])
    }

    /// Cloud-init image with the data source `NoCloud`.
    #[must_use]
    pub fn cloud_init_no_cloud(&self, namespace: &str, name: &str) -> String {
        self.cloud_init(namespace, name, NO_CLOUD_IMAGE)
    }

    /// Cloud-init image with the data source `ConfigDrive`.
    #[must_use]
    pub fn cloud_init_config_drive(&self, namespace: &str, name: &str) -> String {
        self.cloud_init(namespace, name, CONFIG_DRIVE_IMAGE)
    }

    fn cloud_init(&self, namespace: &str, name: &str, image: &str) -> String {
        let dir = trimmed(self.cloud_init_dir);
        self.join(&[dir, "/", namespace, "/", name, "/", image])
    }

    /// A VMI's ignition data.
    #[must_use]
    pub fn ignition(&self, namespace: &str, name: &str) -> String {
        let dir = trimmed(self.ignition_dir);
        self.join(&[dir, "/", namespace, "/", name, "/", IGNITION_FILE])
    }

    /// ISO image made from a ConfigMap.
    #[must_use]
    pub fn config_map_image(&self, volume: &str) -> String {
        self.join(&[CONFIG_MAP_IMAGE_DIR, "/", volume, ".iso"])
    }

    /// ISO image made from a Secret.
    #[must_use]
    pub fn secret_image(&self, volume: &str) -> String {
        self.join(&[SECRET_IMAGE_DIR, "/", volume, ".iso"])
    }

    /// ISO image made from downward API fields.
    #[must_use]
    pub fn downward_api_image(&self, volume: &str) -> String {
        self.join(&[DOWNWARD_API_IMAGE_DIR, "/", volume, ".iso"])
    }

    /// ISO image with sysprep's answer files.
    #[must_use]
    pub fn sysprep_image(&self, volume: &str) -> String {
        self.join(&[SYSPREP_IMAGE_DIR, "/", volume, ".iso"])
    }

    /// ISO image with the service account's token.
    #[must_use]
    pub fn service_account_image(&self) -> String {
        self.join(&[SERVICE_ACCOUNT_IMAGE_DIR, "/", SERVICE_ACCOUNT_IMAGE])
    }

    /// A file of a Secret volume as it is mounted.
    #[must_use]
    pub fn secret_file(&self, volume: &str, file: &str) -> String {
        self.join(&[SECRET_DIR, "/", volume, "/", file])
    }

    /// The vhostmd disk with metrics of the host.
    #[must_use]
    pub fn downward_metrics_disk(&self) -> String {
        self.join(&[DOWNWARD_API_IMAGE_DIR, "/", METRICS_DISK])
    }

    /// Overlay for changed block tracking; `nonroot`: the launcher does not run as root.
    #[must_use]
    pub fn cbt_overlay(&self, nonroot: bool, volume: &str) -> String {
        self.join(&[cbt_dir(nonroot), "/", volume, ".qcow2"])
    }

    // ---- sockets and files of devices

    /// Socket of the metrics channel.
    #[must_use]
    pub fn downward_metrics_socket(&self) -> String {
        self.join(&[METRICS_CHANNEL_DIR, "/downwardmetrics.sock"])
    }

    /// The VM's directory, named after its UID: console, VNC and USB sockets.
    #[must_use]
    pub fn vm_dir(&self, uid: &str) -> String {
        self.join(&[PRIVATE_DIR, "/", uid])
    }

    /// Socket of the VNC server.
    #[must_use]
    pub fn vnc_socket(&self, uid: &str) -> String {
        self.join(&[PRIVATE_DIR, "/", uid, "/virt-vnc"])
    }

    /// Socket of the first serial console.
    #[must_use]
    pub fn serial_socket(&self, uid: &str) -> String {
        self.join(&[PRIVATE_DIR, "/", uid, "/virt-serial0"])
    }

    /// Log of the first serial console.
    #[must_use]
    pub fn serial_log(&self, uid: &str) -> String {
        self.join(&[PRIVATE_DIR, "/", uid, "/", SERIAL_LOG])
    }

    /// Socket of a redirected USB device.
    #[must_use]
    pub fn usb_redirection_socket(&self, uid: &str, index: u32) -> String {
        let index = index.to_string();
        self.join(&[PRIVATE_DIR, "/", uid, "/virt-usbredir-", &index])
    }

    /// Socket of the persistent reservation helper.
    #[must_use]
    pub fn reservation_socket(&self) -> String {
        self.of(RESERVATION_SOCKET)
    }

    /// Log file of passt.
    #[must_use]
    pub fn passt_log(&self) -> String {
        self.of(PASST_LOG)
    }

    /// Pipe to which the firmware logs.
    #[must_use]
    pub fn firmware_log_pipe(&self) -> String {
        self.of(SEABIOS_PIPE)
    }

    /// Socket of a virtiofsd container.
    #[must_use]
    pub fn virtiofs_socket(&self, filesystem: &str) -> String {
        self.join(&[VIRTIOFS_DIR, "/", filesystem, ".sock"])
    }

    /// UEFI variables of a VMI, in the directory that libvirt has for whoever runs it.
    #[must_use]
    pub fn nvram(&self, nonroot: bool, name: &str) -> String {
        let dir = match nonroot {
            true => SESSION_NVRAM_DIR,
            false => SYSTEM_NVRAM_DIR,
        };
        self.join(&[dir, "/", name, "_VARS.fd"])
    }
}

/// Directory of the overlays for changed block tracking.
#[must_use]
pub fn cbt_dir(nonroot: bool) -> &'static str {
    match nonroot {
        true => SESSION_CBT_DIR,
        false => SYSTEM_CBT_DIR,
    }
}

/// A directory without the slashes at its end.
fn trimmed(dir: &str) -> &str {
    dir.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_starts_with_the_root() {
        let paths = PodPaths {
            root: "/tmp/vm/",
            overlay_dir: "/scratch/",
            ..PodPaths::default()
        };
        assert_eq!(paths.claim_device("data"), "/tmp/vm/dev/data");
        assert_eq!(
            paths.ephemeral_overlay("data"),
            "/tmp/vm/scratch/data/disk.qcow2"
        );
        assert_eq!(
            paths.container_disk(12),
            "/tmp/vm/var/run/kubevirt/container-disks/disk_12.img"
        );
    }

    #[test]
    fn directories_of_flags_may_end_with_a_slash() {
        let paths = PodPaths {
            hotplug_disk_dir: "/hotplug/",
            share_dir: "/share/",
            ..PodPaths::default()
        };
        assert_eq!(paths.hotplug_image("v"), "/hotplug/v.img");
        assert_eq!(paths.hotplug_device("v"), "/hotplug/v");
        assert_eq!(
            paths.shared(NOTIFY_SOCKET),
            "/share/domain-notify-pipe.sock"
        );
    }

    #[test]
    fn a_host_disk_keeps_its_file_name_only() {
        let paths = PodPaths::default();
        let dir = "/var/run/kubevirt-private/vmi-disks/v";
        assert_eq!(paths.host_disk("v", "/mnt/a/b.img"), format!("{dir}/b.img"));
        assert_eq!(paths.host_disk("v", "/mnt/a/"), format!("{dir}/a"));
        assert_eq!(paths.host_disk("v", "/"), dir);
    }
}
