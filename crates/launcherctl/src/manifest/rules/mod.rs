//! The most often broken rules of KubeVirt's admission, for `launcherctl check`; the conversion has
//! more. Source: the reference's validating webhook
//! (`pkg/virt-api/webhooks/validating-webhook/admitters`, `pkg/storage/admitters`,
//! `pkg/network/admitter`).

mod check;
mod memory;
mod table;
pub mod text;

use serde_json::Value;

use super::error::FieldError;
pub use memory::{too_little_memory, wrong_quantity};

/// The rules broken by a VMI as its user wrote it, without defaults.
pub fn violations(vmi: &Value) -> impl Iterator<Item = FieldError> {
    check::broken(vmi, (String::new(), vmi), table::VMI)
}

/// The rules broken by a VirtualMachine outside its template.
pub fn violations_of_vm(vm: &Value) -> impl Iterator<Item = FieldError> {
    check::broken(vm, (String::new(), vm), table::VM)
}

/// The rules broken by a DataVolume.
pub fn violations_of_data_volume(data_volume: &Value) -> impl Iterator<Item = FieldError> {
    check::broken(
        data_volume,
        (String::new(), data_volume),
        table::DATA_VOLUME,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::list_at;
    use serde_json::json;

    /// The refused fields of a VMI with this spec, sorted.
    pub(super) fn refused(spec: Value) -> Vec<String> {
        let vmi = json!({"spec": spec});
        let mut fields: Vec<String> = violations(&vmi).map(|it| it.field).collect();
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
    fn an_interface_has_a_binding_that_kubevirt_has() {
        let of = |interface: Value| {
            violations(
                &json!({"spec": {"domain": {"devices": {"interfaces": [interface]}},
                "networks": [{"name": "a", "pod": {}}]}}),
            )
            .map(|it| it.message)
            .collect::<Vec<_>>()
            .join("; ")
        };
        assert_eq!(of(json!({"name": "a", "bridge": {}})), "");
        let found = of(json!({"name": "a", "slirp": {}}));
        assert!(found.starts_with("KubeVirt no longer has the binding slirp; write masquerade"));
        assert!(of(json!({"name": "a"})).starts_with("it has none of bridge, masquerade"));
        let found = of(json!({"name": "a", "bridge": {}, "sriov": {}}));
        assert_eq!(found, "it has several (bridge, sriov); choose one");
    }

    #[test]
    fn a_misspelt_annotation_of_sidecars_is_found() {
        let of = |name: &str| {
            let vmi = json!({"metadata": {"annotations": {name: "[]"}}});
            violations(&vmi).map(|it| it.field).collect::<Vec<_>>()
        };
        for misspelt in ["hooks.kubevirt.io/hookSidecar", "kubevirt.io/hookSidecars"] {
            assert_eq!(of(misspelt), ["metadata.annotations"]);
        }
        assert_eq!(of("hooks.kubevirt.io/hookSidecars"), [""; 0]);
        assert_eq!(of("example.org/hookSidecar"), [""; 0]);
    }

    #[test]
    fn downward_metrics_need_a_virtio_disk() {
        let of = |disks: Value| {
            refused(json!({"domain": {"devices": {"disks": disks}},
                "volumes": [{"name": "a", "downwardMetrics": {}}]}))
        };
        assert_eq!(of(json!([])), ["spec.volumes[0]"]);
        let found = of(json!([{"name": "a", "disk": {"bus": "sata"}}]));
        assert_eq!(found, ["spec.volumes[0]"]);
        assert_eq!(
            of(json!([{"name": "a", "disk": {"bus": "virtio"}}])),
            [""; 0]
        );
    }

    #[test]
    fn a_template_of_a_data_volume_has_a_name_of_its_own() {
        let of = |templates: Value| {
            let vm = json!({"spec": {"runStrategy": "Always", "dataVolumeTemplates": templates}});
            violations_of_vm(&vm).map(|it| it.field).collect::<Vec<_>>()
        };
        let at = |rest: &str| format!("spec.dataVolumeTemplates[{rest}");
        assert_eq!(of(json!([{}])), [at("0].metadata")]);
        let named = || json!({"metadata": {"name": "b"}});
        let found = of(json!([named(), named()]));
        assert!(found.contains(&at("1].metadata.name")), "{found:?}");
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
                {"name": "d"},
            ]}},
        }));
        assert_eq!(
            found,
            [
                "spec.domain.devices.interfaces[0]",
                "spec.domain.devices.interfaces[0].macAddress",
                "spec.domain.devices.interfaces[1].model",
                "spec.domain.devices.interfaces[2]",
                "spec.domain.devices.interfaces[2].name",
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
    fn firmware_is_possible() {
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
    fn host_names_are_those_of_a_pod() {
        for (spec, is_refused) in [
            (json!({"subdomain": "web.example"}), false),
            (json!({"subdomain": "Web_1"}), true),
            (json!({"subdomain": "a..b"}), true),
            (json!({"hostname": "a.b"}), true),
        ] {
            assert_eq!(!refused(spec.clone()).is_empty(), is_refused, "{spec}");
        }
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

    #[test]
    fn each_value_is_one_that_a_cluster_and_libvirt_take() {
        for (domain, field) in [
            (
                json!({"memory": {"guest": "2Gi", "maxGuest": "1Gi"}}),
                "memory.guest",
            ),
            (
                json!({"cpu": {"sockets": 4, "maxSockets": 2}}),
                "cpu.sockets",
            ),
            (json!({"cpu": {"sockets": 2, "maxSockets": 2}}), ""),
            (json!({"cpu": {"realtime": {}}}), "cpu.realtime"),
            (
                json!({"cpu": {"dedicatedCpuPlacement": true, "isolateEmulatorThread": true}}),
                "",
            ),
            (
                json!({"cpu": {"features": [{"name": "vmx", "policy": "on"}]}}),
                "cpu.features[0].policy",
            ),
            (json!({"cpu": {"features": [{"name": "vmx"}]}}), ""),
            (
                json!({"firmware": {"kernelBoot": {"kernelArgs": "quiet"}}}),
                "firmware.kernelBoot.kernelArgs",
            ),
            (
                json!({"devices": {"sound": {"name": "a", "model": "sb16"}}}),
                "devices.sound.model",
            ),
            (
                json!({"devices": {"inputs": [{"type": "mouse"}]}}),
                "devices.inputs[0].type",
            ),
            (
                json!({"devices": {"video": {"type": "qxl"}}}),
                "devices.video.type",
            ),
        ] {
            let found = refused(json!({"domain": domain.clone()}));
            let expected: Vec<_> = Some(field)
                .filter(|it| !it.is_empty())
                .into_iter()
                .collect();
            let expected: Vec<_> = expected
                .iter()
                .map(|it| format!("spec.domain.{it}"))
                .collect();
            assert_eq!(found, expected, "{domain}");
        }
        let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 70000}, {"name": "a"}, {"port": 1, "protocol": "tcp"}]);
        let found = refused(json!({
            "readinessProbe": {},
            "networks": [{"name": "a", "pod": {}}],
            "domain": {"devices": {"interfaces": [{"name": "a", "bridge": {}, "ports": ports}]}},
        }));
        let ports = "spec.domain.devices.interfaces[0].ports";
        assert_eq!(
            found,
            [
                format!("{ports}[1].port"),
                format!("{ports}[2].port"),
                format!("{ports}[3].protocol"),
                "spec.readinessProbe".to_owned(),
            ]
        );
    }

    #[test]
    fn a_volume_fits_its_disk_and_its_type() {
        let seed = json!({"userData": "x"});
        let found = refused(json!({
            "volumes": [
                {"name": "one", "cloudInitNoCloud": seed},
                {"name": "two", "cloudInitNoCloud": seed},
                {"name": "old", "hostDisk": {"path": "/a", "type": "Disk", "capacity": "1Gi"}},
                {"name": "new", "hostDisk": {"path": "/b", "type": "DiskOrCreate"}},
                {"name": "claim", "persistentVolumeClaim": {"claimName": "a"}},
            ],
            "domain": {"devices": {"disks": [{"name": "old", "lun": {}}, {"name": "claim", "lun": {}}]}},
        }));
        assert_eq!(
            found,
            [
                "spec.domain.devices.disks[0].lun",
                "spec.volumes[1].cloudInitNoCloud",
                "spec.volumes[2].hostDisk.capacity",
                "spec.volumes[3].hostDisk.capacity",
            ]
        );
    }

    #[test]
    fn a_data_volume_has_a_source_a_size_and_a_user() {
        let vm = |spec: Value, volume: &str| {
            let vm = json!({"spec": {
                "running": true,
                "dataVolumeTemplates": [{"metadata": {"name": "a"}, "spec": spec}],
                "template": {"spec": {"volumes": [{"name": "root", "dataVolume": {"name": volume}}]}},
            }});
            let found = violations_of_vm(&vm).map(|it| it.field);
            found
                .map(|it| it.replace("spec.dataVolumeTemplates[0]", ""))
                .collect::<Vec<_>>()
        };
        let of = |size: &str| json!({"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": size}}}});
        assert_eq!(vm(of("64Mi"), "a"), [""; 0]);
        assert_eq!(
            vm(of("64MB"), "a"),
            [".spec.storage.resources.requests.storage"]
        );
        assert_eq!(vm(of("64Mi"), "b"), [""]);
        assert_eq!(vm(json!({"source": {}}), "a"), [".spec", ".spec.source"]);
    }

    #[test]
    fn sidecars_are_a_json_list() {
        let vmi = |list: &str| json!({"metadata": {"annotations": {"hooks.kubevirt.io/hookSidecars": list}}});
        assert_eq!(violations(&vmi(r#"[{"image": "a"}]"#)).count(), 0);
        let vm = vmi("[]");
        let mut of_vm = violations_of_vm(&vm).map(|it| it.field);
        assert!(of_vm.any(|it| it == "metadata.annotations.hooks.kubevirt.io/hookSidecars"));
        let broken = vmi(r#"[{"image": "a"}"#);
        let found: Vec<_> = violations(&broken).map(|it| it.field).collect();
        assert_eq!(
            found,
            ["metadata.annotations.hooks.kubevirt.io/hookSidecars"]
        );
    }

    #[test]
    fn labels_and_namespace_are_those_of_kubernetes() {
        let found = |metadata: Value| {
            let vmi = json!({"metadata": metadata});
            let line = |it: FieldError| format!("{}: {}", it.field, it.message);
            violations(&vmi).map(line).collect::<Vec<_>>()
        };
        let text = "expected an object with fields, found a list";
        assert_eq!(
            found(json!({"labels": ["a"]})),
            [format!("metadata.labels: {text}")]
        );
        let number = found(json!({"labels": {"a": 5, "b": "5"}}));
        assert_eq!(
            number,
            ["metadata.labels.a: expected text, found 5; write it in quotes"]
        );
        let namespace = found(json!({"namespace": "A_B"}));
        assert!(
            namespace.len() == 1 && namespace[0].starts_with("metadata.namespace: \"A_B\" is not"),
            "{namespace:?}"
        );
        let sound = json!({"namespace": "tests-1", "labels": {"a": "b"}});
        assert_eq!(found(sound), [""; 0]);
    }
}
