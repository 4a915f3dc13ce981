//! Rules for volumes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Found, pointer, quantity};
use crate::json::{copy_at, text_at};

/// What a volume may be.
const SOURCES: [&str; 16] = [
    "persistentVolumeClaim",
    "dataVolume",
    "containerDisk",
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
/// What each volume must name.
const REQUIRED: [(&str, &str); 9] = [
    ("persistentVolumeClaim", "claimName"),
    ("ephemeral", "persistentVolumeClaim.claimName"),
    ("dataVolume", "name"),
    ("containerDisk", "image"),
    ("emptyDisk", "capacity"),
    ("hostDisk", "path"),
    ("configMap", "name"),
    ("secret", "secretName"),
    ("serviceAccount", "serviceAccountName"),
];
/// Of cloud-init's data in the VMI itself.
const MAX_CLOUD_INIT_BYTES: usize = 2048;

impl Found {
    pub(super) fn volume(&mut self, path: &str, volume: &Value) {
        let has = |source: &&&str| !copy_at(volume, &pointer(source)).is_null();
        let sources: Vec<&str> = SOURCES.iter().filter(has).copied().collect();
        match sources.as_slice() {
            [] => self.add(path, "it has no source, such as containerDisk: {image: …}, persistentVolumeClaim: {claimName: …} or emptyDisk: {capacity: 1Gi}"),
            [_] => {}
            several => self.add(
                path,
                format!("it has several sources ({}); make a volume of each", several.join(", ")),
            ),
        }
        for (source, field) in REQUIRED {
            let value = copy_at(volume, &pointer(&format!("{source}.{field}")));
            if sources.contains(&source) && (value.is_null() || value == "") {
                self.add(format!("{path}.{source}.{field}"), "missing");
            }
        }
        for source in ["emptyDisk", "hostDisk"] {
            let value = copy_at(volume, &pointer(&format!("{source}.capacity")));
            if !value.is_null()
                && let Err(message) = quantity(&value)
            {
                self.add(format!("{path}.{source}.capacity"), message);
            }
        }
        if sources.contains(&"hostDisk") {
            let kind = text_at(volume, "/hostDisk/type");
            if !["Disk", "DiskOrCreate"].contains(&kind) {
                self.add(
                    format!("{path}.hostDisk.type"),
                    format!("{kind:?} is not supported; expected Disk or DiskOrCreate"),
                );
            }
        }
        for source in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
            if sources.contains(&source) {
                self.cloud_init(
                    &format!("{path}.{source}"),
                    &copy_at(volume, &pointer(source)),
                );
            }
        }
    }

    fn cloud_init(&mut self, path: &str, source: &Value) {
        let mut is_empty = true;
        for (fields, what) in [
            (["secretRef", "userDataBase64", "userData"], "user data"),
            (
                ["networkDataSecretRef", "networkDataBase64", "networkData"],
                "network data",
            ),
        ] {
            let is_set = |field: &&&str| {
                let value = copy_at(source, &pointer(field));
                !value.is_null() && value != ""
            };
            let set: Vec<&str> = fields.iter().filter(is_set).copied().collect();
            is_empty &= set.is_empty();
            if set.len() > 1 {
                self.add(
                    path,
                    format!(
                        "its {what} is there several times ({}); choose one",
                        set.join(", ")
                    ),
                );
            }
            for field in set {
                let text = text_at(source, &pointer(field));
                if field.ends_with("Base64") && !is_base64(text) {
                    self.add(
                        format!("{path}.{field}"),
                        format!("not valid Base64; plain text belongs into {}", fields[2]),
                    );
                }
                let length = text.len();
                if length > MAX_CLOUD_INIT_BYTES {
                    self.add(
                        format!("{path}.{field}"),
                        format!("{length} bytes, at most {MAX_CLOUD_INIT_BYTES} are allowed; put it into a Secret ({})", fields[0]),
                    );
                }
            }
        }
        if is_empty {
            self.add(path, "it has no data, such as userData: …");
        }
    }
}

/// Line breaks in it are allowed.
fn is_base64(text: &str) -> bool {
    STANDARD.decode(text.replace(['\r', '\n'], "")).is_ok()
}
