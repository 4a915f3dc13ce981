//! Inputs of the sidecar's hooks.

use domain::xml::ReadError;
use domain::xml::tree::Element;
use prost::bytes::Bytes;
use serde_json::{Value, json};

/// Attribute value that marks elements that no sidecar knows.
pub const MARKER: &str = "launcherctl-hooks-check";
/// How many elements [`with_unknown_elements`] marks.
pub const MARKED_ELEMENTS: usize = 3;
/// Size of each large input. The sidecar-shim passes each as an argument, and Linux limits an
/// argument to 128 KiB.
const LARGE_INPUT_BYTES: usize = 100 << 10;

/// Adds three elements that the sidecar cannot know: in a foreign, in QEMU's and in no namespace.
pub fn with_unknown_elements(domain_xml: &str) -> Result<String, ReadError> {
    let mut domain = Element::parse(domain_xml)?;
    let marked = |name: &str| Element::new(name).with_attribute("value", MARKER);
    edit_child(&mut domain, "metadata", |metadata| {
        metadata.push(marked("check").with_attribute("xmlns", "https://example.org/check"));
    });
    edit_child(&mut domain, "devices", |devices| {
        devices.push(marked("device-from-the-future"));
    });
    if domain.attribute("xmlns:qemu").is_none() {
        let uri = "http://libvirt.org/schemas/domain/qemu/1.0";
        domain
            .attributes
            .push(("xmlns:qemu".to_owned(), uri.to_owned()));
    }
    edit_child(&mut domain, "qemu:commandline", |commandline| {
        commandline.push(marked("qemu:env").with_attribute("name", "CHECK"));
    });
    Ok(domain.to_xml())
}

/// Counts the elements that have the marker.
pub fn marked_elements(element: &Element) -> usize {
    let is_marked = element.attribute("value") == Some(MARKER);
    let inside: usize = element.children().map(marked_elements).sum();
    inside.saturating_add(usize::from(is_marked))
}

/// Adds disks, with the parts that the launcher's have, to the domain until it has
/// [`LARGE_INPUT_BYTES`].
pub fn large_domain(domain_xml: &str) -> Result<String, ReadError> {
    let mut domain = Element::parse(domain_xml)?;
    let disk = |number: usize| {
        Element::new("disk")
            .with_attribute("type", "file")
            .with_attribute("device", "disk")
            .with_child(
                Element::new("source").with_attribute("file", format!("/check/{number}.img")),
            )
            .with_child(
                Element::new("target")
                    .with_attribute("dev", format!("check{number}"))
                    .with_attribute("bus", "virtio"),
            )
            .with_child(
                Element::new("driver")
                    .with_attribute("name", "qemu")
                    .with_attribute("type", "raw")
                    .with_attribute("cache", "none"),
            )
            .with_child(Element::new("alias").with_attribute("name", format!("ua-check{number}")))
    };
    let size_of_disk = disk(1_000).to_xml().len().max(1);
    let missing = LARGE_INPUT_BYTES.saturating_sub(domain.to_xml().len());
    let disks = missing.checked_div(size_of_disk).unwrap_or_default();
    edit_child(&mut domain, "devices", |devices| {
        (0..disks).for_each(|number| devices.push(disk(number)));
    });
    Ok(domain.to_xml())
}

/// Fills the VMI up to [`LARGE_INPUT_BYTES`] with an annotation.
pub fn large_vmi(vmi_json: &Bytes) -> Bytes {
    let Ok(mut vmi) = serde_json::from_slice::<Value>(vmi_json) else {
        return vmi_json.clone();
    };
    let filling = "x".repeat(LARGE_INPUT_BYTES.saturating_sub(vmi_json.len()));
    let annotations = vmi
        .as_object_mut()
        .map(|vmi| vmi.entry("metadata").or_insert_with(|| json!({})))
        .and_then(Value::as_object_mut)
        .map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})))
        .and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.insert("example.org/check".to_owned(), Value::from(filling));
    }
    Bytes::from(vmi.to_string())
}

/// Cloud-init data of a NoCloud volume, with the field names of KubeVirt's Go struct.
pub fn no_cloud() -> Value {
    json!({
        "DataSource": "noCloud",
        "NoCloudMetaData": {"instance-id": "check.default", "local-hostname": "check"},
        "ConfigDriveMetaData": null,
        "UserData": "#cloud-config\nhostname: check\n",
        "NetworkData": "",
        "DevicesData": null,
        "VolumeName": "cloud-init",
    })
}

/// The same of a ConfigDrive volume.
pub fn config_drive() -> Value {
    json!({
        "DataSource": "configDrive",
        "NoCloudMetaData": null,
        "ConfigDriveMetaData": {
            "instance_id": "check.default", "local_hostname": "check", "hostname": "check",
            "uuid": "c8ac2e1c-4f1f-5b1f-9ccf-d4a4f4d6d3b5",
        },
        "UserData": "#cloud-config\nhostname: check\n",
        "NetworkData": "",
        "DevicesData": null,
        "VolumeName": "cloud-init",
    })
}

fn edit_child(parent: &mut Element, name: &str, edit: impl FnOnce(&mut Element)) {
    if let Some(child) = parent.child_mut(name) {
        edit(child);
        return;
    }
    let mut child = Element::new(name);
    edit(&mut child);
    parent.push(child);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "<domain><name>n</name><devices><disk/></devices></domain>";

    #[test]
    fn unknown_elements_are_counted() {
        let xml = with_unknown_elements(DOMAIN).unwrap();
        let domain = Element::parse(&xml).unwrap();
        assert_eq!(marked_elements(&domain), MARKED_ELEMENTS);
    }

    #[test]
    fn large_inputs_are_large_and_fit_into_an_argument() {
        let domain = large_domain(DOMAIN).unwrap();
        let vmi = large_vmi(&Bytes::from_static(b"{\"metadata\":{\"name\":\"vm\"}}"));
        for size in [domain.len(), vmi.len()] {
            assert!((90 << 10..128 << 10).contains(&size), "{size}");
        }
        assert!(serde_json::from_slice::<Value>(&vmi).is_ok());
    }
}
