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

/// Adds disks to the domain until it has [`LARGE_INPUT_BYTES`].
pub fn large_domain(domain_xml: &str) -> Result<String, ReadError> {
    let mut domain = Element::parse(domain_xml)?;
    let disk = |number: usize| {
        Element::parse(&format!(
            r#"<disk type="file" device="disk"><source file="/check/{number}.img"/>
            <target dev="check{number}" bus="virtio"/><alias name="ua-check{number}"/></disk>"#
        ))
    };
    let size_of_disk = disk(1_000)?.to_xml().len().max(1);
    let missing = LARGE_INPUT_BYTES.saturating_sub(domain.to_xml().len());
    let disks = (0..missing.checked_div(size_of_disk).unwrap_or_default()).map(disk);
    let disks = disks.collect::<Result<Vec<_>, _>>()?;
    edit_child(&mut domain, "devices", |devices| {
        disks.into_iter().for_each(|disk| devices.push(disk));
    });
    Ok(domain.to_xml())
}

/// Fills the VMI up to [`LARGE_INPUT_BYTES`] with white space.
pub fn large_vmi(vmi_json: &Bytes) -> Bytes {
    let mut vmi = vmi_json.to_vec();
    vmi.resize(LARGE_INPUT_BYTES.max(vmi.len()), b' ');
    vmi.into()
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
