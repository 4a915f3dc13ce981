//! Where things are inside the pod. These paths are a contract with virt-handler and
//! virt-controller, which put them there (pod contract, sections 6 and 7); all of them are below
//! the root of the [`Context`], which is empty in a pod.

use super::Context;
use api::vmi::Vmi;
use domain::Text;

/// The paths of one conversion.
#[derive(Debug, Clone, Copy)]
pub struct Paths<'a> {
    ctx: &'a Context,
}

impl<'a> Paths<'a> {
    /// The paths that hold for `ctx`.
    #[must_use]
    pub fn new(ctx: &'a Context) -> Self {
        Self { ctx }
    }

    /// The root, and behind it the parts as they are.
    fn join(&self, parts: &[&str]) -> Text {
        let root = self.ctx.root.trim_end_matches('/');
        let mut path =
            Text::with_capacity(root.len() + parts.iter().map(|part| part.len()).sum::<usize>());
        path.push_str(root);
        for part in parts {
            path.push_str(part);
        }
        path
    }

    // ---- volumes

    /// Image of a claim with a file system.
    #[must_use]
    pub fn claim_image(&self, volume: &str) -> Text {
        self.join(&["/var/run/kubevirt-private/vmi-disks/", volume, "/disk.img"])
    }

    /// Device of a block claim.
    #[must_use]
    pub fn claim_device(&self, volume: &str) -> Text {
        self.join(&["/dev/", volume])
    }

    /// Image of a hotplugged claim with a file system.
    #[must_use]
    pub fn hotplug_image(&self, volume: &str) -> Text {
        self.join(&["/var/run/kubevirt/hotplug-disks/", volume, ".img"])
    }

    /// Device of a hotplugged block claim.
    #[must_use]
    pub fn hotplug_device(&self, volume: &str) -> Text {
        self.join(&["/var/run/kubevirt/hotplug-disks/", volume])
    }

    /// Image of a host disk that is `path` on the node.
    #[must_use]
    pub fn host_disk(&self, volume: &str, path: &str) -> Text {
        let (slash, file) = match file_name(path) {
            "" => ("", ""),
            file => ("/", file),
        };
        self.join(&["/var/run/kubevirt-private/vmi-disks/", volume, slash, file])
    }

    /// Writable overlay of a container disk or an ephemeral volume.
    #[must_use]
    pub fn ephemeral_overlay(&self, volume: &str) -> Text {
        let dir = or(
            &self.ctx.ephemeral_disk_dir,
            "/var/run/kubevirt-ephemeral-disks/disk-data",
        );
        self.join(&[dir, "/", volume, "/disk.qcow2"])
    }

    /// Image of an empty disk.
    #[must_use]
    pub fn empty_disk(&self, volume: &str) -> Text {
        self.join(&["/var/run/libvirt/empty-disks/", volume, ".qcow2"])
    }

    /// Image of the container disk that is the `index`-th of `spec.volumes`.
    #[must_use]
    pub fn container_disk(&self, index: usize) -> Text {
        let dir = or(
            &self.ctx.container_disk_dir,
            "/var/run/kubevirt/container-disks",
        );
        self.join(&[
            dir,
            "/disk_",
            &compact_str::format_compact!("{index}"),
            ".img",
        ])
    }

    /// A file of the kernel boot container: kernel, initrd.
    #[must_use]
    pub fn kernel_boot(&self, artifact: &str) -> Text {
        let dir = or(
            &self.ctx.container_disk_dir,
            "/var/run/kubevirt/container-disks",
        );
        self.join(&[dir, "/kernel-boot/", file_name(artifact)])
    }

    /// Cloud-init image with the data source `NoCloud`.
    #[must_use]
    pub fn cloud_init_no_cloud(&self, namespace: &str, name: &str) -> Text {
        self.cloud_init(namespace, name, "/noCloud.iso")
    }

    /// Cloud-init image with the data source `ConfigDrive`.
    #[must_use]
    pub fn cloud_init_config_drive(&self, namespace: &str, name: &str) -> Text {
        self.cloud_init(namespace, name, "/configdrive.iso")
    }

    fn cloud_init(&self, namespace: &str, name: &str, file: &str) -> Text {
        let dir = or(
            &self.ctx.cloud_init_dir,
            "/var/run/kubevirt-ephemeral-disks/cloud-init-data",
        );
        self.join(&[dir, "/", namespace, "/", name, file])
    }

    /// Ignition data.
    #[must_use]
    pub fn ignition(&self, namespace: &str, name: &str) -> Text {
        let dir = or(
            &self.ctx.ignition_dir,
            "/var/run/kubevirt-ephemeral-disks/ignition-data",
        );
        self.join(&[dir, "/", namespace, "/", name, "/data.ign"])
    }

    /// ISO image made from a ConfigMap.
    #[must_use]
    pub fn config_map_image(&self, volume: &str) -> Text {
        self.join(&[
            "/var/run/kubevirt-private/config-map-disks/",
            volume,
            ".iso",
        ])
    }

    /// ISO image made from a Secret.
    #[must_use]
    pub fn secret_image(&self, volume: &str) -> Text {
        self.join(&["/var/run/kubevirt-private/secret-disks/", volume, ".iso"])
    }

    /// ISO image made from downward API fields.
    #[must_use]
    pub fn downward_api_image(&self, volume: &str) -> Text {
        self.join(&[
            "/var/run/kubevirt-private/downwardapi-disks/",
            volume,
            ".iso",
        ])
    }

    /// ISO image with the service account's token.
    #[must_use]
    pub fn service_account_image(&self) -> Text {
        self.join(&["/var/run/kubevirt-private/service-account-disk/service-account.iso"])
    }

    /// ISO image with sysprep's answer files.
    #[must_use]
    pub fn sysprep_image(&self, volume: &str) -> Text {
        self.join(&["/var/run/kubevirt-private/sysprep-disks/", volume, ".iso"])
    }

    /// A file of a Secret volume as it is mounted.
    #[must_use]
    pub fn secret_file(&self, volume: &str, file: &str) -> Text {
        self.join(&["/var/run/kubevirt-private/secret/", volume, "/", file])
    }

    /// The vhostmd disk with metrics of the host.
    #[must_use]
    pub fn downward_metrics_disk(&self) -> Text {
        self.join(&["/var/run/kubevirt-private/downwardapi-disks/vhostmd0"])
    }

    // ---- sockets, pipes and files of devices

    /// Socket of the metrics channel.
    #[must_use]
    pub fn downward_metrics_socket(&self) -> Text {
        self.join(&["/var/run/kubevirt-private/downwardmetrics-channel/downwardmetrics.sock"])
    }

    /// Socket of the VNC server.
    #[must_use]
    pub fn vnc_socket(&self, uid: &str) -> Text {
        self.join(&["/var/run/kubevirt-private/", uid, "/virt-vnc"])
    }

    /// Socket of the first serial console.
    #[must_use]
    pub fn serial_socket(&self, uid: &str) -> Text {
        self.join(&["/var/run/kubevirt-private/", uid, "/virt-serial0"])
    }

    /// Log of the first serial console.
    #[must_use]
    pub fn serial_log(&self, uid: &str) -> Text {
        self.join(&["/var/run/kubevirt-private/", uid, "/virt-serial0-log"])
    }

    /// Socket of a redirected USB device.
    #[must_use]
    pub fn usb_redirection_socket(&self, uid: &str, index: u32) -> Text {
        self.join(&[
            "/var/run/kubevirt-private/",
            uid,
            "/virt-usbredir-",
            &compact_str::format_compact!("{index}"),
        ])
    }

    /// Socket of a virtiofsd container.
    #[must_use]
    pub fn virtiofs_socket(&self, filesystem: &str) -> Text {
        self.join(&[
            "/var/run/kubevirt/virtiofs-containers/",
            filesystem,
            ".sock",
        ])
    }

    /// Socket of the persistent reservation helper.
    #[must_use]
    pub fn reservation_socket(&self) -> Text {
        self.join(&["/var/run/kubevirt/daemons/pr/pr-helper.sock"])
    }

    /// Log file of passt.
    #[must_use]
    pub fn passt_log(&self) -> Text {
        self.join(&["/var/run/kubevirt/passt.log"])
    }

    /// Pipe to which the firmware logs.
    #[must_use]
    pub fn firmware_log_pipe(&self) -> Text {
        self.join(&["/var/run/kubevirt-private/QEMUSeaBiosDebugPipe"])
    }

    /// UEFI variables of the VMI, in the directory that libvirt has for whoever runs it.
    #[must_use]
    pub fn nvram(&self, vmi: &Vmi) -> Text {
        let dir = if runs_as_nonroot(vmi) {
            "/var/run/kubevirt-private/libvirt/qemu/nvram/"
        } else {
            "/var/lib/libvirt/qemu/nvram/"
        };
        self.join(&[dir, &vmi.metadata.name, "_VARS.fd"])
    }
}

/// The launcher of this VMI does not run as root.
fn runs_as_nonroot(vmi: &Vmi) -> bool {
    vmi.status.runtime_user != 0 || vmi.metadata.annotations.contains_key("kubevirt.io/nonroot")
}

/// A directory of the context, or the pod's default.
fn or<'t>(dir: &'t Text, default: &'t str) -> &'t str {
    if dir.is_empty() {
        default
    } else {
        dir.trim_end_matches('/')
    }
}

/// The last element of a path; empty if it has none.
fn file_name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_starts_with_the_root() {
        let ctx = Context {
            root: "/tmp/vm/".into(),
            ephemeral_disk_dir: "/scratch".into(),
            ..Context::default()
        };
        let paths = Paths::new(&ctx);
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
    fn a_host_disk_keeps_its_file_name_only() {
        let ctx = Context::default();
        let paths = Paths::new(&ctx);
        assert_eq!(
            paths.host_disk("v", "/mnt/a/b.img"),
            "/var/run/kubevirt-private/vmi-disks/v/b.img"
        );
        assert_eq!(
            paths.host_disk("v", "/mnt/a/"),
            "/var/run/kubevirt-private/vmi-disks/v/a"
        );
        assert_eq!(
            paths.host_disk("v", "/"),
            "/var/run/kubevirt-private/vmi-disks/v"
        );
    }
}
