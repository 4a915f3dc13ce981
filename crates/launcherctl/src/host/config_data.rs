//! Puts a VM's ConfigMaps and Secrets where a pod has them mounted; they come from other documents
//! in its file, or from directories.

use std::collections::BTreeMap;
use std::fs;

use clap::Args;
use serde_json::Value;

use super::sidecar_program::{SidecarProgram, config_map_dir};
use super::vm_dir::VmDir;
use crate::error::{CtlError, TextError, text_error};
use crate::json::is_object_at;
use crate::manifest::Manifest;
use crate::manifest::cluster_only::FILLED_BY_CLUSTER;
use crate::manifest::config_data::{
    ConfigData, ConfigKind, Files, NamedPath, Reference, of_document, of_path, references, write,
};
use api::pod_paths::{
    CONFIG_MAP_DIR, DOWNWARD_API_DIR, SECRET_DIR, SERVICE_ACCOUNT_DIR, SYSPREP_DIR,
};

/// Options of `run` with ConfigMaps and Secrets.
#[derive(Debug, Args)]
pub struct ConfigDataArgs {
    /// The files of a directory (or one file) are the ConfigMap NAME
    #[arg(long = "config-map", value_name = "NAME=DIR")]
    config_maps: Vec<NamedPath>,
    /// The files of a directory (or one file) are the Secret NAME
    #[arg(long = "secret", value_name = "NAME=DIR")]
    secrets: Vec<NamedPath>,
}

impl ConfigDataArgs {
    fn given(&self) -> impl Iterator<Item = (ConfigKind, &NamedPath)> {
        let config_maps = self
            .config_maps
            .iter()
            .map(|it| (ConfigKind::ConfigMap, it));
        config_maps.chain(self.secrets.iter().map(|it| (ConfigKind::Secret, it)))
    }
}

/// Puts those that the VMI and its sidecars refer to where the launcher expects them. Returns all
/// problems: what is missing or unreadable.
pub fn place(
    manifest: &Manifest,
    args: &ConfigDataArgs,
    sidecars: &[SidecarProgram],
    dir: &VmDir,
) -> Vec<CtlError> {
    let data = match collect(manifest.others(), Some(args)) {
        Ok(data) => data,
        Err(error) => return vec![error],
    };
    let mut references = references(manifest.value());
    references.extend(of_sidecars(sidecars));
    let mut errors = only_in_a_cluster(manifest, dir);
    let (places, missing) = by_place(&references, &data);
    errors.extend(missing);
    let mut errors: Vec<CtlError> = errors.into_iter().map(CtlError::from).collect();
    for (place, files) in places {
        let written = write(&dir.path(place), &files);
        errors.extend(written.err().map(CtlError::from));
    }
    errors
}

/// Writes the ConfigMaps and Secrets among a file's documents to where a launcher reads them. One
/// that the VMI refers to and the file lacks is no error.
///
/// # Errors
/// A document has wrong data, or they cannot be written.
pub fn place_of_file(vmi: &Value, documents: &[Value], dir: &VmDir) -> Result<(), CtlError> {
    let references = references(vmi);
    let data = collect(documents, None)?;
    for (place, files) in by_place(&references, &data).0 {
        write(&dir.path(place), &files)?;
    }
    Ok(())
}

/// The files of each place below the VM's root, and what is missing.
fn by_place<'a>(
    references: &'a [Reference<'_>],
    data: &ConfigData,
) -> (BTreeMap<&'a str, Files>, Vec<TextError>) {
    let mut places: BTreeMap<&str, Files> = BTreeMap::new();
    let mut missing = Vec::new();
    for reference in references {
        match reference.files(data) {
            Ok(files) => places.entry(&reference.place).or_default().extend(files),
            Err(error) => missing.push(text_error!("{error}")),
        }
    }
    (places, missing)
}

/// Options take precedence over documents.
fn collect(documents: &[Value], args: Option<&ConfigDataArgs>) -> Result<ConfigData, CtlError> {
    let mut data = ConfigData::new();
    for document in documents {
        data.extend(of_document(document)?);
    }
    for (kind, given) in args.into_iter().flat_map(ConfigDataArgs::given) {
        let files = of_path(kind, given).map_err(|error| {
            let (option, path) = (kind.option(), given.path.display());
            error.in_option(format!("--{option} {}={path}", given.name))
        })?;
        data.insert((kind, given.name.clone()), files);
    }
    Ok(data)
}

/// The ConfigMaps with sidecars' scripts.
fn of_sidecars(sidecars: &[SidecarProgram]) -> impl Iterator<Item = Reference<'_>> {
    sidecars.iter().enumerate().filter_map(|(number, sidecar)| {
        let (name, key) = sidecar.config_map.as_ref()?;
        Some(Reference {
            field: format!("hook sidecar {number}"),
            kind: ConfigKind::ConfigMap,
            name,
            is_optional: false,
            keys: vec![key],
            place: config_map_dir(number),
        })
    })
}

/// The problems of volumes that a cluster fills.
fn only_in_a_cluster(manifest: &Manifest, dir: &VmDir) -> Vec<TextError> {
    let mut errors = Vec::new();
    for (index, (name, volume)) in manifest.volumes().enumerate() {
        let downward_api = format!("{DOWNWARD_API_DIR}/{name}");
        let directories = [SERVICE_ACCOUNT_DIR, &downward_api];
        for ((source, what), directory) in FILLED_BY_CLUSTER.iter().zip(directories) {
            // The user may have filled a directory of --root.
            if is_object_at(volume, &format!("/{source}")) && !dir.path(directory).exists() {
                errors.push(text_error!(
                    "spec.volumes[{index}].{source}: only a cluster has {what}; take this volume and its disk out of the manifest"
                ));
            }
        }
    }
    errors
}

/// Copies the ConfigMaps and Secrets to the VM's launcher in another directory.
///
/// # Errors
/// They cannot be copied.
pub fn copy(source: &VmDir, target: &VmDir) -> Result<(), CtlError> {
    for directory in [CONFIG_MAP_DIR, SECRET_DIR, SYSPREP_DIR] {
        // Missing if the VM has none.
        let Ok(volumes) = fs::read_dir(source.path(directory)) else {
            continue;
        };
        for volume in volumes.flatten().filter(|volume| volume.path().is_dir()) {
            let given = NamedPath {
                name: volume.file_name().to_string_lossy().into_owned(),
                path: volume.path(),
            };
            // A ConfigMap's keys have the same rules.
            let files = of_path(ConfigKind::Secret, &given)?;
            write(&target.path(directory).join(&given.name), &files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::Path;

    const FILE: &str = "
kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain: {memory: {guest: 64Mi}}
  accessCredentials:
  - sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {noCloud: {}}}
  volumes:
  - {name: app, configMap: {name: settings}}
  - {name: extra, configMap: {name: none, optional: true}}
  - {name: tls, secret: {secretName: cert}}
  - {name: seed, cloudInitNoCloud: {secretRef: {name: cloud}}}
---
kind: ConfigMap
metadata: {name: settings}
data: {mode: fast}
binaryData: {bytes: AAE=}
---
kind: Secret
metadata: {name: keys}
stringData: {key1: ssh-ed25519 AAAA}
---
kind: Secret
metadata: {name: cloud}
data: {userdata: I2Nsb3VkLWNvbmZpZwo=, other: eA==}
";

    fn args(cert: &Path) -> ConfigDataArgs {
        ConfigDataArgs {
            config_maps: Vec::new(),
            secrets: vec![format!("cert={}", cert.display()).parse().unwrap()],
        }
    }

    fn refusal(file: &str) -> String {
        let root = tempfile::tempdir().unwrap();
        let cert = tempfile::tempdir().unwrap();
        let manifest = Manifest::parse(file).unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let errors = place(&manifest, &args(cert.path()), &[], &dir);
        let errors: Vec<String> = errors.iter().map(CtlError::chain).collect();
        errors.join("\n")
    }

    #[test]
    fn what_the_vmi_refers_to_is_where_a_pod_has_it() {
        let (root, cert) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(cert.path().join("tls.crt"), "CERT").unwrap();
        fs::create_dir(cert.path().join("..data")).unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let manifest = Manifest::parse(FILE).unwrap();
        for _ in 0..2 {
            assert!(place(&manifest, &args(cert.path()), &[], &dir).is_empty());
        }
        let read = |path: &str| fs::read(dir.path("/var/run/kubevirt-private").join(path)).unwrap();
        assert_eq!(read("config-map/app/mode"), b"fast");
        assert_eq!(read("config-map/app/bytes"), [0, 1]);
        assert_eq!(read("secret/tls/tls.crt"), b"CERT");
        assert_eq!(read("secret/keys-access-cred/key1"), b"ssh-ed25519 AAAA");
        assert_eq!(read("secret/seed/userdata"), b"#cloud-config\n");
        let private = dir.path("/var/run/kubevirt-private");
        assert!(!private.join("secret/seed/other").exists());
        assert!(private.join("config-map/extra").is_dir());
    }

    #[test]
    fn user_data_and_network_data_come_from_two_secrets() {
        let (root, cert) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = VmDir::at(root.path().to_owned());
        let file = FILE.replace(
            "secretRef: {name: cloud}",
            "secretRef: {name: cloud}, networkDataSecretRef: {name: net}",
        );
        let file = format!(
            "{file}---\nkind: Secret\nmetadata: {{name: net}}\nstringData: {{networkdata: eth0}}\n"
        );
        let manifest = Manifest::parse(&file).unwrap();
        assert!(place(&manifest, &args(cert.path()), &[], &dir).is_empty());
        let seed = dir.path(&format!("{SECRET_DIR}/seed"));
        assert_eq!(fs::read(seed.join("userdata")).unwrap(), b"#cloud-config\n");
        assert_eq!(fs::read(seed.join("networkdata")).unwrap(), b"eth0");
    }

    #[test]
    fn an_unreadable_file_is_named() {
        let (root, cert) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = VmDir::at(root.path().to_owned());
        let manifest = Manifest::parse(FILE).unwrap();
        let mut args = args(cert.path());
        args.secrets.push("foo=/nonexistent".parse().unwrap());
        let errors = place(&manifest, &args, &[], &dir);
        let expected = "--secret foo=/nonexistent: cannot read /nonexistent: ";
        assert!(errors[0].chain().starts_with(expected), "{errors:?}");
    }

    #[test]
    fn what_only_a_cluster_has_is_named_beside_what_is_missing() {
        let file = FILE.replace(
            "configMap: {name: none, optional: true}",
            "serviceAccount: {serviceAccountName: a}",
        );
        let errors = refusal(file.split("---").next().unwrap());
        let starts = [
            "spec.volumes[0].configMap.name: ",
            "spec.volumes[1].serviceAccount: only a cluster has",
        ];
        for start in starts {
            assert!(
                errors.lines().any(|line| line.starts_with(start)),
                "{errors}"
            );
        }
    }

    #[test]
    fn what_is_missing_says_how_to_give_it() {
        let error = refusal(&FILE.replace("{name: settings}\ndata", "{name: other}\ndata"));
        assert_eq!(
            error,
            "spec.volumes[0].configMap.name: there is no ConfigMap \"settings\"; put it beside the VM in its file, or give its files with --config-map settings=DIR"
        );
        let without_documents = FILE.split("---").next().unwrap();
        let errors = refusal(without_documents);
        assert!(
            errors.lines().count() > 2 && errors.contains("Secret \"cloud\""),
            "{errors}"
        );
        let error = refusal(&FILE.replace("userdata:", "data:"));
        assert!(
            error.contains("does not have the key userdata or userData"),
            "{error}"
        );
    }

    #[test]
    fn hostile_and_wrong_values_are_refused_by_name() {
        for (from, to, expected) in [
            ("mode: fast", "../mode: fast", "invalid key \"../mode\""),
            ("mode: fast", "mode: 3", "\"mode\" is not text"),
            ("AAE=", "'@'", "\"bytes\" is not valid Base64"),
        ] {
            let error = refusal(&FILE.replace(from, to));
            assert!(error.contains(expected), "{error}");
        }
    }
}
