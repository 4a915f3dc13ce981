//! The rules of KubeVirt's admission that manifests break most often, for `launcherctl check`; the conversion has more.
//! Their source is the reference's validating webhook (`pkg/virt-api/webhooks/validating-webhook/admitters`,
//! `pkg/storage/admitters`, `pkg/network/admitter`).

mod cluster;
mod credentials;
mod devices;
mod memory;
mod pod;
mod volumes;

use std::collections::BTreeMap;

use serde_json::Value;

use super::error::MAX_PROBLEMS;
use crate::json::{copy_at, is_object_at, list_at, text_at};
pub use cluster::of_text_map;
use memory::quantity;
pub use memory::too_little_memory;

const DISKS: &str = "/spec/domain/devices/disks";
const INTERFACES: &str = "/spec/domain/devices/interfaces";
/// A rule that a VMI breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field in the VMI.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

/// The rules that a VMI breaks, as its user wrote it: without defaults.
#[must_use]
pub fn violations(vmi: &Value) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    found.quantities(vmi);
    found.memory(vmi);
    found.huge_pages(vmi);
    found.domain(vmi);
    found.pod(vmi);
    found.cluster_fields(vmi);
    found.credentials(vmi);
    found.names(vmi);
    for (index, volume) in list_at(vmi, "/spec/volumes").iter().enumerate() {
        found.volume(&format!("spec.volumes[{index}]"), volume);
    }
    for (index, disk) in list_at(vmi, DISKS).iter().enumerate() {
        found.disk(&format!("spec.domain.devices.disks[{index}]"), disk);
    }
    found.volumes_of_disks(vmi);
    found.boot_orders(vmi);
    let networks = by_name(list_at(vmi, "/spec/networks"));
    for (index, interface) in list_at(vmi, INTERFACES).iter().enumerate() {
        let path = format!("spec.domain.devices.interfaces[{index}]");
        found.interface(&path, interface);
        found.network_of_interface(&path, interface, &networks);
    }
    found.networks(vmi);
    found.0
}

/// The type of the machine that QEMU is.
pub const MACHINE: &str = "spec.domain.machine.type";

/// Why no machine of the VMI's type can be started, which the conversion does not look at.
#[must_use]
pub fn unsupported_machine(vmi: &Value) -> Option<String> {
    let machine = text_at(vmi, "/spec/domain/machine/type");
    let is_known = ["q35", "pc-q35", "virt", "s390-ccw-virtio"]
        .iter()
        .any(|known| machine.starts_with(known));
    (!machine.is_empty() && !is_known).then(|| {
        format!("{machine:?} is not supported; expected q35 (amd64), virt (arm64) or s390-ccw-virtio (s390x), or a version of it, such as pc-q35-9.2")
    })
}

struct Found(Vec<Violation>);

impl Found {
    /// Adds a rule that is broken, unless there are more already than are shown.
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() > MAX_PROBLEMS {
            return;
        }
        self.0.push(Violation {
            field: field.into(),
            message: message.into(),
        });
    }

    fn domain(&mut self, vmi: &Value) {
        if let Some(message) = unsupported_machine(vmi) {
            self.add(MACHINE, message);
        }
        let bootloader = "/spec/domain/firmware/bootloader";
        let has = |kind: &str| is_object_at(vmi, &format!("{bootloader}/{kind}"));
        if has("efi") && has("bios") {
            self.add(
                "spec.domain.firmware.bootloader",
                "both efi and bios; choose one",
            );
        }
        let secure_boot = copy_at(vmi, &format!("{bootloader}/efi/secureBoot"));
        let smm = "/spec/domain/features/smm";
        let has_smm = is_object_at(vmi, smm) && copy_at(vmi, &format!("{smm}/enabled")) != false;
        let is_tdx = is_object_at(vmi, "/spec/domain/launchSecurity/tdx");
        if has("efi") && secure_boot != false && !has_smm && !is_tdx {
            self.add(
                "spec.domain.firmware.bootloader.efi",
                "Secure Boot needs spec.domain.features.smm: {enabled: true}; or set secureBoot: false",
            );
        }
        self.one_of(vmi, "spec.startStrategy", &["Paused"]);
        self.one_of(
            vmi,
            "spec.evictionStrategy",
            &["None", "LiveMigrate", "LiveMigrateIfPossible", "External"],
        );
        self.one_of(
            vmi,
            "spec.domain.ioThreadsPolicy",
            &["shared", "auto", "supplementalPool"],
        );
    }

    fn one_of(&mut self, vmi: &Value, field: &str, allowed: &[&str]) {
        let value = text_at(vmi, &pointer(field));
        if !value.is_empty() && !allowed.contains(&value) {
            self.add(
                field,
                format!(
                    "{value:?} is not supported; expected {}",
                    allowed.join(", ")
                ),
            );
        }
    }

    /// Each name is there, and only once in its list.
    fn names(&mut self, vmi: &Value) {
        for list in [
            "spec.volumes",
            "spec.domain.devices.disks",
            "spec.domain.devices.filesystems",
            "spec.networks",
            "spec.domain.devices.interfaces",
        ] {
            let mut first: BTreeMap<&str, usize> = BTreeMap::new();
            for (index, item) in list_at(vmi, &pointer(list)).iter().enumerate() {
                let field = format!("{list}[{index}].name");
                let name = text_at(item, "/name");
                if name.is_empty() {
                    self.add(field, "missing");
                } else if let Some(other) = first.get(name) {
                    self.add(
                        field,
                        format!("{name:?} is the name of {list}[{other}] already"),
                    );
                } else {
                    first.insert(name, index);
                    let is_label_list = ["spec.volumes", "spec.domain.devices.disks"];
                    if is_label_list.contains(&list) && !is_label(name) {
                        self.add(field, not_a_label(name));
                    }
                }
            }
        }
    }
}

/// The items of a list by their names; of several with one name the first.
fn by_name(list: &[Value]) -> BTreeMap<&str, &Value> {
    list.iter()
        .rev()
        .map(|item| (text_at(item, "/name"), item))
        .collect()
}

/// A path as a JSON pointer.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// A DNS label, as volumes, disks and hosts are named.
fn is_label(name: &str) -> bool {
    let is_outer = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= 63
        && name.starts_with(is_outer)
        && name.ends_with(is_outer)
        && name.chars().all(|c| is_outer(c) || c == '-')
}

fn not_a_label(name: &str) -> String {
    format!(
        "{name:?} is not valid: at most 63 characters of a to z, 0 to 9 and '-', with a letter or digit first and last"
    )
}

/// Six bytes, in one of the three ways that Kubernetes takes.
fn is_mac(text: &str) -> bool {
    let is_list = |separator: char, count: usize, digits: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let is_part =
            |part: &&str| part.len() == digits && part.chars().all(|c| c.is_ascii_hexdigit());
        parts.len() == count && parts.iter().all(is_part)
    };
    is_list(':', 6, 2) || is_list('-', 6, 2) || is_list('.', 3, 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The fields that are refused in a VMI with this spec.
    pub(super) fn refused(spec: Value) -> Vec<String> {
        let found = violations(&json!({"spec": spec}));
        found.into_iter().map(|it| it.field).collect()
    }

    fn of_volume(source: Value) -> Vec<String> {
        let mut volume = json!({"name": "a"});
        if let (Some(volume), Some(source)) = (volume.as_object_mut(), source.as_object()) {
            volume.extend(source.clone());
        }
        refused(json!({"volumes": [volume]}))
    }

    /// Each has its volume.
    fn of_disks(disks: Value) -> Vec<String> {
        let volumes = list_at(&disks, "")
            .iter()
            .map(|disk| json!({"name": disk["name"], "emptyDisk": {"capacity": "1Gi"}}));
        refused(json!({
            "volumes": volumes.collect::<Vec<_>>(),
            "domain": {"devices": {"disks": disks}},
        }))
    }

    #[test]
    fn names_are_unique_in_their_list() {
        let volume = |name: &str| json!({"name": name, "emptyDisk": {"capacity": "1Gi"}});
        let found = refused(json!({
            "volumes": [volume("a"), volume("a"), volume("b_c"), volume("")],
            "domain": {"devices": {"disks": [{"name": "a"}, {"name": "a"}]}},
        }));
        assert_eq!(
            found,
            [
                "spec.volumes[1].name",
                "spec.volumes[2].name",
                "spec.volumes[3].name",
                "spec.domain.devices.disks[1].name"
            ]
        );
    }

    #[test]
    fn a_volume_has_one_source_with_what_it_needs() {
        assert_eq!(of_volume(json!({"containerDisk": {"image": "x"}})), [""; 0]);
        assert_eq!(of_volume(json!({})), ["spec.volumes[0]"]);
        assert_eq!(
            of_volume(json!({"containerDisk": {"image": "x"}, "emptyDisk": {"capacity": "1Gi"}})),
            ["spec.volumes[0]"]
        );
        for (source, field) in [
            (
                json!({"emptyDisk": {"capacity": "1Gg"}}),
                "emptyDisk.capacity",
            ),
            (json!({"emptyDisk": {}}), "emptyDisk.capacity"),
            (
                json!({"persistentVolumeClaim": {}}),
                "persistentVolumeClaim.claimName",
            ),
            (
                json!({"hostDisk": {"path": "/a", "type": "File"}}),
                "hostDisk.type",
            ),
            (json!({"cloudInitNoCloud": {}}), "cloudInitNoCloud"),
            (
                json!({"cloudInitNoCloud": {"userData": "x".repeat(2049)}}),
                "cloudInitNoCloud.userData",
            ),
            (
                json!({"cloudInitNoCloud": {"userDataBase64": "#cloud-config"}}),
                "cloudInitNoCloud.userDataBase64",
            ),
        ] {
            assert_eq!(of_volume(source), [format!("spec.volumes[0].{field}")]);
        }
    }

    #[test]
    fn a_disk_has_one_kind_and_its_own_place_in_the_boot_order() {
        let disks = "spec.domain.devices.disks";
        assert_eq!(
            of_disks(
                json!([{"name": "a", "bootOrder": 1, "disk": {}}, {"name": "b", "bootOrder": 1, "disk": {}, "cdrom": {}}])
            ),
            [format!("{disks}[1]"), format!("{disks}[1].bootOrder")]
        );
        for (disk, field) in [
            (json!({"name": "a", "bootOrder": 0}), "bootOrder"),
            (json!({"name": "a", "serial": "a b"}), "serial"),
            (json!({"name": "a", "cache": "unsafe"}), "cache"),
            (
                json!({"name": "a", "cdrom": {"bus": "virtio"}}),
                "cdrom.bus",
            ),
        ] {
            assert_eq!(of_disks(json!([disk])), [format!("{disks}[0].{field}")]);
        }
    }

    #[test]
    fn interfaces_and_networks_belong_together() {
        let found = refused(json!({
            "networks": [{"name": "a", "pod": {}}, {"name": "b", "pod": {}}, {"name": "c"}],
            "domain": {"devices": {"interfaces": [
                {"name": "a", "bridge": {}, "masquerade": {}, "macAddress": "zz"},
                {"name": "b", "bridge": {}, "model": "e1000x"},
            ]}},
        }));
        assert_eq!(
            found,
            [
                "spec.domain.devices.interfaces[0]",
                "spec.domain.devices.interfaces[0].macAddress",
                "spec.domain.devices.interfaces[1].model",
                "spec.networks[2].name",
                "spec.networks[2]",
                "spec.networks[1].pod",
            ]
        );
    }

    #[test]
    fn a_network_has_one_source() {
        let of = |network: Value| {
            refused(json!({
                "networks": [network],
                "domain": {"devices": {"interfaces": [{"name": "a", "bridge": {}}]}},
            }))
        };
        let both = json!({"name": "a", "pod": {}, "multus": {"networkName": "lan"}});
        assert_eq!(of(both), ["spec.networks[0]"]);
        let no_name = json!({"name": "a", "multus": {}});
        assert_eq!(of(no_name), ["spec.networks[0].multus.networkName"]);
    }

    #[test]
    fn ports_can_be_forwarded() {
        let ports = json!([
            {"port": 0}, {"port": 70000}, {"port": 22, "protocol": "SCTP"}, {"port": 80, "name": "web"},
            {"port": 81, "name": "web"}, {"port": 82, "name": "Web"}, {"port": 53, "protocol": "UDP"},
        ]);
        let spec = |network: Value| {
            json!({
                "networks": [network],
                "domain": {"devices": {"interfaces": [{"name": "a", "masquerade": {}, "ports": ports}]}},
            })
        };
        let path = "spec.domain.devices.interfaces[0].ports";
        assert_eq!(
            refused(spec(json!({"name": "a", "pod": {}}))),
            [
                format!("{path}[0].port"),
                format!("{path}[1].port"),
                format!("{path}[2].protocol"),
                format!("{path}[4].name"),
                format!("{path}[5].name"),
            ]
        );
        let multus = json!({"name": "a", "multus": {"networkName": "lan"}});
        assert_eq!(
            refused(spec(multus)),
            [""; 0],
            "admission compares only the pod's"
        );
    }

    #[test]
    fn what_has_no_partner_is_found_beside_what_else_is_wrong_with_it() {
        let found = refused(json!({"domain": {"devices": {
            "disks": [{"name": "data", "disk": {}, "cdrom": {}}, {"name": "empty", "cdrom": {}}],
            "interfaces": [{"name": "lost", "bridge": {}, "masquerade": {}}],
        }}}));
        let devices = "spec.domain.devices";
        assert_eq!(
            found,
            [
                format!("{devices}.disks[0]"),
                format!("{devices}.disks[0].name"),
                format!("{devices}.interfaces[0]"),
                format!("{devices}.interfaces[0].name"),
            ]
        );
    }

    #[test]
    fn machine_and_firmware_are_possible() {
        for (machine, is_refused) in [
            ("q35", false),
            ("pc-q35-9.2", false),
            ("q36", true),
            ("pc", true),
        ] {
            let found = refused(json!({"domain": {"machine": {"type": machine}}}));
            assert_eq!(!found.is_empty(), is_refused, "{machine}");
        }
        let efi = |efi: Value, features: Value| {
            refused(
                json!({"domain": {"firmware": {"bootloader": {"efi": efi}}, "features": features}}),
            )
        };
        assert_eq!(
            efi(json!({}), json!({})),
            ["spec.domain.firmware.bootloader.efi"]
        );
        assert_eq!(efi(json!({}), json!({"smm": {}})), [""; 0]);
        assert_eq!(efi(json!({"secureBoot": false}), json!({})), [""; 0]);
        assert_eq!(
            refused(json!({"startStrategy": "paused"})),
            ["spec.startStrategy"]
        );
    }
}
