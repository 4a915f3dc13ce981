//! Manifests in the shapes of the files in KubeVirt's `examples/` (v1.9.0), under their names, and
//! what becomes of each: it starts here, or `launcherctl` says why not.

use std::path::Path;

/// What `run` does.
pub enum Outcome {
    /// It starts with these options, in which capitals stand for a path; without them it asks for
    /// each.
    Starts(&'static str),
    /// It says this.
    Refuses(&'static str),
}

use Outcome::{Refuses, Starts};

/// An empty one means that `check` finds nothing to say.
type Note = &'static str;

const OTHER: (Note, Outcome) = (
    "is not read, neither by check nor by run",
    Refuses("a VirtualMachineInstance or a VirtualMachine is expected"),
);
const INSTANCETYPE: (Note, Outcome) = (
    "spec.instancetype: run refuses it: only a cluster applies ",
    Refuses("by virtctl expand -f FILE, or by kubectl get vmi NAME -o yaml"),
);
const NODE_DEVICE: Note = "left out, as only a cluster's node gives devices: ";
const POD: Note = "spec.priorityClassName: left out by run, as only a cluster's pods have it";
const MULTUS: Note = "left out by run, as only a cluster has its network: ";
const IMAGE: Outcome = Starts("--disk containerdisk=IMAGE");
const CLAIM: Outcome = Starts("--disk pvcdisk=CLAIM");
const SCRIPT: Outcome = Starts("--disk containerdisk=IMAGE --config-map scripts=SCRIPTS");
const SIDECAR: Outcome = Starts("--disk containerdisk=IMAGE --sidecar PROGRAM");

pub const EXAMPLES: [(&str, (Note, Outcome)); 47] = [
    ("clarge", OTHER),
    ("cluster-csmall", OTHER),
    ("csmall", OTHER),
    ("example-migration-policy", OTHER),
    ("migration-job", OTHER),
    ("non-preemtible", OTHER),
    ("pgpu-resource-claim-tmpl", OTHER),
    ("preemtible", OTHER),
    ("virtio", OTHER),
    (
        "vm-alpine-datavolume",
        ("", Starts("--disk datavolumedisk1=CLAIM")),
    ),
    (
        "vm-alpine-multipvc",
        ("", Starts("--disk pvcdisk1=CLAIM --disk pvcdisk2=NEXT")),
    ),
    ("vm-cirros-clarge-virtio", INSTANCETYPE),
    ("vm-cirros-clarge-windows", INSTANCETYPE),
    ("vm-cirros-clarge", INSTANCETYPE),
    ("vm-cirros-cluster-csmall", INSTANCETYPE),
    ("vm-cirros-csmall", INSTANCETYPE),
    ("vm-cirros-sata", ("", IMAGE)),
    ("vm-cirros-with-sidecar-hook-configmap", ("", SCRIPT)),
    ("vm-cirros", ("", IMAGE)),
    ("vm-pool-cirros", OTHER),
    ("vm-priorityclass", (POD, IMAGE)),
    ("vm-windows-clarge-windows", INSTANCETYPE),
    ("vmi-alpine-efi", ("", IMAGE)),
    ("vmi-arm", ("", IMAGE)),
    ("vmi-dra-pgpu", (NODE_DEVICE, IMAGE)),
    ("vmi-ephemeral", ("", IMAGE)),
    (
        "vmi-fedora-isolated",
        ("the guest's CPUs are not pinned", IMAGE),
    ),
    ("vmi-fedora", ("", IMAGE)),
    ("vmi-gpu", (NODE_DEVICE, IMAGE)),
    ("vmi-host-disk", ("", Starts("--disk host-disk=NEW"))),
    (
        "vmi-kernel-boot",
        (
            "run needs --disk kernel-boot=DIR",
            Starts("--disk kernel-boot=TREE"),
        ),
    ),
    ("vmi-masquerade", ("", IMAGE)),
    ("vmi-migratable", ("", IMAGE)),
    ("vmi-multus-multiple-net", (MULTUS, IMAGE)),
    ("vmi-multus-ptp", (MULTUS, IMAGE)),
    ("vmi-nocloud", ("", IMAGE)),
    ("vmi-preset-small", OTHER),
    ("vmi-pvc", ("", CLAIM)),
    ("vmi-replicaset-cirros", OTHER),
    ("vmi-sata", ("", IMAGE)),
    ("vmi-secureboot", ("", IMAGE)),
    ("vmi-sriov", (MULTUS, IMAGE)),
    ("vmi-usb", (NODE_DEVICE, IMAGE)),
    ("vmi-windows", ("", CLAIM)),
    ("vmi-with-sidecar-hook-configmap", ("", SCRIPT)),
    ("vmi-with-sidecar-hook", ("", SIDECAR)),
    ("windows", OTHER),
];

/// The file of an example.
pub fn file(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubevirt_examples");
    directory.join(format!("{name}.yaml")).display().to_string()
}
