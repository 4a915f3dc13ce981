//! The VMI of a test.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::container::{Container, User};
use super::{Pod, counter_image, guest_image};

/// What the test guest prints when it is up, see docs/test-guest.md.
pub const UP: &str = "virt-launcher test guest is up";
/// What its shell then prints when it takes commands.
pub const PROMPT: &str = "guest# ";

/// A VMI as virt-handler would send it.
#[derive(Debug, Clone)]
pub struct Vmi(Value);

impl Vmi {
    /// A VMI whose root disk is a claim with the test guest's image, in this pod.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // virt-controller's word on the pod's user; without it, the launcher is root's.
        let user = match Container::user_of_this_test() {
            Some(User::Qemu) => 107,
            Some(User::Root) | None => 0,
        };
        Self(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": "default", "uid": format!("5f0a1c1e-6a1f-4c4c-9d4e-2d9c1f{number:06x}")},
            "spec": {
                "architecture": "amd64", "terminationGracePeriodSeconds": 5,
                "domain": {
                    "machine": {"type": "q35"},
                    "cpu": {"cores": 1, "sockets": 1, "threads": 1, "model": "qemu64"},
                    "firmware": {"uuid": format!("6e0f0f6c-95b1-4b7d-8a46-6e2a6e{number:06x}")},
                    "memory": {"guest": "256Mi"},
                    "features": {"acpi": {"enabled": true}},
                    "resources": {"requests": {"memory": "256Mi"}},
                    "devices": {"autoattachPodInterface": false, "disks": [{"name": "rootdisk", "disk": {"bus": "virtio"}}]},
                },
                "volumes": [{"name": "rootdisk", "persistentVolumeClaim": {"claimName": "root"}}],
            },
            "status": {"phase": "Scheduled", "runtimeUser": user, "volumeStatus": [{"name": "rootdisk", "target": ""}]},
        }))
    }

    /// Puts the root disk's image where its claim would be mounted.
    pub fn with_image(self, pod: &Pod) -> Self {
        std::fs::copy(
            guest_image(),
            pod.path("/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img"),
        )
        .unwrap();
        self
    }

    /// Puts the image of the guest that counts where the root disk's claim would be mounted.
    pub fn with_counter(self, pod: &Pod) -> Self {
        let image = pod.path("/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img");
        std::fs::copy(counter_image(), image).unwrap();
        self
    }

    /// Puts the image of a guest there that counts and ignores the power button.
    pub fn with_stubborn_counter(self, pod: &Pod) -> Self {
        let mut image = std::fs::read(counter_image()).unwrap();
        // `obeys` in scripts/guest/counter.S.
        image[509] = 0;
        let path = pod.path("/var/run/kubevirt-private/vmi-disks/rootdisk/disk.img");
        std::fs::write(path, image).unwrap();
        self
    }

    /// A volume more, with its disk.
    pub fn volume(mut self, volume: Value, disk: Value) -> Self {
        self.push("/spec/volumes", volume.clone());
        self.push("/spec/domain/devices/disks", disk);
        self.push(
            "/status/volumeStatus",
            json!({"name": volume["name"], "target": ""}),
        );
        self
    }

    /// A hotplugged volume, ready to be attached.
    pub fn hotplugged(mut self, name: &str, serial: &str, bus: &str) -> Self {
        self.0["status"]["phase"] = json!("Running");
        self.push("/spec/volumes", json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true}}));
        self.push(
            "/spec/domain/devices/disks",
            json!({"name": name, "serial": serial, "disk": {"bus": bus}}),
        );
        let attach_pod = json!({"attachPodName": "hp", "attachPodUID": "u"});
        self.push(
            "/status/volumeStatus",
            json!({"name": name, "phase": "Ready", "hotplugVolume": attach_pod}),
        );
        self
    }

    /// Sets what is at a JSON pointer; the object above it must be there.
    pub fn set(mut self, pointer: &str, value: Value) -> Self {
        let (above, key) = pointer.rsplit_once('/').unwrap();
        self.0.pointer_mut(above).unwrap()[key] = value;
        self
    }

    pub fn push(&mut self, pointer: &str, value: Value) {
        self.0
            .pointer_mut(pointer)
            .unwrap()
            .as_array_mut()
            .unwrap()
            .push(value);
    }

    /// What virt-handler says of the interfaces: those with a binding of KubeVirt's own are
    /// attached by a tap device.
    pub(super) fn interface_attachments(&self) -> HashMap<String, String> {
        let interfaces = self.0["spec"]["domain"]["devices"]["interfaces"].as_array();
        let by_tap = |interface: &&Value| {
            interface["masquerade"].is_object() || interface["bridge"].is_object()
        };
        let attached = interfaces.into_iter().flatten().filter(by_tap);
        attached
            .map(|one| (one["name"].as_str().unwrap().to_owned(), "tap".to_owned()))
            .collect()
    }

    pub fn value(&self) -> &Value {
        &self.0
    }

    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap()
    }

    pub fn uid(&self) -> &str {
        self.0["metadata"]["uid"].as_str().unwrap()
    }
}
