//! `<metadata>`: what KubeVirt keeps with the domain, so that a launcher that comes later knows it.

mod time;

use super::Text;
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
    leaf "uid" "UID" uid: Text,
    child "graceperiod" "GracePeriod" grace_period: Option<GracePeriodMetadata>,
    child "migration" "Migration" migration: Option<MigrationMetadata>,
    child "backup" "Backup" backup: Option<BackupMetadata>,
    child "accessCredential" "AccessCredential" access_credential: Option<AccessCredentialMetadata>,
    child "memoryDump" "MemoryDump" memory_dump: Option<MemoryDumpMetadata>,
}
/// `<accessCredential>`: whether users and keys have reached the guest.
AccessCredentialMetadata {
    leaf? "succeeded" "Succeeded" succeeded: bool,
    leaf? "message" "Message" message: Text,
}
/// `<memoryDump>`: the last memory dump.
MemoryDumpMetadata {
    leaf? "fileName" "FileName" file_name: Text,
    leaf? "startTimestamp" "StartTimestamp" start_timestamp: Option<Time>,
    leaf? "endTimestamp" "EndTimestamp" end_timestamp: Option<Time>,
    leaf? "completed" "Completed" completed: bool,
    leaf? "failed" "Failed" failed: bool,
    leaf? "failureReason" "FailureReason" failure_reason: Text,
}
/// `<migration>`: the last migration.
MigrationMetadata {
    leaf? "uid" "UID" uid: Text,
    leaf? "startTimestamp" "StartTimestamp" start_timestamp: Option<Time>,
    leaf? "endTimestamp" "EndTimestamp" end_timestamp: Option<Time>,
    leaf? "failed" "Failed" failed: bool,
    leaf? "failureReason" "FailureReason" failure_reason: Text,
    leaf? "abortStatus" "AbortStatus" abort_status: Text,
    leaf? "mode" "Mode" mode: Text,
}
/// `<backup>`: the last backup.
BackupMetadata {
    leaf? "name" "Name" name: Text,
    leaf? "mode" "Mode" mode: Text,
    leaf? "skipQuiesce" "SkipQuiesce" skip_quiesce: bool,
    leaf? "startTimestamp" "StartTimestamp" start_timestamp: Option<Time>,
    leaf? "endTimestamp" "EndTimestamp" end_timestamp: Option<Time>,
    leaf? "completed" "Completed" completed: bool,
    leaf? "failed" "Failed" failed: bool,
    leaf? "backupMsg" "BackupMsg" backup_msg: Text,
    leaf? "checkpointName" "CheckpointName" checkpoint_name: Text,
    leaf? "volumes" "Volumes" volumes: Text,
    leaf? "quiesceStatus" "QuiesceStatus" quiesce_status: Text,
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
