//! Parts of a VMI that only a cluster's node provides, and what becomes of them on one machine.

use serde_json::{Value, json};

use super::error::FieldError;
use super::network::needs_cluster;
use super::paths::pointer;
use super::{Manifest, STATUS, VOLUMES, list_at};
use crate::json::{copy_at, is_object_at, is_true_at, names_at, remove_named, set, text_at};

const DEVICES: [&str; 2] = [
    "spec.domain.devices.gpus",
    "spec.domain.devices.hostDevices",
];
const INTERFACES: &str = "spec.domain.devices.interfaces";
/// Served by virtiofsd, which a cluster runs in containers of its own.
const FILESYSTEMS: &str = "spec.domain.devices.filesystems";
/// Volumes that only a cluster fills, and their source.
pub const FILLED_BY_CLUSTER: [(&str, &str); 2] = [
    ("serviceAccount", "service accounts"),
    ("downwardAPI", "a downward API"),
];
/// What the scheduler, the kubelet and the pod's network act on.
const OF_POD: &str = "spec.affinity|spec.dnsConfig|spec.dnsPolicy|spec.evictionStrategy|\
    spec.livenessProbe|spec.nodeSelector|spec.priorityClassName|spec.readinessProbe|\
    spec.resourceClaims|spec.schedulerName|spec.subdomain|spec.tolerations|\
    spec.topologySpreadConstraints|spec.domain.resources.limits";
const ANNOTATIONS: &str = "metadata.annotations";
/// The annotations for a pod's network.
const OF_NETWORK: [&str; 2] = [
    "k8s.v1.cni.cncf.io/networks",
    "v1.multus-cni.io/default-network",
];
const MACHINE: &str = "spec.domain.machine.type";
/// What a cluster admits without a setting of its own.
const MACHINES: [&str; 4] = ["q35", "pc-q35", "virt", "s390-ccw-virtio"];
const DEDICATED: &str = "spec.domain.cpu.dedicatedCpuPlacement";
/// Fields of the CPU that need dedicated CPUs.
const OF_DEDICATED: [&str; 4] = [
    "dedicatedCpuPlacement",
    "isolateEmulatorThread",
    "numa",
    "realtime",
];
/// The kernel boot container of a VMI.
pub const KERNEL_BOOT: &str = "/spec/domain/firmware/kernelBoot/container";
/// Its name for `--disk`.
pub const KERNEL_BOOT_NAME: &str = "kernel-boot";

/// The devices that a conversion without a node lacks.
pub fn missing_devices(vmi: &Value) -> impl Iterator<Item = FieldError> {
    DEVICES
        .iter()
        .filter_map(|field| left_out(field, &names_at(vmi, &pointer(field))))
}

/// The SR-IOV interfaces that a conversion without a node lacks.
pub fn missing_interfaces(vmi: &Value) -> Option<FieldError> {
    let interfaces = list_at(vmi, &pointer(INTERFACES)).iter();
    let missing = interfaces.filter(|interface| is_object_at(interface, "/sriov"));
    let names: Vec<String> = missing.map(|it| text_at(it, "/name").to_owned()).collect();
    left_out(INTERFACES, &names)
}

fn left_out(field: &str, names: &[String]) -> Option<FieldError> {
    let text = names.join(", ");
    let message = format!("left out, as only a cluster's node gives devices: {text}");
    (!names.is_empty()).then(|| FieldError::new(field, message))
}

/// What `run` leaves out, and what it needs instead of a cluster.
pub fn notes(vmi: &Value) -> Vec<FieldError> {
    let mut found: Vec<FieldError> = missing_devices(vmi).collect();
    if is_true_at(vmi, &pointer(DEDICATED)) {
        let message = "left out by run, as only a cluster's node reserves CPUs: the guest's CPUs are not pinned";
        found.push(FieldError::new(DEDICATED, message));
    }
    let of_pod = OF_POD
        .split('|')
        .filter(|it| !copy_at(vmi, &pointer(it)).is_null());
    let message = "left out by run, as only a cluster's pods have it";
    found.extend(of_pod.map(|field| FieldError::new(field, message)));
    let annotations = copy_at(vmi, &pointer(ANNOTATIONS));
    let of_network = OF_NETWORK.iter().filter(|it| annotations.get(it).is_some());
    found.extend(of_network.map(|name| FieldError::new(ANNOTATIONS, format!("{message}: {name}"))));
    let files = boot_files(vmi).join(" and ");
    if !files.is_empty() {
        let field = "spec.domain.firmware.kernelBoot.container";
        let message = format!("run needs --disk {KERNEL_BOOT_NAME}=DIR, a directory with {files}");
        found.push(FieldError::new(field, message));
    }
    let machine = text_at(vmi, &pointer(MACHINE));
    if !machine.is_empty() && !MACHINES.iter().any(|it| machine.starts_with(it)) {
        let message = format!(
            "a cluster takes {machine:?} only if its spec.configuration.emulatedMachines has it"
        );
        found.push(FieldError::new(MACHINE, message));
    }
    let shared = names_at(vmi, &pointer(FILESYSTEMS)).join(", ");
    if !shared.is_empty() {
        let message = format!("left out by run, as only a cluster serves virtiofs: {shared}");
        found.push(FieldError::new(FILESYSTEMS, message));
    }
    for (index, volume) in list_at(vmi, VOLUMES).iter().enumerate() {
        for (kind, what) in FILLED_BY_CLUSTER {
            if is_object_at(volume, &format!("/{kind}")) {
                let field = format!("spec.volumes[{index}].{kind}");
                let message = format!("run refuses it: only a cluster has {what}");
                found.push(FieldError::new(field, message));
            }
        }
    }
    let interfaces = list_at(vmi, &pointer(INTERFACES)).iter().enumerate();
    found.extend(interfaces.filter_map(|(index, interface)| {
        let field = format!("{INTERFACES}[{index}]");
        let name = text_at(interface, "/name");
        let message = format!("left out by run, as only a cluster has its network: {name}");
        needs_cluster(vmi, interface).then(|| FieldError::new(field, message))
    }));
    found
}

/// The paths of kernel and initrd in the kernel boot container.
pub fn boot_files(vmi: &Value) -> Vec<String> {
    let container = copy_at(vmi, KERNEL_BOOT);
    let paths = ["/kernelPath", "/initrdPath"].map(|path| text_at(&container, path).to_owned());
    paths.into_iter().filter(|path| !path.is_empty()).collect()
}

impl Manifest {
    /// Removes devices, CPUs and shared directories that only a cluster gives. Returns a note for
    /// each kind.
    pub fn leave_out_node_parts(&mut self) -> Vec<String> {
        let parts = [&DEVICES[..], &[DEDICATED, FILESYSTEMS]].concat();
        let of_pod = OF_POD.split('|').chain([ANNOTATIONS]);
        let said: Vec<&str> = of_pod.chain(parts.iter().copied()).collect();
        let mut notes = notes(&self.vmi);
        notes.retain(|note| said.contains(&note.field.as_str()));
        let fields = notes.iter().map(|note| note.field.as_str());
        for field in fields.filter(|field| parts.contains(field)) {
            if field == DEDICATED {
                for part in OF_DEDICATED.map(|part| format!("/spec/domain/cpu/{part}")) {
                    set(&mut self.vmi, &part, Value::Null);
                }
                continue;
            }
            if field == FILESYSTEMS {
                for name in names_at(&self.vmi, &pointer(field)) {
                    remove_named(&mut self.vmi, VOLUMES, &name);
                    remove_named(&mut self.vmi, STATUS, &name);
                }
            }
            set(&mut self.vmi, &pointer(field), json!([]));
        }
        notes.iter().map(FieldError::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_that_needs_a_node_is_named_and_left_out() {
        let mut manifest = Manifest::parse(
            "kind: VirtualMachineInstance
metadata: {name: a, annotations: {v1.multus-cni.io/default-network: x}}
spec:
  nodeSelector: {a: b}
  domain:
    memory: {guest: 64Mi}
    cpu: {dedicatedCpuPlacement: true, isolateEmulatorThread: true}
    firmware: {kernelBoot: {container: {image: x, kernelPath: /boot/k, initrdPath: /boot/i}}}
    devices:
      gpus: [{name: gpu1, deviceName: a/b}]
      hostDevices: [{name: stick, deviceName: c/d}]
      filesystems: [{name: shared, virtiofs: {}}]
      interfaces: [{name: default, masquerade: {}}, {name: lan, bridge: {}}]
  networks: [{name: default, pod: {}}, {name: lan, multus: {networkName: x}}]
  volumes: [{name: shared, persistentVolumeClaim: {claimName: x}}]
",
        )
        .unwrap();
        let found: Vec<String> = notes(manifest.value())
            .iter()
            .map(FieldError::to_string)
            .collect();
        let expected = [
            "spec.domain.devices.gpus: left out, as only a cluster's node gives devices: gpu1",
            "spec.domain.devices.hostDevices: left out, as only a cluster's node gives devices: stick",
            "spec.domain.cpu.dedicatedCpuPlacement: left out by run, as only a cluster's node reserves CPUs: the guest's CPUs are not pinned",
            "spec.nodeSelector: left out by run, as only a cluster's pods have it",
            "metadata.annotations: left out by run, as only a cluster's pods have it: v1.multus-cni.io/default-network",
            "spec.domain.firmware.kernelBoot.container: run needs --disk kernel-boot=DIR, a directory with /boot/k and /boot/i",
            "spec.domain.devices.filesystems: left out by run, as only a cluster serves virtiofs: shared",
            "spec.domain.devices.interfaces[1]: left out by run, as only a cluster has its network: lan",
        ];
        assert_eq!(found, expected);
        let left_out = [&expected[..5], &expected[6..7]].concat();
        assert_eq!(manifest.leave_out_node_parts(), left_out);
        assert_eq!(manifest.volumes().count(), 0);
        assert_eq!(manifest.leave_out_node_parts(), left_out[3..5]);
        assert_eq!(notes(manifest.value()).len(), 4);
        manifest.check_conversion().unwrap();
    }
}
