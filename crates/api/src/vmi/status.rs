//! `status`: what the cluster has found out about the VMI.

use std::collections::BTreeMap;

use super::cpu::CpuTopology;
use super::{Quantity, Text};
use crate::api;

api! {
/// VirtualMachineInstanceStatus.
VirtualMachineInstanceStatus {
    "nodeName" node_name: Text,
    "reason" reason: Text,
    "phase" phase: Text,
    "phaseTransitionTimestamps" phase_transition_timestamps: Vec<VirtualMachineInstancePhaseTransitionTimestamp>,
    "interfaces" interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    "guestOSInfo" guest_os_info: VirtualMachineInstanceGuestOsInfo,
    "migrationState" migration_state: Option<VirtualMachineInstanceMigrationState>,
    "migrationMethod" migration_method: Text,
    "migrationTransport" migration_transport: Text,
    "launcherContainerImageVersion" launcher_container_image_version: Text,
    "evacuationNodeName" evacuation_node_name: Text,
    "volumeStatus" volume_status: Vec<VolumeStatus>,
    "kernelBootStatus" kernel_boot_status: Option<KernelBootStatus>,
    "fsFreezeStatus" fs_freeze_status: Text,
    "topologyHints" topology_hints: Option<TopologyHints>,
    "virtualMachineRevisionName" virtual_machine_revision_name: Text,
    "runtimeUser" runtime_user: u64,
    "VSOCKCID" vsockcid: Option<u32>,
    "selinuxContext" selinux_context: Text,
    "machine" machine: Option<Machine>,
    "currentCPUTopology" current_cpu_topology: Option<CpuTopology>,
    "memory" memory: Option<MemoryStatus>,
    "migratedVolumes" migrated_volumes: Vec<StorageMigratedVolumeInfo>,
    "changedBlockTracking" changed_block_tracking: Option<ChangedBlockTrackingStatus>,
}
/// `phaseTransitionTimestamps` of `VirtualMachineInstanceStatus`.
VirtualMachineInstancePhaseTransitionTimestamp {
    "phase" phase: Text,
    "phaseTransitionTimestamp" phase_transition_timestamp: Text,
}
/// `interfaces` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceNetworkInterface {
    "ipAddress" ip_address: Text,
    "mac" mac: Text,
    "name" name: Text,
    "ipAddresses" ip_addresses: Vec<Text>,
    "podInterfaceName" pod_interface_name: Text,
    "interfaceName" interface_name: Text,
    "infoSource" info_source: Text,
    "queueCount" queue_count: i32,
    "linkState" link_state: Text,
}
/// `guestOSInfo` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceGuestOsInfo {
    "name" name: Text,
    "kernelRelease" kernel_release: Text,
    "version" version: Text,
    "prettyName" pretty_name: Text,
    "versionId" version_id: Text,
    "kernelVersion" kernel_version: Text,
    "machine" machine: Text,
    "id" id: Text,
}
/// `migrationState` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceMigrationState {
    "startTimestamp" start_timestamp: Option<Text>,
    "endTimestamp" end_timestamp: Option<Text>,
    "targetNodeDomainReadyTimestamp" target_node_domain_ready_timestamp: Option<Text>,
    "targetNodeDomainDetected" target_node_domain_detected: bool,
    "targetNodeAddress" target_node_address: Text,
    "targetDirectMigrationNodePorts" target_direct_migration_node_ports: BTreeMap<Text, i64>,
    "targetNode" target_node: Text,
    "targetPod" target_pod: Text,
    "targetAttachmentPodUID" target_attachment_pod_uid: Text,
    "sourceNode" source_node: Text,
    "sourcePod" source_pod: Text,
    "completed" completed: bool,
    "failed" failed: bool,
    "abortRequested" abort_requested: bool,
    "abortStatus" abort_status: Text,
    "failureReason" failure_reason: Text,
    "migrationUid" migration_uid: Text,
    "mode" mode: Text,
    "migrationPolicyName" migration_policy_name: Option<Text>,
    "migrationConfiguration" migration_configuration: Option<VmimConfigurationOptions>,
    "targetCPUSet" target_cpu_set: Vec<i64>,
    "targetNodeTopology" target_node_topology: Text,
    "sourcePersistentStatePVCName" source_persistent_state_pvc_name: Text,
    "targetPersistentStatePVCName" target_persistent_state_pvc_name: Text,
    "sourceState" source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    "targetState" target_state: Option<VirtualMachineInstanceMigrationTargetState>,
    "migrationNetworkType" migration_network_type: Text,
    "targetMemoryOverhead" target_memory_overhead: Option<Quantity>,
}
/// `volumeStatus` of `VirtualMachineInstanceStatus`.
#[derive(serde::Serialize)]
VolumeStatus {
    "name" name: Text,
    "target" target: Text,
    "phase" phase: Text,
    "reason" reason: Text,
    "message" message: Text,
    "persistentVolumeClaimInfo" persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
    "hotplugVolume" hotplug_volume: Option<HotplugVolumeStatus>,
    "size" size: i64,
    "memoryDumpVolume" memory_dump_volume: Option<DomainMemoryDumpInfo>,
    "containerDiskVolume" container_disk_volume: Option<ContainerDiskInfo>,
}
/// `kernelBootStatus` of `VirtualMachineInstanceStatus`.
KernelBootStatus {
    "kernelInfo" kernel_info: Option<KernelInfo>,
    "initrdInfo" initrd_info: Option<InitrdInfo>,
}
/// `topologyHints` of `VirtualMachineInstanceStatus`.
TopologyHints {
    "tscFrequency" tsc_frequency: Option<i64>,
}
/// `machine`, in several places.
Machine {
    "type" r#type: Text,
}
/// `memory` of `VirtualMachineInstanceStatus`.
MemoryStatus {
    "guestAtBoot" guest_at_boot: Option<Quantity>,
    "guestCurrent" guest_current: Option<Quantity>,
    "guestRequested" guest_requested: Option<Quantity>,
    "memoryOverhead" memory_overhead: Option<Quantity>,
}
/// `migratedVolumes` of `VirtualMachineInstanceStatus`.
StorageMigratedVolumeInfo {
    "volumeName" volume_name: Text,
    "sourcePVCInfo" source_pvc_info: Option<PersistentVolumeClaimInfo>,
    "destinationPVCInfo" destination_pvc_info: Option<PersistentVolumeClaimInfo>,
}
/// `changedBlockTracking` of `VirtualMachineInstanceStatus`.
ChangedBlockTrackingStatus {
    "state" state: Text,
    "backupStatus" backup_status: Option<VirtualMachineInstanceBackupStatus>,
}
/// `migrationConfiguration` of `VirtualMachineInstanceMigrationState`.
VmimConfigurationOptions {
    "nodeDrainTaintKey" node_drain_taint_key: Option<Text>,
    "parallelOutboundMigrationsPerNode" parallel_outbound_migrations_per_node: Option<u32>,
    "parallelMigrationsPerCluster" parallel_migrations_per_cluster: Option<u32>,
    "allowAutoConverge" allow_auto_converge: Option<bool>,
    "bandwidthPerMigration" bandwidth_per_migration: Option<Quantity>,
    "completionTimeoutPerGiB" completion_timeout_per_gi_b: Option<i64>,
    "maxDowntimeMs" max_downtime_ms: Option<u64>,
    "progressTimeout" progress_timeout: Option<i64>,
    "utilityVolumesTimeout" utility_volumes_timeout: Option<i64>,
    "unsafeMigrationOverride" unsafe_migration_override: Option<bool>,
    "allowPostCopy" allow_post_copy: Option<bool>,
    "allowWorkloadDisruption" allow_workload_disruption: Option<bool>,
    "disableTLS" disable_tls: Option<bool>,
    "network" network: Option<Text>,
    "matchSELinuxLevelOnMigration" match_se_linux_level_on_migration: Option<bool>,
    "experimental" experimental: Option<ExperimentalMigrationOptions>,
}
/// `sourceState` of `VirtualMachineInstanceMigrationState`.
VirtualMachineInstanceMigrationSourceState {
    "node" node: Text,
    "pod" pod: Text,
    "migrationUID" migration_uid: Text,
    "domainName" domain_name: Option<Text>,
    "domainNamespace" domain_namespace: Option<Text>,
    "syncAddress" sync_address: Option<Text>,
    "persistentStatePVCName" persistent_state_pvc_name: Option<Text>,
    "selinuxContext" selinux_context: Text,
    "virtualMachineInstanceUID" virtual_machine_instance_uid: Option<Text>,
    "nodeSelectors" node_selectors: BTreeMap<Text, Text>,
}
/// `targetState` of `VirtualMachineInstanceMigrationState`.
VirtualMachineInstanceMigrationTargetState {
    "node" node: Text,
    "pod" pod: Text,
    "migrationUID" migration_uid: Text,
    "domainName" domain_name: Option<Text>,
    "domainNamespace" domain_namespace: Option<Text>,
    "syncAddress" sync_address: Option<Text>,
    "persistentStatePVCName" persistent_state_pvc_name: Option<Text>,
    "selinuxContext" selinux_context: Text,
    "virtualMachineInstanceUID" virtual_machine_instance_uid: Option<Text>,
    "domainReadyTimestamp" domain_ready_timestamp: Option<Text>,
    "domainDetected" domain_detected: bool,
    "nodeAddress" node_address: Option<Text>,
    "directMigrationNodePorts" direct_migration_node_ports: BTreeMap<Text, i64>,
    "attachmentPodUID" attachment_pod_uid: Option<Text>,
    "cpuSet" cpu_set: Vec<i64>,
    "nodeTopology" node_topology: Option<Text>,
}
/// `persistentVolumeClaimInfo`, in several places.
#[derive(serde::Serialize)]
PersistentVolumeClaimInfo {
    "claimName" claim_name: Text,
    "accessModes" access_modes: Vec<Text>,
    "volumeMode" volume_mode: Option<Text>,
    "capacity" capacity: BTreeMap<Text, Quantity>,
    "requests" requests: BTreeMap<Text, Quantity>,
    "preallocated" preallocated: bool,
    "filesystemOverhead" filesystem_overhead: Option<Text>,
}
/// `hotplugVolume` of `VolumeStatus`.
#[derive(serde::Serialize)]
HotplugVolumeStatus {
    "attachPodName" attach_pod_name: Text,
    "attachPodUID" attach_pod_uid: Text,
}
/// `memoryDumpVolume` of `VolumeStatus`.
#[derive(serde::Serialize)]
DomainMemoryDumpInfo {
    "startTimestamp" start_timestamp: Option<Text>,
    "endTimestamp" end_timestamp: Option<Text>,
    "claimName" claim_name: Text,
    "targetFileName" target_file_name: Text,
}
/// `containerDiskVolume` of `VolumeStatus`.
#[derive(serde::Serialize)]
ContainerDiskInfo {
    "checksum" checksum: u32,
}
/// `kernelInfo` of `KernelBootStatus`.
KernelInfo {
    "checksum" checksum: u32,
}
/// `initrdInfo` of `KernelBootStatus`.
InitrdInfo {
    "checksum" checksum: u32,
}
/// `backupStatus` of `ChangedBlockTrackingStatus`.
VirtualMachineInstanceBackupStatus {
    "backupName" backup_name: Text,
    "startTimestamp" start_timestamp: Option<Text>,
    "endTimestamp" end_timestamp: Option<Text>,
    "completed" completed: bool,
    "failed" failed: bool,
    "backupMsg" backup_msg: Option<Text>,
    "checkpointName" checkpoint_name: Option<Text>,
    "quiesceStatus" quiesce_status: Text,
}
/// `experimental` of `VmimConfigurationOptions`.
ExperimentalMigrationOptions {
    "stallDetector" stall_detector: Option<StallDetectorOptions>,
    "compression" compression: Option<Text>,
}
/// `stallDetector` of `ExperimentalMigrationOptions`.
StallDetectorOptions {
    "stallMargin" stall_margin: Option<i64>,
    "ewmaAlpha" ewma_alpha: Option<Text>,
    "stallProgressTimeout" stall_progress_timeout: Option<u64>,
    "switchoverTimeout" switchover_timeout: Option<u64>,
    "precopyPossibleFactor" precopy_possible_factor: Option<Text>,
    "patienceWindowDecayFactor" patience_window_decay_factor: Option<Text>,
    "searchLocalMinima" search_local_minima: Option<bool>,
    "completionTimeoutFactor" completion_timeout_factor: Option<Text>,
}
}
