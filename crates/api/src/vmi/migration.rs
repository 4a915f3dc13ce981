//! `status.migrationState` and `status.migratedVolumes`: what virt-controller and the two
//! virt-handlers have agreed on for a live migration.

use super::volumes::PersistentVolumeClaimInfo;
use crate::api;

api! {
/// `migrationState` of `VirtualMachineInstanceStatus`.
VirtualMachineInstanceMigrationState {
    "migrationUid" migration_uid: String,
    "targetPod" target_pod: String,
    "targetCPUSet" target_cpu_set: Vec<u32>,
    /// JSON of `kubevirt.cmd.v1.Topology`.
    "targetNodeTopology" target_node_topology: String,
    "sourcePersistentStatePVCName" source_persistent_state_pvc_name: String,
    "targetPersistentStatePVCName" target_persistent_state_pvc_name: String,
    "sourceState" source_state: Option<VirtualMachineInstanceMigrationSideState>,
    "targetState" target_state: Option<VirtualMachineInstanceMigrationSideState>,
}
/// `sourceState` and `targetState` of `VirtualMachineInstanceMigrationState`: one side of the
/// migration. The two sides have different VMIs when a VM moves to another cluster.
VirtualMachineInstanceMigrationSideState {
    "migrationUID" migration_uid: String,
    "domainName" domain_name: Option<String>,
    "domainNamespace" domain_namespace: Option<String>,
    "virtualMachineInstanceUID" virtual_machine_instance_uid: Option<String>,
    /// Where the other cluster's controller is reached; of the side that is in another cluster.
    "syncAddress" sync_address: Option<String>,
}
/// `migratedVolumes` of `VirtualMachineInstanceStatus`: volumes that move to another claim.
StorageMigratedVolumeInfo {
    "volumeName" volume_name: String,
    "sourcePVCInfo" source_pvc_info: Option<PersistentVolumeClaimInfo>,
    "destinationPVCInfo" destination_pvc_info: Option<PersistentVolumeClaimInfo>,
}
}

impl VirtualMachineInstanceMigrationState {
    /// The UID by which the source's virt-handler knows the migration.
    #[must_use]
    pub fn source_uid(&self) -> &str {
        match &self.source_state {
            Some(source) => &source.migration_uid,
            None => &self.migration_uid,
        }
    }
}

impl super::Vmi {
    /// Whether the migration copies disks too, by `migrationMethod` or `migratedVolumes`.
    #[must_use]
    pub fn is_block_migration(&self) -> bool {
        self.status.migration_method == "BlockMigration" || !self.status.migrated_volumes.is_empty()
    }

    /// Whether the VM moves to another cluster (cross-cluster), or to another name or namespace of
    /// this one: one side has a `syncAddress`.
    #[must_use]
    pub fn is_decentralized_migration(&self) -> bool {
        let state = self.status.migration_state.as_ref();
        let sides =
            state.and_then(|state| state.source_state.as_ref().zip(state.target_state.as_ref()));
        sides.is_some_and(|(source, target)| {
            source.sync_address.is_some() != target.sync_address.is_some()
        })
    }

    /// The reason of the condition of this type, if the status has one, whatever its value.
    #[must_use]
    pub fn condition_reason(&self, r#type: &str) -> Option<&str> {
        let mut conditions = self.status.conditions.iter();
        let condition = conditions.find(|condition| condition.r#type == r#type)?;
        Some(&condition.reason)
    }
}
