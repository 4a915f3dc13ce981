//! Puts a VM's ConfigMaps and Secrets where a pod has them mounted; they come from other documents
//! in its file, or from directories.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use clap::Args;
use serde_json::Value;

use super::registry::VmDir;
use crate::error::{CtlError, fail, text_error};
use crate::json::{copy_at, is_object_at, list_at, text_at};
use crate::manifest::Manifest;
use crate::manifest::config_data::{Files, Kind, NamedPath, of_document, of_path, write};
use crate::similar::known_names;
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

/// All given ConfigMaps and Secrets.
#[derive(Debug)]
struct ConfigData {
    files: BTreeMap<(Kind, String), Files>,
    /// Those that the VMI refers to, as looked up so far.
    used: RefCell<BTreeSet<(Kind, String)>>,
}

/// Puts those that the VMI refers to where the launcher expects them.
///
/// # Errors
/// All that are missing, unreadable, or unused.
pub fn place(manifest: &Manifest, args: &ConfigDataArgs, dir: &VmDir) -> Result<(), Vec<CtlError>> {
    let data = ConfigData::collect(manifest.others(), args).map_err(|error| vec![error])?;
    let mut errors = Vec::new();
    for (index, volume) in list_at(manifest.value(), "/spec/volumes")
        .iter()
        .enumerate()
    {
        let field = format!("spec.volumes[{index}]");
        errors.extend(data.place_volume(&field, volume, dir).err());
        errors.extend(data.place_cloud_init(&field, volume, dir));
    }
    let credentials = list_at(manifest.value(), "/spec/accessCredentials");
    for (index, credential) in credentials.iter().enumerate() {
        for kind in ["sshPublicKey", "userPassword"] {
            let secret = text_at(credential, &format!("/{kind}/source/secret/secretName"));
            if !secret.is_empty() {
                let field = format!("spec.accessCredentials[{index}].{kind}");
                let place = dir.path(&format!("{SECRET_DIR}/{secret}-access-cred"));
                let files = data.find(&field, Kind::Secret, secret);
                errors.extend(files.and_then(|files| Ok(write(&place, files)?)).err());
            }
        }
    }
    errors.extend(data.unused(args));
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

impl ConfigData {
    /// Options take precedence over documents.
    fn collect(documents: &[Value], args: &ConfigDataArgs) -> Result<Self, CtlError> {
        let mut all = BTreeMap::new();
        for document in documents {
            let Some(kind) = Kind::of_document(document) else {
                continue;
            };
            let name = text_at(document, "/metadata/name").to_owned();
            let files = of_document(kind, &name, document)?;
            all.insert((kind, name), files);
        }
        for (kind, paths) in [
            (Kind::ConfigMap, &args.config_maps),
            (Kind::Secret, &args.secrets),
        ] {
            for given in paths {
                let files = of_path(kind, given).map_err(|error| {
                    let (option, path) = (kind.option(), given.path.display());
                    error.in_option(format!("--{option} {}={path}", given.name))
                })?;
                all.insert((kind, given.name.clone()), files);
            }
        }
        Ok(Self {
            files: all,
            used: RefCell::default(),
        })
    }

    /// Options that the VMI does not use.
    fn unused(&self, args: &ConfigDataArgs) -> Vec<CtlError> {
        let used = self.used.borrow();
        let config_maps = args
            .config_maps
            .iter()
            .map(|it| (Kind::ConfigMap, &it.name));
        let secrets = args.secrets.iter().map(|it| (Kind::Secret, &it.name));
        config_maps
            .chain(secrets)
            .filter(|(kind, name)| !used.contains(&(*kind, (*name).clone())))
            .map(|(kind, name)| {
                let names = used.iter().filter(|(other, _)| *other == kind);
                let names = known_names(name, names.map(|(_, name)| name.as_str()));
                let option = kind.option();
                text_error!(
                    "--{option} {name}: the VMI refers to no {kind} {name:?}; it refers to {names}"
                )
                .into()
            })
            .collect()
    }

    fn find(&self, field: &str, kind: Kind, name: &str) -> Result<&Files, CtlError> {
        self.used.borrow_mut().insert((kind, name.to_owned()));
        match self.files.get(&(kind, name.to_owned())) {
            Some(files) => Ok(files),
            None => fail!(
                "{field}: there is no {kind} {name:?}; put it beside the VM in its file, or give its files with --{} {name}=DIR",
                kind.option()
            ),
        }
    }

    fn place_volume(&self, field: &str, volume: &Value, dir: &VmDir) -> Result<(), CtlError> {
        let name = text_at(volume, "/name");
        let downward_api = format!("{DOWNWARD_API_DIR}/{name}");
        for (source, what, directory) in [
            ("serviceAccount", "service accounts", SERVICE_ACCOUNT_DIR),
            ("downwardAPI", "a downward API", &downward_api),
        ] {
            // The user may have filled a directory of --root.
            if is_object_at(volume, &format!("/{source}")) && !dir.path(directory).exists() {
                fail!(
                    "{field}.{source}: only a cluster has {what}; take this volume and its disk out of the manifest"
                );
            }
        }
        for (pointer, kind, directory) in [
            ("/configMap/name", Kind::ConfigMap, CONFIG_MAP_DIR),
            ("/secret/secretName", Kind::Secret, SECRET_DIR),
            ("/sysprep/configMap/name", Kind::ConfigMap, SYSPREP_DIR),
            ("/sysprep/secret/name", Kind::Secret, SYSPREP_DIR),
        ] {
            let source = text_at(volume, pointer);
            if source.is_empty() {
                continue;
            }
            let optional = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
            let is_optional = copy_at(volume, &format!("{optional}/optional")) == true;
            let field = format!("{field}{}", pointer.replace('/', "."));
            let empty = Files::new();
            let files = match self.find(&field, kind, source) {
                Err(_) if is_optional => &empty,
                found => found?,
            };
            write(&dir.path(&format!("{directory}/{name}")), files)?;
        }
        Ok(())
    }

    /// Places the data of a cloud-init volume. Returns what is missing.
    fn place_cloud_init(&self, field: &str, volume: &Value, dir: &VmDir) -> Vec<CtlError> {
        let (mut files, mut errors) = (Files::new(), Vec::new());
        for source in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
            for (reference, keys) in [
                ("secretRef", ["userdata", "userData"]),
                ("networkDataSecretRef", ["networkdata", "networkData"]),
            ] {
                let secret = text_at(volume, &format!("/{source}/{reference}/name"));
                if secret.is_empty() {
                    continue;
                }
                let field = format!("{field}.{source}.{reference}");
                match self.cloud_init_keys(&field, secret, keys) {
                    Ok(wanted) => files.extend(wanted),
                    Err(error) => errors.push(error),
                }
            }
        }
        if !files.is_empty() {
            let place = format!("{SECRET_DIR}/{}", text_at(volume, "/name"));
            errors.extend(write(&dir.path(&place), &files).map_err(Into::into).err());
        }
        errors
    }

    /// The files of a Secret under one of the two keys.
    fn cloud_init_keys(
        &self,
        field: &str,
        secret: &str,
        keys: [&str; 2],
    ) -> Result<Files, CtlError> {
        let files = self.find(field, Kind::Secret, secret)?.iter();
        let wanted = files.filter(|(key, _)| keys.contains(&key.as_str()));
        let wanted: Files = wanted
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if wanted.is_empty() {
            let [key, other] = keys;
            fail!("{field}: the Secret {secret:?} has neither the key {key} nor {other}");
        }
        Ok(wanted)
    }
}

/// Copies the ConfigMaps and Secrets to the VM's launcher in another directory.
///
/// # Errors
/// They cannot be copied.
pub fn copy(source: &VmDir, target: &VmDir) -> Result<(), CtlError> {
    for (directory, kind) in [
        (CONFIG_MAP_DIR, Kind::ConfigMap),
        (SECRET_DIR, Kind::Secret),
        (SYSPREP_DIR, Kind::Secret),
    ] {
        // Missing if the VM has none.
        let Ok(volumes) = fs::read_dir(source.path(directory)) else {
            continue;
        };
        for volume in volumes.flatten().filter(|volume| volume.path().is_dir()) {
            let given = NamedPath {
                name: volume.file_name().to_string_lossy().into_owned(),
                path: volume.path(),
            };
            let files = of_path(kind, &given)?;
            write(&target.path(directory).join(&given.name), &files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        let errors = place(&manifest, &args(cert.path()), &dir).unwrap_err();
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
            place(&manifest, &args(cert.path()), &dir).unwrap();
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
        place(&Manifest::parse(&file).unwrap(), &args(cert.path()), &dir).unwrap();
        let seed = dir.path(&format!("{SECRET_DIR}/seed"));
        assert_eq!(fs::read(seed.join("userdata")).unwrap(), b"#cloud-config\n");
        assert_eq!(fs::read(seed.join("networkdata")).unwrap(), b"eth0");
    }

    #[test]
    fn an_option_that_nothing_refers_to_is_named() {
        let (root, cert) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = VmDir::at(root.path().to_owned());
        let manifest = Manifest::parse(FILE).unwrap();
        let mut args = args(cert.path());
        place(&manifest, &args, &dir).unwrap();
        let misspelt = format!("setings={}", cert.path().display());
        args.config_maps.push(misspelt.parse().unwrap());
        args.secrets.push("foo=/nonexistent".parse().unwrap());
        let errors = place(&manifest, &args, &dir).unwrap_err();
        assert!(
            (errors[0].chain())
                .starts_with("--secret foo=/nonexistent: cannot read /nonexistent: "),
            "{errors:?}"
        );
        let _ = args.secrets.pop();
        let errors = place(&manifest, &args, &dir).unwrap_err();
        let errors: Vec<String> = errors.iter().map(CtlError::chain).collect();
        assert_eq!(
            errors,
            [
                "--config-map setings: the VMI refers to no ConfigMap \"setings\"; it refers to none, settings; did you mean settings?"
            ]
        );
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
            error.contains("neither the key userdata nor userData"),
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
