//! `status`: the cluster's view of the VMI.

use super::Quantity;
use super::migration::{StorageMigratedVolumeInfo, VirtualMachineInstanceMigrationState};
use super::volumes::PersistentVolumeClaimInfo;
use crate::api;

api! {
VirtualMachineInstanceStatus {
    "phase" phase: String,
    "conditions" conditions: Vec<VirtualMachineInstanceCondition>,
    "interfaces" interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    "volumeStatus" volume_status: Vec<VolumeStatus>,
    "topologyHints" topology_hints: Option<TopologyHints>,
    "runtimeUser" runtime_user: u64,
    "VSOCKCID" vsockcid: Option<u32>,
    "changedBlockTracking" changed_block_tracking: Option<ChangedBlockTrackingStatus>,
    "memory" memory: Option<MemoryStatus>,
    "machine" machine: Option<Machine>,
    "migrationState" migration_state: Option<VirtualMachineInstanceMigrationState>,
    "migrationMethod" migration_method: String,
    /// `Unix`, or empty: a source that reaches the target by TCP.
    "migrationTransport" migration_transport: String,
    "migratedVolumes" migrated_volumes: Vec<StorageMigratedVolumeInfo>,
}
/// `conditions` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceCondition {
    "type" r#type: String,
    "status" status: String,
    "reason" reason: String,
}
/// `memory` of `VirtualMachineInstanceStatus`.
MemoryStatus {
    "guestAtBoot" guest_at_boot: Option<Quantity>,
}
/// `interfaces` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceNetworkInterface {
    "name" name: String,
    "podInterfaceName" pod_interface_name: String,
    "infoSource" info_source: String,
}
/// `volumeStatus` of `VirtualMachineInstanceStatus`.
#[derive(serde::Serialize)]
VolumeStatus {
    "name" name: String,
    "target" target: String,
    "phase" phase: String,
    "persistentVolumeClaimInfo" persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
    "hotplugVolume" hotplug_volume: Option<HotplugVolumeStatus>,
    "size" size: i64,
}
/// `topologyHints` of `VirtualMachineInstanceStatus`.
TopologyHints {
    "tscFrequency" tsc_frequency: Option<i64>,
}
/// `machine`, in several places.
Machine {
    "type" r#type: String,
}
/// `changedBlockTracking` of `VirtualMachineInstanceStatus`.
ChangedBlockTrackingStatus {
    "state" state: String,
    "backupStatus" backup_status: Option<VirtualMachineInstanceBackupStatus>,
}
/// `backupStatus` of `ChangedBlockTrackingStatus`: the backup that is in progress.
VirtualMachineInstanceBackupStatus {
    "backupName" backup_name: String,
}
/// `hotplugVolume` of `VolumeStatus`.
#[derive(serde::Serialize)]
HotplugVolumeStatus {
}
}
