//! Rules for disks, interfaces and networks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{DISKS, Found, INTERFACES, by_name, is_label, is_mac, pointer};
use crate::json::{copy_at, is_object_at, is_true_at, list_at, text_at};

/// Of an interface.
const MODELS: [&str; 7] = [
    "virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139",
];
/// Of a disk's serial number.
const MAX_SERIAL_CHARS: usize = 256;

impl Found {
    pub(super) fn disk(&mut self, path: &str, disk: &Value) {
        let kinds: Vec<&str> = ["disk", "lun", "cdrom"]
            .into_iter()
            .filter(|kind| is_object_at(disk, &pointer(kind)))
            .collect();
        if kinds.len() > 1 {
            self.add(
                path,
                format!("it is a {} at once; choose one", kinds.join(" and a ")),
            );
        }
        if text_at(disk, "/cdrom/bus") == "virtio" {
            self.add(
                format!("{path}.cdrom.bus"),
                "a CD-ROM drive cannot be on virtio; supported are sata, scsi, usb",
            );
        }
        if text_at(disk, "/disk/bus") == "sata" && is_true_at(disk, "/disk/readonly") {
            self.add(
                format!("{path}.disk.readonly"),
                "a SATA disk cannot be read-only; use the bus virtio or scsi, or a cdrom",
            );
        }
        for (field, allowed) in [
            ("cache", &["none", "writethrough", "writeback"][..]),
            ("io", &["native", "threads"]),
        ] {
            let value = text_at(disk, &pointer(field));
            if !value.is_empty() && !allowed.contains(&value) {
                self.add(
                    format!("{path}.{field}"),
                    format!(
                        "{value:?} is not supported; expected {}",
                        allowed.join(", ")
                    ),
                );
            }
        }
        let serial = text_at(disk, "/serial");
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
        if serial.chars().count() > MAX_SERIAL_CHARS || !serial.chars().all(is_allowed) {
            self.add(
                format!("{path}.serial"),
                format!("{serial:?} is not valid: at most {MAX_SERIAL_CHARS} letters, digits, '_', '.', '+' and '-'"),
            );
        }
    }

    /// Each disk has its volume. Only a CD-ROM drive may be empty.
    pub(super) fn volumes_of_disks(&mut self, vmi: &Value) {
        let volumes = by_name(list_at(vmi, "/spec/volumes"));
        for (index, disk) in list_at(vmi, DISKS).iter().enumerate() {
            let name = text_at(disk, "/name");
            let is_there = volumes.contains_key(name);
            let is_drive = is_object_at(disk, "/cdrom") && !is_object_at(disk, "/disk");
            if !name.is_empty() && !is_there && !is_drive {
                self.add(
                    format!("spec.domain.devices.disks[{index}].name"),
                    format!("no volume in spec.volumes has the name {name:?}; only a CD-ROM drive may be empty"),
                );
            }
        }
    }

    /// Each place in the boot order is taken once, by a disk or an interface.
    pub(super) fn boot_orders(&mut self, vmi: &Value) {
        let mut first: BTreeMap<u64, String> = BTreeMap::new();
        for list in [
            "spec.domain.devices.disks",
            "spec.domain.devices.interfaces",
        ] {
            for (index, device) in list_at(vmi, &pointer(list)).iter().enumerate() {
                let Some(order) = device.get("bootOrder").and_then(Value::as_u64) else {
                    continue;
                };
                let device = format!("{list}[{index}]");
                let field = format!("{device}.bootOrder");
                if order == 0 {
                    self.add(field, "0; the first is 1");
                } else if let Some(other) = first.get(&order) {
                    self.add(field, format!("{order} is the place of {other} already"));
                } else {
                    first.insert(order, device);
                }
            }
        }
    }

    pub(super) fn interface(&mut self, path: &str, interface: &Value) {
        let bindings: Vec<&str> = ["bridge", "masquerade", "sriov", "passtBinding", "binding"]
            .into_iter()
            .filter(|kind| is_object_at(interface, &pointer(kind)))
            .collect();
        if bindings.len() > 1 {
            self.add(
                path,
                format!(
                    "it has several bindings ({}); choose one",
                    bindings.join(", ")
                ),
            );
        }
        let mac = text_at(interface, "/macAddress");
        if !mac.is_empty() && !is_mac(mac) {
            self.add(
                format!("{path}.macAddress"),
                format!("{mac:?} is not a MAC address, such as 02:00:00:00:00:01"),
            );
        }
        let model = text_at(interface, "/model");
        if !model.is_empty() && !MODELS.contains(&model) {
            self.add(
                format!("{path}.model"),
                format!("{model:?} is not supported; expected {}", MODELS.join(", ")),
            );
        }
    }

    /// The interface has its network, and ports that can be forwarded from the pod.
    pub(super) fn network_of_interface(
        &mut self,
        path: &str,
        interface: &Value,
        networks: &BTreeMap<&str, &Value>,
    ) {
        let name = text_at(interface, "/name");
        match networks.get(name) {
            None if !name.is_empty() => self.add(
                format!("{path}.name"),
                format!("no network in spec.networks has the name {name:?}"),
            ),
            Some(network) if is_object_at(network, "/pod") => self.ports(path, interface),
            _ => {}
        }
    }

    fn ports(&mut self, path: &str, interface: &Value) {
        let mut names = BTreeSet::new();
        for (index, port) in list_at(interface, "/ports").iter().enumerate() {
            let path = format!("{path}.ports[{index}]");
            match copy_at(port, "/port").as_i64() {
                None | Some(0) => self.add(format!("{path}.port"), "missing"),
                Some(1..=65535) => {}
                Some(number) => {
                    self.add(
                        format!("{path}.port"),
                        format!("{number} is not in 1..65535"),
                    );
                }
            }
            let protocol = text_at(port, "/protocol");
            if !["", "TCP", "UDP"].contains(&protocol) {
                self.add(
                    format!("{path}.protocol"),
                    format!("{protocol:?} is not supported; expected TCP, UDP"),
                );
            }
            let name = text_at(port, "/name");
            if !name.is_empty() && !is_port_name(name) {
                self.add(
                    format!("{path}.name"),
                    format!("{name:?} is not valid: at most 15 characters of a to z, 0 to 9 and '-', at least one of them a letter, with a letter or digit first and last and no '--'"),
                );
            } else if !name.is_empty() && !names.insert(name) {
                self.add(
                    format!("{path}.name"),
                    format!("{name:?} is the name of another port already"),
                );
            }
        }
    }

    /// Each network has a source and an interface, and one at most is the pod's.
    pub(super) fn networks(&mut self, vmi: &Value) {
        let networks = list_at(vmi, "/spec/networks");
        let interfaces = by_name(list_at(vmi, INTERFACES));
        for (index, network) in networks.iter().enumerate() {
            let path = format!("spec.networks[{index}]");
            let name = text_at(network, "/name");
            let is_used = interfaces.contains_key(name);
            if !name.is_empty() && !is_used {
                self.add(
                    format!("{path}.name"),
                    format!("no interface in spec.domain.devices.interfaces has the name {name:?}"),
                );
            }
            let mut sources = vec!["pod", "multus", "resourceClaim"];
            sources.retain(|source| !copy_at(network, &pointer(source)).is_null());
            if sources.contains(&"multus") && text_at(network, "/multus/networkName").is_empty() {
                self.add(format!("{path}.multus.networkName"), "missing");
            }
            match sources.as_slice() {
                [_] => {}
                [] => self.add(
                    path,
                    "it has no source: expected pod: {} or multus: {networkName: …}",
                ),
                several => self.add(
                    path,
                    format!(
                        "it has several sources ({}); make a network of each",
                        several.join(", ")
                    ),
                ),
            }
        }
        let mut pods = networks
            .iter()
            .enumerate()
            .filter(|(_, network)| is_object_at(network, "/pod"));
        if let (Some((first, _)), Some((second, _))) = (pods.next(), pods.next()) {
            self.add(
                format!("spec.networks[{second}].pod"),
                format!("only one network may be the pod's, and spec.networks[{first}] is"),
            );
        }
    }
}

/// As IANA has the names of services.
fn is_port_name(name: &str) -> bool {
    name.len() <= 15
        && is_label(name)
        && !name.contains("--")
        && name.contains(|c: char| c.is_ascii_lowercase())
}
