//! The rules about one value, as data.

use serde_json::{Map, Value};

use super::memory::{too_little_memory, wrong_quantity};
use super::text::{
    BASE64, CLOUD_INIT, LABEL, MAC, SERIAL, SUBDOMAIN, is_base64, is_label, is_mac, is_serial,
    is_subdomain, may_be_cloud_init,
};
use super::types::{list_of_objects, wrong_type};
use Check::{AtMostOne, ExactlyOne, Has, OneOf, Text, Wrong};

type Object = Map<String, Value>;

/// A condition on a value. A missing or null value passes.
pub(super) enum Check {
    /// The text is one of these.
    OneOf(&'static [&'static str]),
    /// The text is valid; with a description of valid texts.
    Text(fn(&str) -> bool, &'static str),
    /// At most one of these fields is set.
    AtMostOne(&'static [&'static str]),
    /// Exactly one of these fields is set.
    ExactlyOne(&'static [&'static str]),
    /// The field is set and not empty.
    Has(&'static str),
    /// The function returns the problem.
    Wrong(fn(&Value) -> Option<String>),
}

const VOLUME_SOURCES: &[&str] = &[
    "containerDisk",
    "persistentVolumeClaim",
    "dataVolume",
    "emptyDisk",
    "hostDisk",
    "ephemeral",
    "cloudInitNoCloud",
    "cloudInitConfigDrive",
    "configMap",
    "secret",
    "serviceAccount",
    "downwardAPI",
    "downwardMetrics",
    "sysprep",
    "memoryDump",
    "containerPath",
];
const USER_DATA: &[&str] = &["secretRef", "userDataBase64", "userData"];
const NETWORK_DATA: &[&str] = &["networkDataSecretRef", "networkDataBase64", "networkData"];

/// Paths, in which `[]` means each item of a list and `a|b` both fields, with the conditions on
/// their values.
#[rustfmt::skip]
pub(super) const RULES: &[(&str, Check)] = &[
    ("metadata.namespace", Text(is_label, LABEL)),
    ("spec.hostname", Text(is_label, LABEL)),
    ("spec.subdomain", Text(is_subdomain, SUBDOMAIN)),
    ("spec.startStrategy", OneOf(&["Paused"])),
    ("spec.evictionStrategy", OneOf(&["None", "LiveMigrate", "LiveMigrateIfPossible", "External"])),
    ("spec.dnsPolicy", OneOf(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    ("spec.readinessProbe|livenessProbe",
        ExactlyOne(&["httpGet", "tcpSocket", "exec", "guestAgentPing"])),
    // Only a cluster reads these; its API refuses other types.
    ("spec.affinity|dnsConfig|readinessProbe|livenessProbe", Wrong(wrong_type::<Object>)),
    ("spec.tolerations|topologySpreadConstraints", Wrong(list_of_objects)),
    ("spec.schedulerName|priorityClassName|serviceAccountName|evictionStrategy|dnsPolicy",
        Wrong(wrong_type::<String>)),
    ("spec.domain.ioThreadsPolicy", OneOf(&["shared", "auto", "supplementalPool"])),
    ("spec.domain.firmware.bootloader", AtMostOne(&["efi", "bios"])),
    ("spec.domain.memory.guest|maxGuest", Wrong(wrong_quantity)),
    ("spec.domain.memory.hugepages.pageSize", Wrong(wrong_quantity)),
    ("spec.domain.resources.requests|limits.memory|cpu", Wrong(wrong_quantity)),
    ("spec.domain.memory.guest", Wrong(too_little_memory)),
    ("spec.domain.resources.requests.memory", Wrong(too_little_memory)),
    ("spec.volumes[]", ExactlyOne(VOLUME_SOURCES)),
    ("spec.volumes[].persistentVolumeClaim", Has("claimName")),
    ("spec.volumes[].ephemeral", Has("persistentVolumeClaim")),
    ("spec.volumes[].ephemeral.persistentVolumeClaim", Has("claimName")),
    ("spec.volumes[].dataVolume|configMap", Has("name")),
    ("spec.volumes[].containerDisk", Has("image")),
    ("spec.volumes[].emptyDisk", Has("capacity")),
    ("spec.volumes[].emptyDisk|hostDisk.capacity", Wrong(wrong_quantity)),
    ("spec.volumes[].hostDisk", Has("path")),
    ("spec.volumes[].hostDisk", Has("type")),
    ("spec.volumes[].hostDisk.type", OneOf(&["Disk", "DiskOrCreate"])),
    ("spec.volumes[].secret", Has("secretName")),
    ("spec.volumes[].serviceAccount", Has("serviceAccountName")),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive", AtMostOne(USER_DATA)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive", AtMostOne(NETWORK_DATA)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive", Wrong(without_data)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive.userDataBase64|networkDataBase64",
        Text(is_base64, BASE64)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive.userData|networkData",
        Text(may_be_cloud_init, CLOUD_INIT)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive.userDataBase64|networkDataBase64",
        Text(may_be_cloud_init, CLOUD_INIT)),
    ("spec.domain.devices.disks[]", AtMostOne(&["disk", "lun", "cdrom"])),
    ("spec.domain.devices.disks[].cdrom.bus",
        Text(|bus| bus != "virtio", "a CD-ROM drive is on sata, scsi or usb")),
    ("spec.domain.devices.disks[].cache", OneOf(&["none", "writethrough", "writeback"])),
    ("spec.domain.devices.disks[].io", OneOf(&["native", "threads"])),
    ("spec.domain.devices.disks[].serial", Text(is_serial, SERIAL)),
    ("spec.domain.devices.interfaces[]",
        AtMostOne(&["bridge", "masquerade", "sriov", "passtBinding", "binding"])),
    ("spec.domain.devices.interfaces[].macAddress", Text(is_mac, MAC)),
    ("spec.domain.devices.interfaces[].model",
        OneOf(&["virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"])),
    ("spec.networks[]", ExactlyOne(&["pod", "multus", "resourceClaim"])),
    ("spec.networks[].multus", Has("networkName")),
    ("spec.accessCredentials[]", ExactlyOne(&["sshPublicKey", "userPassword"])),
    ("spec.accessCredentials[].sshPublicKey|userPassword", Has("source")),
    ("spec.accessCredentials[].sshPublicKey|userPassword", Has("propagationMethod")),
    ("spec.accessCredentials[].sshPublicKey|userPassword.source", ExactlyOne(&["secret"])),
    ("spec.accessCredentials[].sshPublicKey.propagationMethod",
        ExactlyOne(&["noCloud", "configDrive", "qemuGuestAgent"])),
    ("spec.accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent", Has("users")),
    ("spec.accessCredentials[].userPassword.propagationMethod", ExactlyOne(&["qemuGuestAgent"])),
];

fn without_data(source: &Value) -> Option<String> {
    let mut fields = USER_DATA.iter().chain(NETWORK_DATA);
    let is_there = fields.any(|field| !is_empty(source.get(field)));
    (!is_there).then(|| "it has no data, such as userData: …".to_owned())
}

/// Missing or empty. An object may be empty: `noCloud: {}` has a meaning.
fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

impl Check {
    /// The wrong field below the value, which may be empty, and the problem.
    pub(super) fn problem(&self, value: &Value) -> Option<(&'static str, String)> {
        let text = value.as_str().unwrap_or_default();
        let set = |fields: &[&'static str]| {
            let is_set = |field: &&&str| !is_empty(value.get(field));
            fields.iter().filter(is_set).copied().collect::<Vec<_>>()
        };
        let message = match self {
            Has(field) => {
                return is_empty(value.get(field)).then(|| (*field, "missing".to_owned()));
            }
            OneOf(allowed) => (!text.is_empty() && !allowed.contains(&text))
                .then(|| format!("{text:?} is not supported; expected {}", allowed.join(", "))),
            Text(is_valid, valid) => (!text.is_empty() && !is_valid(text))
                .then(|| format!("{} is not valid: {valid}", shortened(text))),
            Wrong(wrong) => wrong(value),
            // Another rule reports that it is not an object.
            AtMostOne(_) | ExactlyOne(_) if !value.is_object() => None,
            ExactlyOne(fields) if set(fields).is_empty() => {
                Some(format!("it has none of {}", fields.join(", ")))
            }
            AtMostOne(fields) | ExactlyOne(fields) => {
                let set = set(fields);
                (set.len() > 1).then(|| format!("it has several ({}); choose one", set.join(", ")))
            }
        };
        Some(("", message?))
    }
}

/// Shortens a text for a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
        None => format!("{text:?}"),
    }
}
