//! The ConfigMaps and Secrets that a VMI refers to.

use serde_json::Value;

use super::{ConfigData, ConfigKind, Files};
use crate::json::{is_true_at, list_at, text_at};
use crate::manifest::error::FieldError;
use api::pod_paths::{CONFIG_MAP_DIR, SECRET_DIR, SYSPREP_DIR};

/// The references of a cloud-init volume to Secrets, and the key that each needs, in two spellings.
const CLOUD_INIT_KEYS: [(&str, &[&str]); 2] = [
    ("secretRef", &["userdata", "userData"]),
    ("networkDataSecretRef", &["networkdata", "networkData"]),
];

/// The ACPI tables of the firmware: the field that names the Secret's volume, and the key.
const ACPI_TABLES: [(&str, &str); 2] = [("slicNameRef", "slic.bin"), ("msdmNameRef", "msdm.bin")];

/// A reference of the VMI to a ConfigMap or Secret.
pub struct Reference<'a> {
    /// The VMI's field.
    pub field: String,
    pub kind: ConfigKind,
    pub name: &'a str,
    /// Whether it may be missing.
    pub is_optional: bool,
    /// The files that count: of these keys; all if empty.
    pub keys: Vec<&'a str>,
    /// Where the launcher expects the files, below the VM's root.
    pub place: String,
}

impl Reference<'_> {
    /// The files that the VMI refers to.
    ///
    /// # Errors
    /// The ConfigMap or Secret is missing, or lacks the key.
    pub fn files(&self, data: &ConfigData) -> Result<Files, FieldError> {
        let (kind, name) = (self.kind, self.name);
        let error = |message| FieldError::new(self.field.clone(), message);
        let Some(files) = data.get(&(kind, name.to_owned())) else {
            if self.is_optional {
                return Ok(Files::new());
            }
            return Err(error(format!(
                "there is no {kind} {name:?}; put it beside the VM in its file, or give its files with --{} {name}=DIR",
                kind.option()
            )));
        };
        let files = self.that_count(files.clone());
        if files.is_empty() && !self.keys.is_empty() {
            let keys = self.keys.join(" or ");
            return Err(error(format!(
                "the {kind} {name:?} does not have the key {keys}"
            )));
        }
        let is_answer = |key: &String| {
            pod::ANSWER_FILES
                .iter()
                .any(|it| key.eq_ignore_ascii_case(it))
        };
        if self.place.starts_with(SYSPREP_DIR) && !files.keys().any(is_answer) {
            return Err(error(format!(
                "the {kind} {name:?} does not have the key {}",
                pod::ANSWER_FILES.join(" or ")
            )));
        }
        Ok(files)
    }

    /// The files without those whose keys the VMI does not read.
    pub fn that_count(&self, mut files: Files) -> Files {
        files.retain(|key, _| self.keys.is_empty() || self.keys.contains(&key.as_str()));
        files
    }
}

/// The keys that the firmware reads of a volume.
fn table_keys(vmi: &Value, volume: &str) -> Vec<&'static str> {
    let named = |field| text_at(vmi, &format!("/spec/domain/firmware/acpi/{field}"));
    let tables = ACPI_TABLES
        .iter()
        .filter(|(field, _)| named(field) == volume);
    tables.map(|(_, key)| *key).collect()
}

/// What the VMI refers to.
pub fn references(vmi: &Value) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    for (index, volume) in list_at(vmi, "/spec/volumes").iter().enumerate() {
        let (field, volume_name) = (format!("spec.volumes[{index}]"), text_at(volume, "/name"));
        for (source, key, kind, directory) in [
            ("configMap", "name", ConfigKind::ConfigMap, CONFIG_MAP_DIR),
            ("secret", "secretName", ConfigKind::Secret, SECRET_DIR),
            (
                "sysprep/configMap",
                "name",
                ConfigKind::ConfigMap,
                SYSPREP_DIR,
            ),
            ("sysprep/secret", "name", ConfigKind::Secret, SYSPREP_DIR),
        ] {
            found.push(Reference {
                field: format!("{field}.{}.{key}", source.replace('/', ".")),
                kind,
                name: text_at(volume, &format!("/{source}/{key}")),
                is_optional: is_true_at(volume, &format!("/{source}/optional")),
                keys: match source {
                    "secret" => table_keys(vmi, volume_name),
                    _ => Vec::new(),
                },
                place: format!("{directory}/{volume_name}"),
            });
        }
        for source in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
            for (reference, keys) in CLOUD_INIT_KEYS {
                found.push(Reference {
                    field: format!("{field}.{source}.{reference}"),
                    kind: ConfigKind::Secret,
                    name: text_at(volume, &format!("/{source}/{reference}/name")),
                    is_optional: false,
                    keys: keys.to_vec(),
                    place: format!("{SECRET_DIR}/{volume_name}"),
                });
            }
        }
    }
    let credentials = list_at(vmi, "/spec/accessCredentials").iter();
    for (index, credential) in credentials.enumerate() {
        for kind in ["sshPublicKey", "userPassword"] {
            let secret = text_at(credential, &format!("/{kind}/source/secret/secretName"));
            found.push(Reference {
                field: format!("spec.accessCredentials[{index}].{kind}"),
                kind: ConfigKind::Secret,
                name: secret,
                is_optional: false,
                keys: Vec::new(),
                place: format!("{SECRET_DIR}/{secret}-access-cred"),
            });
        }
    }
    found.retain(|reference| !reference.name.is_empty());
    found
}
