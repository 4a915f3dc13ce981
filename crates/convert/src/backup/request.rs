//! What virt-handler asks for, checked.

use std::path::{Component, Path};

use api::backup::BackupOptions;
use domain::backup::BackupMode;
use domain::metadata::Time;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupId {
    pub name: String,
    /// When it was asked for.
    pub started: Time,
}

/// Who reads the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedMode {
    /// QEMU writes them into files.
    Push,
    /// A client reads them from QEMU.
    Pull,
}

impl RequestedMode {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Push => "Push",
            Self::Pull => "Pull",
        }
    }

    pub(super) fn to_libvirt(self) -> BackupMode {
        match self {
            Self::Push => BackupMode::Push,
            Self::Pull => BackupMode::Pull,
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Push, Self::Pull]
            .into_iter()
            .find(|mode| mode.as_str() == word)
    }
}

/// A backup that is to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub id: BackupId,
    /// Who reads the disks.
    pub mode: RequestedMode,
    /// The checkpoint since which an incremental backup has the changes; without one it is full.
    pub incremental: Option<String>,
    /// Directory of the pod below which the backup's files are.
    pub target_path: String,
    /// The guest's file systems are not frozen.
    pub skip_quiesce: bool,
}

/// A server that reads a backup. It has no `Debug`, so that no log shows the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Export {
    pub id: BackupId,
    /// `host` (port 443) or `host:port`.
    pub server_addr: String,
    /// The name in the server's certificate.
    pub server_name: String,
    /// Who has signed that, PEM.
    pub ca_cert: String,
    /// Our certificate, PEM.
    pub cert: String,
    /// Our private key, PEM.
    pub key: String,
}

/// What virt-handler asks for.
pub enum BackupRequest {
    Start(Start),
    /// Let a server read it.
    Export(Box<Export>),
    Abort(BackupId),
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum BackupRequestError {
    /// It carries no options.
    #[error("backup options object not present in command server request")]
    Absent,
    /// The options cannot be decoded.
    #[error("no valid backup options object present in command server request")]
    Json(#[source] serde_json::Error),
    /// Another command than these.
    #[error("backup command {0:?} is unknown; Start, Export and Abort are known")]
    Command(String),
    /// Another mode than these.
    #[error("backup mode {0:?} is unknown; Push and Pull are known")]
    Mode(String),
    /// Only a backup that is pulled has something to export.
    #[error("only a backup in Pull mode can be exported")]
    ExportOfPush,
    /// A value is missing.
    #[error("the backup request has no {0}")]
    Missing(&'static str),
    /// The start time is not one.
    #[error("backupStartTime {0:?} is not a time as of RFC 3339")]
    Time(String),
    /// The name becomes a directory's and files' names.
    #[error(
        "the backup's name {0:?} cannot be part of a file name: it has a '/' or a control character, or begins with '.'"
    )]
    Name(String),
    /// The target is not below the pod's root.
    #[error("targetPath {0:?} is not an absolute path, or has a '..'")]
    Target(String),
}

impl BackupRequest {
    /// The request in `json`, checked.
    ///
    /// # Errors
    /// If it cannot be decoded, or something is missing or not as it must be.
    // D-backup-1 (docs/differences.md).
    pub fn from_json(json: &[u8]) -> Result<Self, BackupRequestError> {
        if json.is_empty() {
            return Err(BackupRequestError::Absent);
        }
        let options: Option<BackupOptions> =
            api::json::from_slice(json).map_err(BackupRequestError::Json)?;
        let options = options.ok_or(BackupRequestError::Absent)?;
        let is_pull = RequestedMode::of(&options.mode) == Some(RequestedMode::Pull);
        match options.cmd.as_str() {
            "Start" => start(options).map(Self::Start),
            "Export" if !is_pull => Err(BackupRequestError::ExportOfPush),
            "Export" => export(options).map(Box::new).map(Self::Export),
            "Abort" => id(options.backup_name, options.backup_start_time).map(Self::Abort),
            _ => Err(BackupRequestError::Command(options.cmd)),
        }
    }
}

fn start(options: BackupOptions) -> Result<Start, BackupRequestError> {
    let Some(mode) = RequestedMode::of(&options.mode) else {
        return Err(BackupRequestError::Mode(options.mode));
    };
    let target_path = given("targetPath", options.target_path)?;
    let is_normal = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if !target_path.starts_with('/') || !Path::new(&target_path).components().all(is_normal) {
        return Err(BackupRequestError::Target(target_path));
    }
    Ok(Start {
        id: id(options.backup_name, options.backup_start_time)?,
        mode,
        incremental: options.incremental.filter(|name| !name.is_empty()),
        target_path,
        skip_quiesce: options.skip_quiesce,
    })
}

fn export(options: BackupOptions) -> Result<Export, BackupRequestError> {
    Ok(Export {
        server_addr: given("exportServerAddr", options.export_server_addr)?,
        server_name: given("exportServerName", options.export_server_name)?,
        id: id(options.backup_name, options.backup_start_time)?,
        cert: given("backupCert", options.backup_cert)?,
        key: given("backupKey", options.backup_key)?,
        ca_cert: given("caCert", options.ca_cert)?,
    })
}

fn id(name: String, started: Option<String>) -> Result<BackupId, BackupRequestError> {
    let name = given("backupName", Some(name))?;
    if name.starts_with('.') || name.contains('/') || name.contains(char::is_control) {
        return Err(BackupRequestError::Name(name));
    }
    let started = given("backupStartTime", started)?;
    let time = started.parse();
    let started = time.map_err(|_| BackupRequestError::Time(started))?;
    Ok(BackupId { name, started })
}

fn given(what: &'static str, value: Option<String>) -> Result<String, BackupRequestError> {
    value
        .filter(|value| !value.is_empty())
        .ok_or(BackupRequestError::Missing(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn options() -> Value {
        json!({"backupName": "Nightly", "cmd": "Start", "mode": "Push", "backupStartTime": "2026-01-02T03:04:05Z",
            "targetPath": "/Backups", "incremental": ""})
    }

    fn parse(options: &Value) -> Result<BackupRequest, BackupRequestError> {
        BackupRequest::from_json(options.to_string().as_bytes())
    }

    fn refusal(options: &Value) -> String {
        parse(options).err().unwrap().to_string()
    }

    #[test]
    fn a_start_is_read_and_an_empty_checkpoint_means_a_full_backup() {
        let Ok(BackupRequest::Start(start)) = parse(&options()) else {
            panic!("not a start");
        };
        assert_eq!(
            (start.id.name.as_str(), start.mode),
            ("Nightly", RequestedMode::Push)
        );
        assert_eq!(start.id.started, "2026-01-02T03:04:05Z".parse().unwrap());
        assert_eq!((start.incremental, start.skip_quiesce), (None, false));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (field, value, text) in [
            ("cmd", json!("Stop"), "\"Stop\""),
            ("cmd", json!(null), "Start, Export and Abort"),
            ("mode", json!("Sideways"), "\"Sideways\""),
            ("targetPath", json!(null), "no targetPath"),
            ("targetPath", json!("Backups"), "targetPath \"Backups\""),
            ("targetPath", json!("/a/../../etc"), "'..'"),
            ("backupName", json!(""), "no backupName"),
            ("backupName", json!("../x"), "\"../x\""),
            ("backupName", json!("a/b"), "\"a/b\""),
            ("backupName", json!("a\nb"), "control character"),
            ("backupStartTime", json!(null), "no backupStartTime"),
            ("backupStartTime", json!("yesterday"), "\"yesterday\""),
        ] {
            let mut options = options();
            options[field] = value;
            let refusal = refusal(&options);
            assert!(refusal.contains(text), "{field}: {refusal}");
        }
        assert_eq!(
            BackupRequest::from_json(b"").err().unwrap().to_string(),
            "backup options object not present in command server request"
        );
        assert!(matches!(
            BackupRequest::from_json(b"null"),
            Err(BackupRequestError::Absent)
        ));
        assert!(matches!(
            BackupRequest::from_json(b"{"),
            Err(BackupRequestError::Json(_))
        ));
    }

    #[test]
    fn an_export_needs_all_of_its_server() {
        let whole = json!({"backupName": "b", "cmd": "Export", "mode": "Pull", "backupStartTime": "2026-01-02T03:04:05Z",
            "exportServerAddr": "a:1", "exportServerName": "n", "backupKey": "k", "backupCert": "c", "caCert": "ca"});
        assert!(matches!(parse(&whole), Ok(BackupRequest::Export(_))));
        for field in [
            "exportServerAddr",
            "exportServerName",
            "backupKey",
            "backupCert",
            "caCert",
            "backupName",
            "backupStartTime",
        ] {
            let mut less = whole.clone();
            less[field] = Value::Null;
            assert!(refusal(&less).contains(field), "{field}");
        }
        let mut push = whole;
        push["mode"] = json!("Push");
        assert_eq!(refusal(&push), "only a backup in Pull mode can be exported");
    }
}
