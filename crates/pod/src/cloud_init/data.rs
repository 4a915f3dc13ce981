//! Cloud-init data on its way from the VMI to the image. Sidecars see and may change it as JSON
//! (PreCloudInitIso), with the names of KubeVirt's Go structures.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use api::vmi::null_is_default;

/// Which data source of cloud-init the image is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DataSource {
    /// <https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html>
    #[default]
    #[serde(rename = "noCloud")]
    NoCloud,
    /// <https://cloudinit.readthedocs.io/en/latest/reference/datasources/configdrive.html>
    #[serde(rename = "configDrive")]
    ConfigDrive,
}

/// Cloud-init data of a VMI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct CloudInitData {
    pub data_source: DataSource,
    /// `meta-data` for NoCloud.
    pub no_cloud_meta_data: Option<NoCloudMetadata>,
    /// `meta_data.json` for ConfigDrive.
    pub config_drive_meta_data: Option<ConfigDriveMetadata>,
    #[serde(deserialize_with = "null_is_default")]
    pub user_data: CloudData,
    /// Network data; empty: none.
    #[serde(deserialize_with = "null_is_default")]
    pub network_data: CloudData,
    /// Tagged devices of the guest, for ConfigDrive.
    pub devices_data: Option<Vec<DeviceData>>,
    /// The volume that the data are for.
    #[serde(deserialize_with = "null_is_default")]
    pub volume_name: String,
}

impl CloudInitData {
    /// Whether JSON may have lost bytes of the user or network data.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        [&self.user_data, &self.network_data]
            .into_iter()
            .any(|data| data.text().contains(char::REPLACEMENT_CHARACTER))
    }

    /// Takes the bytes of `given` where the text has not been changed.
    // D-hook-12 (docs/differences.md).
    pub fn restore(&mut self, given: Self) {
        for (data, given) in [
            (&mut self.user_data, given.user_data),
            (&mut self.network_data, given.network_data),
        ] {
            if data.text() == given.text() {
                *data = given;
            }
        }
    }
}

/// User or network data. User data need not be text: cloud-init takes it compressed. JSON replaces
/// bytes that are not UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CloudData(pub Vec<u8>);

impl CloudData {
    /// Whether there are no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<&str> for CloudData {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl Serialize for CloudData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for CloudData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.into_bytes()))
    }
}

/// Metadata in NoCloud's spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct NoCloudMetadata {
    /// Name of the VM's instance type.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub instance_type: String,
    /// A guest with a new instance id runs its first-boot steps again.
    #[serde(deserialize_with = "null_is_default")]
    pub instance_id: String,
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub local_hostname: String,
    /// SSH keys of the default user, numbered from 0.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub public_keys: BTreeMap<String, String>,
}

/// Metadata in OpenStack's spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigDriveMetadata {
    /// Name of the VM's instance type.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub instance_type: String,
    /// `<name>.<namespace>`.
    #[serde(deserialize_with = "null_is_default")]
    pub instance_id: String,
    /// Host name for the metadata service; not set by the launcher.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub local_hostname: String,
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub hostname: String,
    /// UUID of the machine.
    #[serde(
        skip_serializing_if = "String::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub uuid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<DeviceData>>,
    /// SSH keys of the default user, numbered from 0.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub public_keys: BTreeMap<String, String>,
}

/// A tagged device: how the guest finds the device that the user means.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceData {
    /// `nic` or `hostdev`.
    #[serde(rename = "type")]
    pub r#type: String,
    /// Such as `pci`.
    pub bus: String,
    /// Address in the guest, such as `0000:01:00.0`.
    pub address: String,
    /// MAC address of a network card.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Serial number of a disk.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// NUMA node of the device.
    #[serde(rename = "numaNode", skip_serializing_if = "is_zero")]
    pub numa_node: u32,
    /// vCPUs near the device.
    #[serde(
        rename = "alignedCPUs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_is_default"
    )]
    pub aligned_cpus: Vec<u32>,
    /// The user's tags.
    #[serde(deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidecars_see_go_names() {
        let data = CloudInitData {
            no_cloud_meta_data: Some(NoCloudMetadata {
                instance_id: "i".into(),
                local_hostname: "h".into(),
                ..Default::default()
            }),
            user_data: "#cloud-config".into(),
            volume_name: "v".into(),
            ..CloudInitData::default()
        };
        let json = serde_json::to_string(&data).unwrap();
        assert_eq!(
            json,
            r##"{"DataSource":"noCloud","NoCloudMetaData":{"instance-id":"i","local-hostname":"h"},"ConfigDriveMetaData":null,"UserData":"#cloud-config","NetworkData":"","DevicesData":null,"VolumeName":"v"}"##
        );
        assert_eq!(serde_json::from_str::<CloudInitData>(&json).unwrap(), data);
    }

    #[test]
    // D-hook-12 (docs/differences.md).
    fn what_is_no_text_gets_its_bytes_back_unless_it_was_changed() {
        let given = CloudInitData {
            user_data: CloudData(b"\x1f\x8b\x08".to_vec()),
            network_data: CloudData(vec![0xff]),
            ..CloudInitData::default()
        };
        let mut data: CloudInitData =
            serde_json::from_value(serde_json::to_value(&given).unwrap()).unwrap();
        assert!(data.is_lossy() && data != given);
        data.restore(given.clone());
        assert_eq!(data, given);
        data.user_data = "#cloud-config".into();
        data.restore(given);
        assert_eq!(data.user_data, "#cloud-config".into());
    }

    #[test]
    fn what_a_sidecar_leaves_out_or_nulls_is_absent() {
        let data: CloudInitData =
            serde_json::from_str(r#"{"DataSource":"configDrive","UserData":null,"ConfigDriveMetaData":{"public_keys":null},"More":1}"#)
                .unwrap();
        assert_eq!(data.data_source, DataSource::ConfigDrive);
        assert_eq!(
            data.config_drive_meta_data,
            Some(ConfigDriveMetadata::default())
        );
        assert!(serde_json::from_str::<CloudInitData>(r#"{"DataSource":"floppy"}"#).is_err());
    }
}
