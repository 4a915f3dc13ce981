//! `backup.kubevirt.io/v1alpha1`: virt-handler's request as JSON, and the result that it reads from
//! the domain's metadata.

use serde::{Deserialize, Serialize};

use crate::vmi::null_is_default;

/// `BackupOptions`: a command about a backup. Times are RFC 3339.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackupOptions {
    /// Name of the backup.
    #[serde(deserialize_with = "null_is_default")]
    pub backup_name: String,
    /// `Start`, `Export` or `Abort`.
    #[serde(deserialize_with = "null_is_default")]
    pub cmd: String,
    /// `Push` or `Pull`.
    #[serde(deserialize_with = "null_is_default")]
    pub mode: String,
    /// With the name it tells backups apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_start_time: Option<String>,
    /// The checkpoint from which an incremental backup counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incremental: Option<String>,
    /// Directory of the pod below which the backup's files are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
    /// The guest's file systems are not frozen.
    #[serde(deserialize_with = "null_is_default")]
    pub skip_quiesce: bool,
    /// The server that reads the backup: `host` (port 443) or `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export_server_addr: Option<String>,
    /// The name in that server's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export_server_name: Option<String>,
    /// Private key for that server, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_key: Option<String>,
    /// Certificate for that server, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_cert: Option<String>,
    /// Who has signed that server's certificate, PEM.
    #[serde(rename = "caCert", skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<String>,
}

/// `BackupCheckpoint`: a checkpoint of an earlier domain of the VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackupCheckpoint {
    /// Its name, which is the name of the bitmaps too.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// When it was made, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
}

/// `BackupVolumeInfo`: a volume that is in a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BackupVolumeInfo {
    /// The volume's name in the VMI.
    pub volume_name: String,
    /// The disk's target at the time of the backup, such as `vda`.
    pub disk_target: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As virt-handler's Go encodes it.
    #[test]
    fn options_are_read_as_virt_handler_writes_them() {
        let json = r#"{"backupName":"b1","cmd":"Start","mode":"Pull","backupStartTime":"2026-01-02T03:04:05Z",
            "targetPath":"/var/run/kubevirt/hotplug-disks/t","skipQuiesce":true,"caCert":"c","incremental":null,"mode2":1}"#;
        let options: BackupOptions = serde_json::from_str(json).unwrap();
        assert_eq!(
            (options.backup_name.as_str(), options.skip_quiesce),
            ("b1", true)
        );
        assert_eq!(
            options.backup_start_time.as_deref(),
            Some("2026-01-02T03:04:05Z")
        );
        assert_eq!(options.ca_cert.as_deref(), Some("c"));
        assert_eq!(options.incremental, None);
        let again = serde_json::to_string(&options).unwrap();
        assert_eq!(
            serde_json::from_str::<BackupOptions>(&again).unwrap(),
            options
        );
    }

    #[test]
    fn volumes_have_kubevirts_names() {
        let volume = BackupVolumeInfo {
            volume_name: "Data".into(),
            disk_target: "vda".into(),
        };
        assert_eq!(
            serde_json::to_string(&[volume]).unwrap(),
            r#"[{"volumeName":"Data","diskTarget":"vda"}]"#
        );
    }
}
