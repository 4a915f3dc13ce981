//! Reading cloud-init data from the VMI and the secrets that it refers to.

use std::collections::BTreeMap;

use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine, alphabet};

use super::super::access_credentials::read_secret;
use super::super::error::unusable;
use super::super::safe_path::{Dir, optional};
use super::super::{LauncherFlags, PodError};
use super::data::{CloudData, CloudInitData, ConfigDriveMetadata, DataSource, NoCloudMetadata};
use api::pod_paths;
use api::vmi::Vmi;
use api::vmi::access_credentials::SshPublicKeyAccessCredential;
use api::vmi::volumes::{
    CloudInitConfigDriveSource, CloudInitNoCloudSource, LocalObjectReference, VolumeSource,
};

/// Kubernetes keeps secrets below 1 MiB.
const LARGEST: u64 = 4 << 20;
/// Longest DNS label.
const LONGEST_HOST_NAME: usize = 63;

/// The cloud-init data of the VMI's first cloud-init volume; `None` if it has none.
///
/// # Errors
/// A secret that the VMI refers to is not there, Base64 is not valid, or there is no data at all.
pub fn cloud_init(flags: &LauncherFlags, vmi: &Vmi) -> Result<Option<CloudInitData>, PodError> {
    let sources = vmi
        .spec
        .volumes
        .iter()
        .find_map(|volume| Some((volume, Source::of_volume(volume)?)));
    let Some((volume, source)) = sources else {
        return Ok(None);
    };
    read(flags, vmi, &volume.name, &source)
        .map(Some)
        .map_err(PodError::of(&volume.name))
}

/// A cloud-init volume. Both kinds have the same members.
struct Source<'v> {
    kind: DataSource,
    user: Given<'v>,
    network: Given<'v>,
}

/// Three ways to give a text.
struct Given<'v> {
    plain: &'v str,
    base64: &'v str,
    secret: Option<&'v LocalObjectReference>,
    /// Names that the secret's key may have.
    keys: [&'static str; 2],
    what: &'static str,
}

macro_rules! source {
    ($kind:expr, $volume:expr) => {
        Self {
            kind: $kind,
            user: Given {
                plain: &$volume.user_data,
                base64: &$volume.user_data_base64,
                secret: $volume.secret_ref.as_ref(),
                keys: ["userdata", "userData"],
                what: "userDataBase64",
            },
            network: Given {
                plain: &$volume.network_data,
                base64: &$volume.network_data_base64,
                secret: $volume.network_data_secret_ref.as_ref(),
                keys: ["networkdata", "networkData"],
                what: "networkDataBase64",
            },
        }
    };
}

impl<'v> Source<'v> {
    fn of_volume(volume: &'v api::vmi::volumes::Volume) -> Option<Self> {
        match volume.source()? {
            VolumeSource::CloudInitNoCloud(source) => Some(Self::no_cloud(source)),
            VolumeSource::CloudInitConfigDrive(source) => Some(Self::config_drive(source)),
            _ => None,
        }
    }

    fn no_cloud(volume: &'v CloudInitNoCloudSource) -> Self {
        source!(DataSource::NoCloud, volume)
    }

    fn config_drive(volume: &'v CloudInitConfigDriveSource) -> Self {
        source!(DataSource::ConfigDrive, volume)
    }
}

fn read(
    flags: &LauncherFlags,
    vmi: &Vmi,
    volume: &str,
    source: &Source<'_>,
) -> Result<CloudInitData, PodError> {
    let keys = ssh_keys(flags, vmi, source.kind)?;
    let user = given_data(flags, volume, &source.user);
    let network = given_data(flags, volume, &source.network);
    // The user data or the network data are enough if the other's secret is not there.
    let (user_data, network_data) = match (user, network) {
        (Ok(user), Ok(network)) => (user, network),
        (Ok(user), Err(e)) if !user.is_empty() && e.is_not_found() => (user, CloudData::default()),
        (Err(e), Ok(network)) if !network.is_empty() && e.is_not_found() => {
            (CloudData::default(), network)
        }
        (Err(e), _) | (_, Err(e)) => return Err(e),
    };
    if user_data.is_empty() && network_data.is_empty() {
        return Err(unusable!(
            "userDataBase64, userData, networkDataBase64 or networkData is required for a cloud-init data source"
        ));
    }
    let mut data = CloudInitData {
        data_source: source.kind,
        user_data,
        network_data,
        volume_name: volume.to_owned(),
        ..CloudInitData::default()
    };
    fill_in_metadata(vmi, keys, &mut data);
    Ok(data)
}

/// The metadata of the VMI (`instance-id`, `local-hostname`), in the spelling of the data source.
pub(super) fn fill_in_metadata(
    vmi: &Vmi,
    keys: BTreeMap<String, String>,
    data: &mut CloudInitData,
) {
    let metadata = &vmi.metadata;
    match data.data_source {
        DataSource::NoCloud => {
            data.no_cloud_meta_data = Some(NoCloudMetadata {
                instance_type: instance_type(vmi),
                instance_id: machine_id(vmi),
                local_hostname: host_name(vmi).to_owned(),
                public_keys: keys,
            });
        }
        DataSource::ConfigDrive => {
            data.config_drive_meta_data = Some(ConfigDriveMetadata {
                instance_type: instance_type(vmi),
                instance_id: format!("{}.{}", metadata.name, metadata.namespace),
                hostname: host_name(vmi).to_owned(),
                uuid: machine_id(vmi),
                public_keys: keys,
                ..ConfigDriveMetadata::default()
            });
        }
    }
}

/// Cluster-wide instance types come before the namespace's.
pub(super) fn instance_type(vmi: &Vmi) -> String {
    let named = |annotation: &str| {
        vmi.metadata
            .annotations
            .get(annotation)
            .filter(|name| !name.is_empty())
    };
    let name = named("kubevirt.io/cluster-instancetype-name")
        .or_else(|| named("kubevirt.io/instancetype-name"));
    name.map(|name| name.as_str().to_owned())
        .unwrap_or_default()
}

/// The machine's UUID. The API server always sets one. A VMI that comes another way gets an id that
/// is the same at its next start, so that the guest does not take itself for a new machine.
// D-disk-20 (docs/differences.md).
pub(super) fn machine_id(vmi: &Vmi) -> String {
    let metadata = &vmi.metadata;
    let uuid = vmi
        .spec
        .domain
        .firmware
        .as_ref()
        .map(|firmware| firmware.uuid.as_str())
        .unwrap_or_default();
    match [uuid, metadata.uid.as_str()]
        .into_iter()
        .find(|id| !id.is_empty())
    {
        Some(id) => id.to_owned(),
        None => format!("{}.{}", metadata.name, metadata.namespace),
    }
}

fn host_name(vmi: &Vmi) -> &str {
    if !vmi.spec.hostname.is_empty() {
        return &vmi.spec.hostname;
    }
    let name = vmi.metadata.name.split('.').next().unwrap_or_default();
    name.char_indices()
        .nth(LONGEST_HOST_NAME)
        .and_then(|(end, _)| name.get(..end))
        .unwrap_or(name)
}

fn given_data(
    flags: &LauncherFlags,
    volume: &str,
    given: &Given<'_>,
) -> Result<CloudData, PodError> {
    if let Some(secret) = given.secret {
        let has_other = !given.plain.is_empty() || !given.base64.is_empty();
        match secret_data(flags, volume, &secret.name, given) {
            Ok(data) if !data.is_empty() => return Ok(data),
            Err(e) if !has_other || !e.is_not_found() => return Err(e),
            Ok(_) | Err(_) => {}
        }
    }
    if !given.plain.is_empty() {
        return Ok(given.plain.into());
    }
    let field = given.what;
    decode_base64(given.base64)
        .map(CloudData)
        .map_err(|error| unusable!("{field}: it is not Base64: {error}"))
}

/// The secret's key, mounted at `secret/<volume>/`.
fn secret_data(
    flags: &LauncherFlags,
    volume: &str,
    secret: &str,
    given: &Given<'_>,
) -> Result<CloudData, PodError> {
    let place = format!("{}/{volume}", pod_paths::SECRET_DIR);
    let dir = optional(Dir::of_pod(&flags.root, &place))?;
    for key in given.keys {
        let Some(dir) = &dir else { break };
        match optional(dir.find_within(key)) {
            Ok(Some(file)) => return file.content(LARGEST).map(CloudData),
            // The pod mounts both keys. For a key that the secret lacks, the kubelet makes an empty
            // directory.
            Ok(None) | Err(PodError::Hostile { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let missing = std::io::Error::new(
        std::io::ErrorKind::NotFound,
        format!(
            "the secret {secret:?} has neither the key {:?} nor {:?}, or is not mounted",
            given.keys[0], given.keys[1]
        ),
    );
    let place = flags.root.path(place);
    Err(PodError::io("find the data of cloud-init in", place)(
        missing,
    ))
}

/// SSH keys (`public-keys`) that are to be propagated the given way, numbered from 0.
fn ssh_keys(
    flags: &LauncherFlags,
    vmi: &Vmi,
    kind: DataSource,
) -> Result<BTreeMap<String, String>, PodError> {
    let is_wanted = |key: &&SshPublicKeyAccessCredential| match kind {
        DataSource::NoCloud => key.propagation_method.no_cloud.is_some(),
        DataSource::ConfigDrive => key.propagation_method.config_drive.is_some(),
    };
    let mut keys = BTreeMap::new();
    for credential in vmi
        .spec
        .access_credentials
        .iter()
        .filter_map(|credential| credential.ssh_public_key.as_ref())
        .filter(is_wanted)
    {
        let Some(secret) = credential
            .source
            .secret
            .as_ref()
            .filter(|secret| !secret.secret_name.is_empty())
        else {
            continue;
        };
        for key in read_secret(flags, secret)?.into_values() {
            if !key.is_empty() {
                keys.insert(keys.len().to_string(), key);
            }
        }
    }
    Ok(keys)
}

/// Decodes Base64 as Go does: with padding, line breaks are ignored, and bits behind the last byte
/// too.
fn decode_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    const CONFIG: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    const GO: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    GO.decode(text.replace(['\r', '\n'], ""))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::super::Root;
    use super::*;

    #[test]
    fn base64_is_decoded_as_in_go() {
        let accepted: [(&str, &[u8]); 6] = [
            ("", b""),
            ("Zg==", b"f"),
            ("Zh==", b"f"),
            ("Zm9v", b"foo"),
            ("Zm9v\nYm\r\nFy\n", b"foobar"),
            ("+/8=", &[0xfb, 0xff]),
        ];
        for (text, bytes) in accepted {
            assert_eq!(decode_base64(text).as_deref(), Ok(bytes), "{text}");
        }
        for text in ["Z", "Zg", "Zg=", "====", "Zg=a", "Z-==", "Zm 9v"] {
            assert!(decode_base64(text).is_err(), "{text}");
        }
    }

    struct Pod(tempfile::TempDir);

    impl Pod {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.secret(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn secret(&self, path: &str) -> std::path::PathBuf {
            let secrets = self.0.path().join("var/run/kubevirt-private/secret");
            secrets.join(path)
        }

        /// A pod with directories of these names, which the kubelet makes for keys that a secret
        /// lacks.
        fn with_directories(names: &[&str]) -> Self {
            let pod = Self::new();
            for name in names {
                fs::create_dir_all(pod.secret("ci").join(name)).unwrap();
            }
            pod
        }

        /// The data of a `NoCloud` source.
        fn data(&self, source: &str) -> CloudInitData {
            self.read(&no_cloud(source)).unwrap().unwrap()
        }

        #[track_caller]
        fn refuses(&self, source: &str, why: &str) {
            let error = self.read(&no_cloud(source)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }

        fn read(&self, spec: &str) -> Result<Option<CloudInitData>, String> {
            let metadata = r#"{"name":"web.example","namespace":"shop","annotations":{"kubevirt.io/instancetype-name":"small"}}"#;
            let vmi = format!(r#"{{"metadata":{metadata},"spec":{spec}}}"#);
            let flags = LauncherFlags {
                root: Root::new(self.0.path()),
                ..LauncherFlags::default()
            };
            cloud_init(&flags, &serde_json::from_str(&vmi).unwrap())
                .map_err(|error| os::logging::chain(&error))
        }
    }

    fn no_cloud(source: &str) -> String {
        format!(
            r#"{{"domain":{{"firmware":{{"uuid":"u-1"}}}},"volumes":[{{"name":"ci","cloudInitNoCloud":{source}}}]}}"#
        )
    }

    #[test]
    fn a_vmi_without_a_volume_has_no_data() {
        assert_eq!(Pod::new().read("{}"), Ok(None));
    }

    #[test]
    fn no_cloud_has_its_metadata() {
        let data = Pod::new()
            .read(&no_cloud(
                r##"{"userData":"#cloud-config","networkDataBase64":"bmV0"}"##,
            ))
            .unwrap()
            .unwrap();
        assert_eq!(data.user_data, "#cloud-config".into());
        assert_eq!(data.network_data, "net".into());
        assert_eq!(data.volume_name, "ci");
        let expected = r#"{"instance-type":"small","instance-id":"u-1","local-hostname":"web"}"#;
        let metadata = serde_json::to_string(&data.no_cloud_meta_data).unwrap();
        assert_eq!(metadata, expected);
    }

    #[test]
    fn config_drive_has_its_metadata() {
        let spec = r#"{"hostname":"db","volumes":[{"name":"ci","cloudInitConfigDrive":{"userDataBase64":"dXNlcg=="}}]}"#;
        let data = Pod::new().read(spec).unwrap().unwrap();
        let expected = r#"{"instance_type":"small","instance_id":"web.example.shop","hostname":"db","uuid":"web.example.shop"}"#;
        let metadata = serde_json::to_string(&data.config_drive_meta_data).unwrap();
        assert_eq!(metadata, expected);
        assert_eq!(data.user_data, "user".into());
    }

    #[test]
    fn secrets_replace_what_is_in_the_vmi() {
        let pod = Pod::new();
        pod.write("ci/userData", "from the secret");
        let data = pod.data(r#"{"secretRef":{"name":"s"},"userData":"plain"}"#);
        assert_eq!(data.user_data, "from the secret".into());
    }

    /// The pod's template mounts both keys of a secret, and the kubelet makes a directory for the
    /// one that is not there.
    #[test]
    fn a_key_that_the_secret_lacks_is_a_directory_in_a_pod() {
        let secrets = |inline: &str| {
            format!(
                r#"{{"secretRef":{{"name":"s"}},"networkDataSecretRef":{{"name":"n"}}{inline}}}"#
            )
        };
        let data = |pod: &Pod, inline: &str| {
            let data = pod.data(&secrets(inline));
            let text = |data: CloudData| data.text().into_owned();
            (text(data.user_data), text(data.network_data))
        };
        let pod = Pod::with_directories(&["userdata", "networkData"]);
        pod.write("ci/userData", "user");
        pod.write("ci/networkdata", "net");
        assert_eq!(data(&pod, ""), ("user".into(), "net".into()));
        // Only one of the two is given.
        let pod = Pod::with_directories(&["userdata", "userData", "networkdata"]);
        pod.write("ci/networkData", "net");
        assert_eq!(data(&pod, ""), (String::new(), "net".into()));
        let inline = data(&pod, r#","userData":"plain""#);
        assert_eq!(inline, ("plain".into(), "net".into()));
        let none = ["userdata", "userData", "networkdata", "networkData"];
        Pod::with_directories(&none).refuses(&secrets(""), "has neither the key");
    }

    #[test]
    fn a_secret_that_is_not_there_is_named() {
        let why = "the secret \"s\" has neither the key \"userdata\" nor \"userData\"";
        Pod::new().refuses(r#"{"secretRef":{"name":"s"}}"#, why);
        let pod = Pod::new();
        pod.write("ci/userdata", "user");
        let both = pod.data(r#"{"secretRef":{"name":"s"},"networkDataSecretRef":{"name":"n"}}"#);
        assert_eq!(
            (&*both.user_data.text(), &*both.network_data.text()),
            ("user", ""),
            "one of two is enough"
        );
    }

    #[test]
    fn what_the_vmi_says_itself_does_for_a_secret_that_is_not_there() {
        let data = Pod::new().data(r#"{"secretRef":{"name":"s"},"userData":"plain"}"#);
        assert_eq!(data.user_data, "plain".into());
    }

    #[test]
    fn user_data_may_be_compressed() {
        let data = Pod::new().data(r#"{"userDataBase64":"H4sIAAA="}"#);
        assert_eq!(data.user_data.0, b"\x1f\x8b\x08\0\0");
        let pod = Pod::new();
        pod.write("ci/userdata", "");
        fs::write(pod.secret("ci/userdata"), b"\x1f\x8b\x08\xff").unwrap();
        let data = pod.data(r#"{"secretRef":{"name":"s"}}"#);
        assert_eq!(data.user_data.0, b"\x1f\x8b\x08\xff");
    }

    #[test]
    fn a_secret_cannot_lead_out_of_its_directory() {
        let pod = Pod::new();
        pod.write("ci/x", "");
        fs::write(pod.0.path().join("token"), "launcher's own").unwrap();
        let link = pod.secret("ci/userdata");
        std::os::unix::fs::symlink("../../../../../token", link).unwrap();
        pod.refuses(r#"{"secretRef":{"name":"s"}}"#, "neither the key");
    }

    #[test]
    fn ssh_keys_come_from_all_matching_secrets() {
        let pod = Pod::new();
        for (file, key) in [
            ("a-access-cred/one", "key 1"),
            ("a-access-cred/two", "key 2"),
            ("b-access-cred/x", "key 3"),
            ("c-access-cred/x", "no"),
        ] {
            pod.write(file, key);
        }
        pod.write("a-access-cred/..2026/one", "hidden");
        let credential = |secret: &str, method: &str| {
            format!(
                r#"{{"sshPublicKey":{{"source":{{"secret":{{"secretName":"{secret}"}}}},"propagationMethod":{{"{method}":{{}}}}}}}}"#
            )
        };
        let credentials = [
            credential("a", "noCloud"),
            credential("c", "configDrive"),
            credential("b", "noCloud"),
        ]
        .join(",");
        let spec = format!(
            r#"{{"accessCredentials":[{credentials}],"volumes":[{{"name":"ci","cloudInitNoCloud":{{"userData":"x"}}}}]}}"#
        );
        let data = pod.read(&spec).unwrap().unwrap();
        let keys = data.no_cloud_meta_data.unwrap().public_keys;
        let keys: Vec<(&str, &str)> = keys
            .iter()
            .map(|(number, key)| (number.as_str(), key.as_str()))
            .collect();
        assert_eq!(keys, [("0", "key 1"), ("1", "key 2"), ("2", "key 3")]);
    }

    #[test]
    fn bad_data_is_refused() {
        Pod::new().refuses("{}", "is required for a cloud-init data source");
        let wrong = r#"{"userDataBase64":"!"}"#;
        Pod::new().refuses(wrong, "userDataBase64: it is not Base64");
    }
}
