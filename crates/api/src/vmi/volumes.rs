//! `spec.volumes`: where the data of disks comes from.

use std::collections::BTreeMap;

use super::{Quantity, QuantityError};
use crate::api;

api! {
/// `volumes` of `VirtualMachineInstanceSpec`.
Volume {
    "name" name: String,
    "hostDisk" host_disk: Option<HostDisk>,
    "persistentVolumeClaim" persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    "cloudInitNoCloud" cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
    "cloudInitConfigDrive" cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
    "sysprep" sysprep: Option<SysprepSource>,
    "containerDisk" container_disk: Option<ContainerDiskSource>,
    "ephemeral" ephemeral: Option<EphemeralVolumeSource>,
    "emptyDisk" empty_disk: Option<EmptyDiskSource>,
    "dataVolume" data_volume: Option<DataVolumeSource>,
    "configMap" config_map: Option<ConfigMapVolumeSource>,
    "secret" secret: Option<SecretVolumeSource>,
    "downwardAPI" downward_api: Option<DownwardApiVolumeSource>,
    "serviceAccount" service_account: Option<ServiceAccountVolumeSource>,
    "downwardMetrics" downward_metrics: Option<DownwardMetricsVolumeSource>,
}
/// `persistentVolumeClaimInfo`, in several places.
#[derive(serde::Serialize)]
PersistentVolumeClaimInfo {
    "capacity" capacity: BTreeMap<String, Quantity>,
    "requests" requests: BTreeMap<String, Quantity>,
    "filesystemOverhead" filesystem_overhead: Option<String>,
    #[serde(skip_serializing)]
    "volumeMode" volume_mode: Option<String>,
}
/// `hostDisk` of `Volume`.
HostDisk {
    "path" path: String,
    "type" r#type: String,
    "capacity" capacity: Quantity,
    "shared" shared: Option<bool>,
}
/// `persistentVolumeClaim`, in several places.
PersistentVolumeClaimVolumeSource {
    "hotpluggable" hotpluggable: bool,
}
/// `cloudInitNoCloud` of `Volume`.
CloudInitNoCloudSource {
    "secretRef" secret_ref: Option<LocalObjectReference>,
    "userDataBase64" user_data_base64: String,
    "userData" user_data: String,
    "networkDataSecretRef" network_data_secret_ref: Option<LocalObjectReference>,
    "networkDataBase64" network_data_base64: String,
    "networkData" network_data: String,
}
/// `cloudInitConfigDrive` of `Volume`.
CloudInitConfigDriveSource {
    "secretRef" secret_ref: Option<LocalObjectReference>,
    "userDataBase64" user_data_base64: String,
    "userData" user_data: String,
    "networkDataSecretRef" network_data_secret_ref: Option<LocalObjectReference>,
    "networkDataBase64" network_data_base64: String,
    "networkData" network_data: String,
}
/// `sysprep` of `Volume`.
SysprepSource {
    "secret" secret: Option<LocalObjectReference>,
    "configMap" config_map: Option<LocalObjectReference>,
}
/// `containerDisk` of `Volume`.
ContainerDiskSource {
    "image" image: String,
    "path" path: String,
}
/// `ephemeral` of `Volume`.
EphemeralVolumeSource {
}
/// `emptyDisk` of `Volume`.
EmptyDiskSource {
    "capacity" capacity: Quantity,
}
/// `dataVolume` of `Volume`.
DataVolumeSource {
    "hotpluggable" hotpluggable: bool,
}
/// `configMap` of `Volume`.
ConfigMapVolumeSource {
    "volumeLabel" volume_label: String,
}
/// `secret` of `Volume`.
SecretVolumeSource {
    "volumeLabel" volume_label: String,
}
/// `downwardAPI` of `Volume`.
DownwardApiVolumeSource {
    "volumeLabel" volume_label: String,
}
/// `serviceAccount` of `Volume`.
ServiceAccountVolumeSource {
}
/// `downwardMetrics` of `Volume`.
DownwardMetricsVolumeSource {
}
/// `secretRef`, in several places.
LocalObjectReference {
    "name" name: String,
}
}

/// The one field of a [`Volume`] that says where its data comes from.
#[derive(Debug, Clone, Copy)]
pub enum VolumeSource<'v> {
    ContainerDisk(&'v ContainerDiskSource),
    CloudInitNoCloud(&'v CloudInitNoCloudSource),
    CloudInitConfigDrive(&'v CloudInitConfigDriveSource),
    Sysprep(&'v SysprepSource),
    HostDisk(&'v HostDisk),
    PersistentVolumeClaim(&'v PersistentVolumeClaimVolumeSource),
    DataVolume(&'v DataVolumeSource),
    Ephemeral(&'v EphemeralVolumeSource),
    EmptyDisk(&'v EmptyDiskSource),
    ConfigMap(&'v ConfigMapVolumeSource),
    Secret(&'v SecretVolumeSource),
    DownwardApi(&'v DownwardApiVolumeSource),
    ServiceAccount(&'v ServiceAccountVolumeSource),
    DownwardMetrics(&'v DownwardMetricsVolumeSource),
}

impl Volume {
    /// The first in KubeVirt's order if several are set, which its webhook does not allow.
    #[must_use]
    pub fn source(&self) -> Option<VolumeSource<'_>> {
        use VolumeSource as S;
        let sources = [
            self.container_disk.as_ref().map(S::ContainerDisk),
            self.cloud_init_no_cloud.as_ref().map(S::CloudInitNoCloud),
            self.cloud_init_config_drive
                .as_ref()
                .map(S::CloudInitConfigDrive),
            self.sysprep.as_ref().map(S::Sysprep),
            self.host_disk.as_ref().map(S::HostDisk),
            self.persistent_volume_claim
                .as_ref()
                .map(S::PersistentVolumeClaim),
            self.data_volume.as_ref().map(S::DataVolume),
            self.ephemeral.as_ref().map(S::Ephemeral),
            self.empty_disk.as_ref().map(S::EmptyDisk),
            self.config_map.as_ref().map(S::ConfigMap),
            self.secret.as_ref().map(S::Secret),
            self.downward_api.as_ref().map(S::DownwardApi),
            self.service_account.as_ref().map(S::ServiceAccount),
            self.downward_metrics.as_ref().map(S::DownwardMetrics),
        ];
        sources.into_iter().flatten().next()
    }
}

impl PersistentVolumeClaimInfo {
    /// The size for the guest: the claim's capacity or its request, whichever is smaller; `None`
    /// without both.
    ///
    /// # Errors
    /// One of them is no quantity; the error names its list.
    pub fn size(&self) -> Result<Option<i64>, (&'static str, QuantityError)> {
        let size = |list, sizes: &BTreeMap<String, Quantity>| {
            let size = sizes.get("storage").map(Quantity::as_integer).transpose();
            size.map(Option::flatten).map_err(|error| (list, error))
        };
        let sizes = size("capacity", &self.capacity)?.zip(size("requests", &self.requests)?);
        Ok(sizes.map(|(capacity, request)| capacity.min(request)))
    }
}
