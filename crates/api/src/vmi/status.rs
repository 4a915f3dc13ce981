//! `status`: what the cluster has found out about the VMI.

use std::collections::BTreeMap;

use super::Quantity;
use super::cpu::CpuTopology;
use crate::api;

api! {
/// VirtualMachineInstanceStatus.
VirtualMachineInstanceStatus {
    "nodeName" node_name: String,
    "reason" reason: String,
    "phase" phase: String,
    "phaseTransitionTimestamps" phase_transition_timestamps: Vec<VirtualMachineInstancePhaseTransitionTimestamp>,
    "interfaces" interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    "guestOSInfo" guest_os_info: VirtualMachineInstanceGuestOsInfo,
    "migrationState" migration_state: Option<VirtualMachineInstanceMigrationState>,
    "migrationMethod" migration_method: String,
    "migrationTransport" migration_transport: String,
    "launcherContainerImageVersion" launcher_container_image_version: String,
    "evacuationNodeName" evacuation_node_name: String,
    "volumeStatus" volume_status: Vec<VolumeStatus>,
    "kernelBootStatus" kernel_boot_status: Option<KernelBootStatus>,
    "fsFreezeStatus" fs_freeze_status: String,
    "topologyHints" topology_hints: Option<TopologyHints>,
    "virtualMachineRevisionName" virtual_machine_revision_name: String,
    "runtimeUser" runtime_user: u64,
    "VSOCKCID" vsockcid: Option<u32>,
    "selinuxContext" selinux_context: String,
    "machine" machine: Option<Machine>,
    "currentCPUTopology" current_cpu_topology: Option<CpuTopology>,
    "memory" memory: Option<MemoryStatus>,
    "migratedVolumes" migrated_volumes: Vec<StorageMigratedVolumeInfo>,
    "changedBlockTracking" changed_block_tracking: Option<ChangedBlockTrackingStatus>,
}
/// `phaseTransitionTimestamps` of `VirtualMachineInstanceStatus`.
VirtualMachineInstancePhaseTransitionTimestamp {
    "phase" phase: String,
    "phaseTransitionTimestamp" phase_transition_timestamp: String,
}
/// `interfaces` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceNetworkInterface {
    "ipAddress" ip_address: String,
    "mac" mac: String,
    "name" name: String,
    "ipAddresses" ip_addresses: Vec<String>,
    "podInterfaceName" pod_interface_name: String,
    "interfaceName" interface_name: String,
    "infoSource" info_source: String,
    "queueCount" queue_count: i32,
    "linkState" link_state: String,
}
/// `guestOSInfo` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceGuestOsInfo {
    "name" name: String,
    "kernelRelease" kernel_release: String,
    "version" version: String,
    "prettyName" pretty_name: String,
    "versionId" version_id: String,
    "kernelVersion" kernel_version: String,
    "machine" machine: String,
    "id" id: String,
}
/// `migrationState` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceMigrationState {
    "startTimestamp" start_timestamp: Option<String>,
    "endTimestamp" end_timestamp: Option<String>,
    "targetNodeDomainReadyTimestamp" target_node_domain_ready_timestamp: Option<String>,
    "targetNodeDomainDetected" target_node_domain_detected: bool,
    "targetNodeAddress" target_node_address: String,
    "targetDirectMigrationNodePorts" target_direct_migration_node_ports: BTreeMap<String, i64>,
    "targetNode" target_node: String,
    "targetPod" target_pod: String,
    "targetAttachmentPodUID" target_attachment_pod_uid: String,
    "sourceNode" source_node: String,
    "sourcePod" source_pod: String,
    "completed" completed: bool,
    "failed" failed: bool,
    "abortRequested" abort_requested: bool,
    "abortStatus" abort_status: String,
    "failureReason" failure_reason: String,
    "migrationUid" migration_uid: String,
    "mode" mode: String,
    "migrationPolicyName" migration_policy_name: Option<String>,
    "migrationConfiguration" migration_configuration: Option<VmimConfigurationOptions>,
    "targetCPUSet" target_cpu_set: Vec<i64>,
    "targetNodeTopology" target_node_topology: String,
    "sourcePersistentStatePVCName" source_persistent_state_pvc_name: String,
    "targetPersistentStatePVCName" target_persistent_state_pvc_name: String,
    "sourceState" source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    "targetState" target_state: Option<VirtualMachineInstanceMigrationTargetState>,
    "migrationNetworkType" migration_network_type: String,
    "targetMemoryOverhead" target_memory_overhead: Option<Quantity>,
}
/// `volumeStatus` of `VirtualMachineInstanceStatus`.
#[derive(serde::Serialize)]
VolumeStatus {
    "name" name: String,
    "target" target: String,
    "phase" phase: String,
    "reason" reason: String,
    "message" message: String,
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
    "type" r#type: String,
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
    "volumeName" volume_name: String,
    "sourcePVCInfo" source_pvc_info: Option<PersistentVolumeClaimInfo>,
    "destinationPVCInfo" destination_pvc_info: Option<PersistentVolumeClaimInfo>,
}
/// `changedBlockTracking` of `VirtualMachineInstanceStatus`.
ChangedBlockTrackingStatus {
    "state" state: String,
    "backupStatus" backup_status: Option<VirtualMachineInstanceBackupStatus>,
}
/// `migrationConfiguration` of `VirtualMachineInstanceMigrationState`.
VmimConfigurationOptions {
    "nodeDrainTaintKey" node_drain_taint_key: Option<String>,
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
    "network" network: Option<String>,
    "matchSELinuxLevelOnMigration" match_se_linux_level_on_migration: Option<bool>,
    "experimental" experimental: Option<ExperimentalMigrationOptions>,
}
/// `sourceState` of `VirtualMachineInstanceMigrationState`.
VirtualMachineInstanceMigrationSourceState {
    "node" node: String,
    "pod" pod: String,
    "migrationUID" migration_uid: String,
    "domainName" domain_name: Option<String>,
    "domainNamespace" domain_namespace: Option<String>,
    "syncAddress" sync_address: Option<String>,
    "persistentStatePVCName" persistent_state_pvc_name: Option<String>,
    "selinuxContext" selinux_context: String,
    "virtualMachineInstanceUID" virtual_machine_instance_uid: Option<String>,
    "nodeSelectors" node_selectors: BTreeMap<String, String>,
}
/// `targetState` of `VirtualMachineInstanceMigrationState`.
VirtualMachineInstanceMigrationTargetState {
    "node" node: String,
    "pod" pod: String,
    "migrationUID" migration_uid: String,
    "domainName" domain_name: Option<String>,
    "domainNamespace" domain_namespace: Option<String>,
    "syncAddress" sync_address: Option<String>,
    "persistentStatePVCName" persistent_state_pvc_name: Option<String>,
    "selinuxContext" selinux_context: String,
    "virtualMachineInstanceUID" virtual_machine_instance_uid: Option<String>,
    "domainReadyTimestamp" domain_ready_timestamp: Option<String>,
    "domainDetected" domain_detected: bool,
    "nodeAddress" node_address: Option<String>,
    "directMigrationNodePorts" direct_migration_node_ports: BTreeMap<String, i64>,
    "attachmentPodUID" attachment_pod_uid: Option<String>,
    "cpuSet" cpu_set: Vec<i64>,
    "nodeTopology" node_topology: Option<String>,
}
/// `persistentVolumeClaimInfo`, in several places.
#[derive(serde::Serialize)]
PersistentVolumeClaimInfo {
    "claimName" claim_name: String,
    "accessModes" access_modes: Vec<String>,
    "volumeMode" volume_mode: Option<String>,
    "capacity" capacity: BTreeMap<String, Quantity>,
    "requests" requests: BTreeMap<String, Quantity>,
    "preallocated" preallocated: bool,
    "filesystemOverhead" filesystem_overhead: Option<String>,
}
/// `hotplugVolume` of `VolumeStatus`.
#[derive(serde::Serialize)]
HotplugVolumeStatus {
    "attachPodName" attach_pod_name: String,
    "attachPodUID" attach_pod_uid: String,
}
/// `memoryDumpVolume` of `VolumeStatus`.
#[derive(serde::Serialize)]
DomainMemoryDumpInfo {
    "startTimestamp" start_timestamp: Option<String>,
    "endTimestamp" end_timestamp: Option<String>,
    "claimName" claim_name: String,
    "targetFileName" target_file_name: String,
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
    "backupName" backup_name: String,
    "startTimestamp" start_timestamp: Option<String>,
    "endTimestamp" end_timestamp: Option<String>,
    "completed" completed: bool,
    "failed" failed: bool,
    "backupMsg" backup_msg: Option<String>,
    "checkpointName" checkpoint_name: Option<String>,
    "quiesceStatus" quiesce_status: String,
}
/// `experimental` of `VmimConfigurationOptions`.
ExperimentalMigrationOptions {
    "stallDetector" stall_detector: Option<StallDetectorOptions>,
    "compression" compression: Option<String>,
}
/// `stallDetector` of `ExperimentalMigrationOptions`.
StallDetectorOptions {
    "stallMargin" stall_margin: Option<i64>,
    "ewmaAlpha" ewma_alpha: Option<String>,
    "stallProgressTimeout" stall_progress_timeout: Option<u64>,
    "switchoverTimeout" switchover_timeout: Option<u64>,
    "precopyPossibleFactor" precopy_possible_factor: Option<String>,
    "patienceWindowDecayFactor" patience_window_decay_factor: Option<String>,
    "searchLocalMinima" search_local_minima: Option<bool>,
    "completionTimeoutFactor" completion_timeout_factor: Option<String>,
}
}
