//! Tests with expressions from KubeVirt's own tests and from users.

mod conditions;
mod mutations;

use std::sync::Arc;

use domain::xml::tree::Element;
use os::logging::chain;
use serde_json::{Value, json};

use super::ExpressionInput;

const DOMAIN: &str = r#"<domain type="kvm" xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0">
  <name>test-vm</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid>
  <memory unit="MiB">1024</memory>
  <os><type arch="x86_64" machine="q35">hvm</type><boot dev="hd"/></os>
  <devices>
    <disk type="file" device="disk"><driver name="qemu" type="raw" cache="none"/><source file="/a.img"/><target dev="vda" bus="virtio"/><alias name="ua-a"/></disk>
    <disk type="block" device="disk"><source dev="/dev/b"/><target dev="vdb" bus="virtio"/><alias name="ua-b"/></disk>
    <controller type="pci" index="0" model="pcie-root"/>
    <interface type="ethernet"><mac address="de:ad:00:00:00:01"/><model type="virtio-non-transitional"/><address type="pci" domain="0x0000" bus="0x01" slot="0x00" function="0x0"/></interface>
    <unknown-device answer="42"/>
  </devices>
  <qemu:commandline><qemu:arg value="-fw_cfg"/></qemu:commandline>
</domain>"#;

fn vmi() -> Value {
    json!({
        "metadata": {"name": "test-vmi", "namespace": "default", "labels": {"app": "test"}},
        "spec": {
            "domain": {
                "cpu": {"cores": 4},
                "resources": {"requests": {"memory": "1Gi"}},
                "devices": {"disks": [{"name": "a", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "masquerade": {}}]}
            },
            "tolerations": [{"key": "gpu", "tolerationSeconds": 30}]
        }
    })
}

fn input(domain: &str, vmi: Value) -> ExpressionInput {
    ExpressionInput {
        domain: Arc::new(Element::parse(domain).unwrap()),
        vmi: Arc::new(vmi),
    }
}

#[track_caller]
fn has(xml: &str, part: &str) {
    assert!(xml.contains(part), "{part} is not in: {xml}");
}

fn condition(text: &str) -> Result<bool, String> {
    condition_on(text, &input(DOMAIN, vmi()))
}

fn condition_on(text: &str, input: &ExpressionInput) -> Result<bool, String> {
    super::condition(text, input).map_err(|error| chain(&error))
}

/// The domain after the mutation, without white space between elements.
fn mutated(expression: &str) -> Result<String, String> {
    mutated_on(expression, &input(DOMAIN, vmi()))
}

fn mutated_on(expression: &str, input: &ExpressionInput) -> Result<String, String> {
    super::mutation(expression, input)
        .map(|domain| domain.to_xml().replace(['\n', '\t'], ""))
        .map_err(|error| chain(&error))
}
