//! The most often broken rules of KubeVirt's admission, for `launcherctl check`; the conversion has
//! more. Source: the reference's validating webhook
//! (`pkg/virt-api/webhooks/validating-webhook/admitters`, `pkg/storage/admitters`,
//! `pkg/network/admitter`).

mod memory;
mod relations;
mod table;
mod text;
mod types;

use serde_json::Value;

use super::error::MAX_PROBLEMS;
use crate::json::{list_at, text_at};
pub use memory::too_little_memory;
use table::RULES;
pub use types::of_text_map;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub field: String,
    pub message: String,
}

/// The rules broken by a VMI as its user wrote it, without defaults.
#[must_use]
pub fn violations(vmi: &Value) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    if let Some(message) = unsupported_machine(vmi) {
        found.add(MACHINE, message);
    }
    found.names(vmi);
    for (path, check) in RULES {
        for (path, value) in each(vmi, path) {
            match check.problem(value) {
                Some(("", message)) => found.add(path, message),
                Some((field, message)) => found.add(format!("{path}.{field}"), message),
                None => {}
            }
        }
    }
    for field in ["metadata.labels", "spec.nodeSelector"] {
        found.0.extend(of_text_map(vmi, field));
    }
    found.memory(vmi);
    found.huge_pages(vmi);
    found.firmware(vmi);
    found.probes(vmi);
    found.credentials(vmi);
    found.boot_orders(vmi);
    found.disks(vmi);
    found.networks(vmi);
    found.0
}

/// The machine type that QEMU has.
pub const MACHINE: &str = "spec.domain.machine.type";

/// Why no machine of the VMI's type can start, which the conversion does not check.
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
    /// Adds a broken rule, unless there are already more than are shown.
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.0.len() > MAX_PROBLEMS {
            return;
        }
        self.0.push(Violation {
            field: field.into(),
            message: message.into(),
        });
    }
}

/// The existing values at a table's path, each with its own path.
fn each<'v>(vmi: &'v Value, path: &str) -> Vec<(String, &'v Value)> {
    let mut found = vec![(String::new(), vmi)];
    for part in path.split('.') {
        let (names, is_list) = match part.strip_suffix("[]") {
            Some(names) => (names, true),
            None => (part, false),
        };
        let fields = found.iter().flat_map(|(path, value)| {
            names.split('|').filter_map(move |name| {
                let field = value.get(name).filter(|field| !field.is_null())?;
                let dot = if path.is_empty() { "" } else { "." };
                Some((format!("{path}{dot}{name}"), field))
            })
        });
        let items = |(path, list): (String, &'v Value)| {
            let items = list_at(list, "").iter().enumerate();
            items.map(move |(index, item)| (format!("{path}[{index}]"), item))
        };
        found = if is_list {
            fields.flat_map(items).collect()
        } else {
            fields.collect()
        };
    }
    found
}

/// A path as a JSON pointer.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The refused fields of a VMI with this spec, sorted.
    pub(super) fn refused(spec: Value) -> Vec<String> {
        let found = violations(&json!({"spec": spec}));
        let mut fields: Vec<String> = found.into_iter().map(|it| it.field).collect();
        fields.sort();
        fields
    }

    fn of_volume(source: Value) -> Vec<String> {
        let mut volume = json!({"name": "a"});
        if let (Some(volume), Some(source)) = (volume.as_object_mut(), source.as_object()) {
            volume.extend(source.clone());
        }
        refused(json!({"volumes": [volume]}))
    }

    /// Gives each disk its volume.
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
                "spec.domain.devices.disks[1].name",
                "spec.volumes[1].name",
                "spec.volumes[2].name",
                "spec.volumes[3].name",
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
                "spec.networks[1].pod",
                "spec.networks[2]",
                "spec.networks[2].name",
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

    #[test]
    fn names_and_dns_policy_are_those_of_a_pod() {
        for (spec, is_refused) in [
            (json!({"subdomain": "web.example"}), false),
            (json!({"subdomain": "Web_1"}), true),
            (json!({"subdomain": "a..b"}), true),
            (json!({"hostname": "a.b"}), true),
            (json!({"dnsPolicy": "None"}), false),
            (json!({"dnsPolicy": "Nonne"}), true),
        ] {
            assert_eq!(!refused(spec.clone()).is_empty(), is_refused, "{spec}");
        }
    }

    #[test]
    fn a_probe_does_one_thing() {
        let of = |probe: Value| refused(json!({"readinessProbe": probe}));
        assert_eq!(of(json!({"tcpSocket": {"port": 22}})), [""; 0]);
        assert_eq!(of(json!({"periodSeconds": 3})), ["spec.readinessProbe"]);
        let two = json!({"tcpSocket": {"port": 22}, "exec": {"command": ["true"]}});
        assert_eq!(of(two), ["spec.readinessProbe"]);
    }

    #[test]
    fn a_probe_by_network_needs_the_pods() {
        let found = refused(json!({
            "domain": {"devices": {"autoattachPodInterface": false}},
            "livenessProbe": {"httpGet": {"port": 80}},
        }));
        assert_eq!(found, ["spec.livenessProbe.httpGet"]);
    }

    #[test]
    fn a_credential_has_one_source_and_one_way_into_the_guest() {
        let of = |credential: Value| {
            let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "x"}});
            let found = refused(json!({"volumes": [seed], "accessCredentials": [credential]}));
            let path = "spec.accessCredentials[0]";
            let inner = |field: &String| field.strip_prefix(path).map(str::to_owned);
            found.iter().filter_map(inner).collect::<Vec<_>>()
        };
        let source = json!({"secret": {"secretName": "keys"}});
        let key = |method: Value| json!({"sshPublicKey": {"source": source, "propagationMethod": method}});
        assert_eq!(of(key(json!({"noCloud": {}}))), [""; 0]);
        let agent = json!({"qemuGuestAgent": {"users": ["root"]}});
        assert_eq!(of(key(agent.clone())), [""; 0]);
        let password = json!({"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}});
        assert_eq!(of(password), [""; 0]);

        let method = ".sshPublicKey.propagationMethod";
        assert_eq!(of(json!({})), [""]);
        assert_eq!(of(json!({"sshPublicKey": {"source": source}})), [method]);
        assert_eq!(
            of(json!({"sshPublicKey": {"propagationMethod": agent}})),
            [".sshPublicKey.source"]
        );
        let two = json!({"noCloud": {}, "qemuGuestAgent": {"users": ["root"]}});
        assert_eq!(of(key(two)), [method]);
        assert_eq!(
            of(key(json!({"configDrive": {}}))),
            [format!("{method}.configDrive")]
        );
        assert_eq!(
            of(key(json!({"qemuGuestAgent": {}}))),
            [format!("{method}.qemuGuestAgent.users")]
        );
    }
}
