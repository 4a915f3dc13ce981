//! `<metadata>`: what KubeVirt stores with the domain, so that a later launcher finds it.

mod time;
use super::xml::elements;

pub use time::Time;

elements! {
/// `<metadata>`.
Metadata {
    child "kubevirt" "KubeVirt" kube_virt: KubeVirtMetadata,
}
/// `<kubevirt>`: KubeVirt's own.
KubeVirtMetadata {
    namespace KubeVirt,
    /// UID of the VMI.
    leaf "uid" "UID" uid: String,
    child "graceperiod" "GracePeriod" grace_period: Option<GracePeriodMetadata>,
    child "migration" "Migration" migration: Option<MigrationMetadata>,
    child "backup" "Backup" backup: Option<BackupMetadata>,
    child "accessCredential" "AccessCredential" access_credential: Option<AccessCredentialMetadata>,
    child "memoryDump" "MemoryDump" memory_dump: Option<MemoryDumpMetadata>,
    /// Not in KubeVirt: its start has paused the guest until virt-handler has pinned the emulator.
    leaf? "pausedUntilPinned" (never) paused_until_pinned: bool,
    /// Not in KubeVirt: it arrives with a guest that a failed disk keeps paused.
    leaf? "diskFailed" (never) disk_failed: bool,
}
/// `<accessCredential>`: whether users and keys have reached the guest.
AccessCredentialMetadata {
    leaf? "succeeded" "Succeeded" succeeded: bool,
    leaf? "message" "Message" message: String,
}
/// `<memoryDump>`: the last memory dump.
MemoryDumpMetadata {
    leaf? "fileName" "FileName" file_name: String,
    leaf? "startTimestamp" "StartTimestamp" start_timestamp: Option<Time>,
    leaf? "endTimestamp" "EndTimestamp" end_timestamp: Option<Time>,
    leaf? "completed" "Completed" completed: bool,
    leaf? "failed" "Failed" failed: bool,
    leaf? "failureReason" "FailureReason" failure_reason: String,
}
/// `<migration>`: the last migration.
MigrationMetadata {
    leaf? "uid" "UID" uid: String,
    leaf? "startTimestamp" "StartTimestamp" start_timestamp: Option<Time>,
    leaf? "endTimestamp" "EndTimestamp" end_timestamp: Option<Time>,
    leaf? "failed" "Failed" failed: bool,
    leaf? "failureReason" "FailureReason" failure_reason: String,
    leaf? "abortStatus" "AbortStatus" abort_status: String,
    leaf? "mode" "Mode" mode: String,
}
/// `<backup>`: the last backup.
BackupMetadata {
    leaf? "name" "Name" name: String,
    leaf? "mode" "Mode" mode: String,
    leaf? "skipQuiesce" "SkipQuiesce" skip_quiesce: bool,
    leaf? "startTimestamp" "StartTimestamp" start_timestamp: Option<Time>,
    leaf? "endTimestamp" "EndTimestamp" end_timestamp: Option<Time>,
    leaf? "completed" "Completed" completed: bool,
    leaf? "failed" "Failed" failed: bool,
    leaf? "backupMsg" "BackupMsg" backup_msg: String,
    leaf? "checkpointName" "CheckpointName" checkpoint_name: String,
    leaf? "volumes" "Volumes" volumes: String,
    leaf? "quiesceStatus" "QuiesceStatus" quiesce_status: String,
}
/// `<graceperiod>`: how long a shutdown may take, and whether it has begun.
GracePeriodMetadata {
    /// As the VMI has it, in seconds.
    leaf "deletionGracePeriodSeconds" "DeletionGracePeriodSeconds" deletion_grace_period_seconds: i64,
    /// When the guest was first asked to shut down.
    leaf? "deletionTimestamp" "DeletionTimestamp" deletion_timestamp: Option<Time>,
    leaf? "markedForGracefulShutdown" "MarkedForGracefulShutdown" marked_for_graceful_shutdown: Option<bool>,
}
}

impl KubeVirtMetadata {
    /// The namespace of the element.
    pub const NAMESPACE: &str = super::xml::Namespace::KubeVirt.uri();
}
