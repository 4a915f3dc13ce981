//! `spec.volumes`: where the data of disks comes from.

use super::{Quantity, Text};
use crate::api;

api! {
/// `volumes` of `VirtualMachineInstanceSpec`.
Volume {
    "name" name: Text,
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
    "memoryDump" memory_dump: Option<MemoryDumpVolumeSource>,
    "containerPath" container_path: Option<ContainerPathVolumeSource>,
}
/// `utilityVolumes` of `VirtualMachineInstanceSpec`.
UtilityVolume {
    "name" name: Text,
    "claimName" claim_name: Text,
    "readOnly" read_only: bool,
    "type" r#type: Option<Text>,
}
/// `hostDisk` of `Volume`.
HostDisk {
    "path" path: Text,
    "type" r#type: Text,
    "capacity" capacity: Quantity,
    "shared" shared: Option<bool>,
}
/// `persistentVolumeClaim`, in several places.
PersistentVolumeClaimVolumeSource {
    "claimName" claim_name: Text,
    "readOnly" read_only: bool,
    "hotpluggable" hotpluggable: bool,
}
/// `cloudInitNoCloud` of `Volume`.
CloudInitNoCloudSource {
    "secretRef" secret_ref: Option<LocalObjectReference>,
    "userDataBase64" user_data_base64: Text,
    "userData" user_data: Text,
    "networkDataSecretRef" network_data_secret_ref: Option<LocalObjectReference>,
    "networkDataBase64" network_data_base64: Text,
    "networkData" network_data: Text,
}
/// `cloudInitConfigDrive` of `Volume`.
CloudInitConfigDriveSource {
    "secretRef" secret_ref: Option<LocalObjectReference>,
    "userDataBase64" user_data_base64: Text,
    "userData" user_data: Text,
    "networkDataSecretRef" network_data_secret_ref: Option<LocalObjectReference>,
    "networkDataBase64" network_data_base64: Text,
    "networkData" network_data: Text,
}
/// `sysprep` of `Volume`.
SysprepSource {
    "secret" secret: Option<LocalObjectReference>,
    "configMap" config_map: Option<LocalObjectReference>,
}
/// `containerDisk` of `Volume`.
ContainerDiskSource {
    "image" image: Text,
    "imagePullSecret" image_pull_secret: Text,
    "path" path: Text,
    "imagePullPolicy" image_pull_policy: Text,
}
/// `ephemeral` of `Volume`.
EphemeralVolumeSource {
    "persistentVolumeClaim" persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
}
/// `emptyDisk` of `Volume`.
EmptyDiskSource {
    "capacity" capacity: Quantity,
}
/// `dataVolume` of `Volume`.
DataVolumeSource {
    "name" name: Text,
    "hotpluggable" hotpluggable: bool,
}
/// `configMap` of `Volume`.
ConfigMapVolumeSource {
    "name" name: Text,
    "optional" optional: Option<bool>,
    "volumeLabel" volume_label: Text,
}
/// `secret` of `Volume`.
SecretVolumeSource {
    "secretName" secret_name: Text,
    "optional" optional: Option<bool>,
    "volumeLabel" volume_label: Text,
}
/// `downwardAPI` of `Volume`.
DownwardApiVolumeSource {
    "volumeLabel" volume_label: Text,
}
/// `serviceAccount` of `Volume`.
ServiceAccountVolumeSource {
    "serviceAccountName" service_account_name: Text,
}
/// `downwardMetrics` of `Volume`.
DownwardMetricsVolumeSource {
}
/// `memoryDump` of `Volume`.
MemoryDumpVolumeSource {
    "claimName" claim_name: Text,
    "readOnly" read_only: bool,
    "hotpluggable" hotpluggable: bool,
}
/// `containerPath` of `Volume`.
ContainerPathVolumeSource {
    "path" path: Text,
    "readOnly" read_only: Option<bool>,
}
/// `secretRef`, in several places.
LocalObjectReference {
    "name" name: Text,
}
}
