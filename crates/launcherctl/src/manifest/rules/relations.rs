//! Rules about several values: references by name, places taken only once, dependencies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::text::{LABEL, PORT_NAME, is_label, is_port_name};
use super::{Found, each};
use crate::json::{copy_at, is_object_at, is_true_at, list_at, text_at};

const VOLUMES: &str = "spec.volumes[]";
const DISKS: &str = "spec.domain.devices.disks[]";
const INTERFACES: &str = "spec.domain.devices.interfaces[]";
const NETWORKS: &str = "spec.networks[]";

/// The names in a list.
fn names<'v>(vmi: &'v Value, list: &str) -> BTreeSet<&'v str> {
    let items = each(vmi, list).into_iter();
    items.map(|(_, item)| text_at(item, "/name")).collect()
}

impl Found {
    /// Each name exists, and only once in its list.
    pub(super) fn names(&mut self, vmi: &Value) {
        let filesystems = "spec.domain.devices.filesystems[]";
        for list in [VOLUMES, DISKS, filesystems, NETWORKS, INTERFACES] {
            let mut first: BTreeMap<&str, String> = BTreeMap::new();
            for (path, item) in each(vmi, list) {
                let (field, name) = (format!("{path}.name"), text_at(item, "/name"));
                if name.is_empty() {
                    self.add(field, "missing");
                } else if let Some(other) = first.get(name) {
                    self.add(field, format!("{name:?} is the name of {other} already"));
                } else {
                    if [VOLUMES, DISKS].contains(&list) && !is_label(name) {
                        self.add(field, format!("{name:?} is not valid: {LABEL}"));
                    }
                    first.insert(name, path);
                }
            }
        }
    }

    /// Each place in the boot order is taken only once, by a disk or an interface.
    pub(super) fn boot_orders(&mut self, vmi: &Value) {
        let mut first: BTreeMap<u64, String> = BTreeMap::new();
        let devices = [DISKS, INTERFACES]
            .into_iter()
            .flat_map(|list| each(vmi, list));
        for (device, value) in devices {
            let Some(order) = value.get("bootOrder").and_then(Value::as_u64) else {
                continue;
            };
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

    /// Each disk has its volume. Only a CD-ROM drive may be empty.
    pub(super) fn disks(&mut self, vmi: &Value) {
        let volumes = names(vmi, VOLUMES);
        for (path, disk) in each(vmi, DISKS) {
            let name = text_at(disk, "/name");
            let is_drive = is_object_at(disk, "/cdrom") && !is_object_at(disk, "/disk");
            if !name.is_empty() && !volumes.contains(name) && !is_drive {
                self.add(
                    format!("{path}.name"),
                    format!("no volume in spec.volumes has the name {name:?}; only a CD-ROM drive may be empty"),
                );
            }
            if text_at(disk, "/disk/bus") == "sata" && is_true_at(disk, "/disk/readonly") {
                self.add(
                    format!("{path}.disk.readonly"),
                    "a SATA disk cannot be read-only; use the bus virtio or scsi, or a cdrom",
                );
            }
        }
    }

    /// Interfaces and networks match, and at most one network is the pod's.
    pub(super) fn networks(&mut self, vmi: &Value) {
        let (interfaces, networks) = (names(vmi, INTERFACES), names(vmi, NETWORKS));
        let mut pod = None;
        for (path, network) in each(vmi, NETWORKS) {
            let name = text_at(network, "/name");
            if !name.is_empty() && !interfaces.contains(name) {
                self.add(
                    format!("{path}.name"),
                    format!("no interface in spec.domain.devices.interfaces has the name {name:?}"),
                );
            }
            match &pod {
                _ if !is_object_at(network, "/pod") => {}
                None => pod = Some((path, name)),
                Some((first, _)) => self.add(
                    format!("{path}.pod"),
                    format!("only one network may be the pod's, and {first} is"),
                ),
            }
        }
        for (path, interface) in each(vmi, INTERFACES) {
            let name = text_at(interface, "/name");
            if !name.is_empty() && !networks.contains(name) {
                self.add(
                    format!("{path}.name"),
                    format!("no network in spec.networks has the name {name:?}"),
                );
            }
            if pod.as_ref().is_some_and(|(_, pod)| *pod == name) {
                self.ports(&path, interface);
            }
        }
    }

    /// The pod can forward the interface's ports.
    fn ports(&mut self, path: &str, interface: &Value) {
        let mut names = BTreeSet::new();
        for (index, port) in list_at(interface, "/ports").iter().enumerate() {
            let path = format!("{path}.ports[{index}]");
            match copy_at(port, "/port").as_i64() {
                None | Some(0) => self.add(format!("{path}.port"), "missing"),
                Some(1..=65535) => {}
                Some(number) => self.add(
                    format!("{path}.port"),
                    format!("{number} is not in 1..65535"),
                ),
            }
            let protocol = text_at(port, "/protocol");
            if !["", "TCP", "UDP"].contains(&protocol) {
                let message = format!("{protocol:?} is not supported; expected TCP, UDP");
                self.add(format!("{path}.protocol"), message);
            }
            let name = text_at(port, "/name");
            if !name.is_empty() && !is_port_name(name) {
                self.add(
                    format!("{path}.name"),
                    format!("{name:?} is not valid: {PORT_NAME}"),
                );
            } else if !name.is_empty() && !names.insert(name) {
                self.add(
                    format!("{path}.name"),
                    format!("{name:?} is the name of another port already"),
                );
            }
        }
    }

    /// A network probe needs the pod network, which a VMI without networks has.
    pub(super) fn probes(&mut self, vmi: &Value) {
        let networks = each(vmi, NETWORKS);
        let is_attached = copy_at(vmi, "/spec/domain/devices/autoattachPodInterface") != false;
        let is_pods = |(_, network): &(String, &Value)| is_object_at(network, "/pod");
        if networks.iter().any(is_pods) || (networks.is_empty() && is_attached) {
            return;
        }
        for (path, _) in each(vmi, "spec.readinessProbe|livenessProbe.httpGet|tcpSocket") {
            self.add(
                path,
                "it needs the pod network: a network with pod: {} in spec.networks",
            );
        }
    }

    /// A key set by cloud-init needs cloud-init's volume.
    pub(super) fn credentials(&mut self, vmi: &Value) {
        for (method, volume) in [
            ("noCloud", "cloudInitNoCloud"),
            ("configDrive", "cloudInitConfigDrive"),
        ] {
            if !each(vmi, &format!("{VOLUMES}.{volume}")).is_empty() {
                continue;
            }
            let keys = "spec.accessCredentials[].sshPublicKey.propagationMethod";
            for (path, _) in each(vmi, &format!("{keys}.{method}")) {
                self.add(path, format!("it needs a volume {volume} in spec.volumes"));
            }
        }
    }

    /// Secure Boot needs System Management Mode.
    pub(super) fn firmware(&mut self, vmi: &Value) {
        let efi = "spec.domain.firmware.bootloader.efi";
        let secure_boot = copy_at(vmi, "/spec/domain/firmware/bootloader/efi/secureBoot");
        let smm = copy_at(vmi, "/spec/domain/features/smm");
        let has_smm = smm.is_object() && copy_at(&smm, "/enabled") != false;
        let is_tdx = is_object_at(vmi, "/spec/domain/launchSecurity/tdx");
        if !each(vmi, efi).is_empty() && secure_boot != false && !has_smm && !is_tdx {
            self.add(
                efi,
                "Secure Boot needs spec.domain.features.smm: {enabled: true}; or set secureBoot: false",
            );
        }
    }
}
