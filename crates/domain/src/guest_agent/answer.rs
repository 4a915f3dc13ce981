//! The agent's answers to single commands: JSON, `{"return": …}`, in the words of QEMU's
//! `qga/qapi-schema.json`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::limits::{MAX_ANSWER_BYTES, MAX_COMMANDS, MAX_DISKS, MAX_FILESYSTEMS, text};
use super::{AgentInfo, Command, Filesystem, FilesystemDisk, FreezeStatus};

/// Why an answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AgentAnswerError {
    /// It is longer than [`MAX_ANSWER_BYTES`].
    #[error("the guest agent's answer is {0} bytes long; at most {MAX_ANSWER_BYTES} are read")]
    TooLong(usize),
    /// It does not follow the agent's protocol.
    #[error("the guest agent's answer is not as its protocol says")]
    Form(#[source] serde_json::Error),
    /// It is an error of the agent's, in its own words.
    #[error("the guest agent refuses: {0}")]
    Refused(String),
}

/// `guest-info`.
///
/// # Errors
/// When the answer is of another form.
pub fn agent_info(json: &str) -> Result<AgentInfo, AgentAnswerError> {
    let info: InfoAnswer = value(json)?;
    let commands = info.supported_commands.unwrap_or_default().0;
    Ok(AgentInfo {
        version: string(info.version),
        commands: commands
            .into_iter()
            .map(|command| Command {
                name: string(command.name),
                enabled: command.enabled.unwrap_or_default(),
            })
            .collect(),
    })
}

/// `guest-get-fsinfo`.
///
/// # Errors
/// When the answer is of another form.
pub fn filesystems(json: &str) -> Result<Vec<Filesystem>, AgentAnswerError> {
    let list: List<FilesystemAnswer, MAX_FILESYSTEMS> = value(json)?;
    Ok(list.0.into_iter().map(FilesystemAnswer::read).collect())
}

/// `guest-fsfreeze-status`.
///
/// # Errors
/// When the answer has another form, or a word that the protocol does not have.
// D-agent-3 (docs/differences.md).
pub fn freeze_status(json: &str) -> Result<FreezeStatus, AgentAnswerError> {
    value(json)
}

/// A command that is on its way in the guest: `guest-exec`. Its process id, for [`exec_status`].
///
/// # Errors
/// When the answer is of another form.
pub fn exec_pid(json: &str) -> Result<i64, AgentAnswerError> {
    value::<ExecAnswer>(json).map(|exec| exec.pid)
}

/// `guest-exec-status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExecStatus {
    /// Whether the command has ended.
    #[serde(default)]
    pub exited: bool,
    /// Its exit status, if it ended by itself. On Windows 32 bits, of which the upper half are
    /// exceptions.
    #[serde(default, rename = "exitcode")]
    pub exit_code: Option<i64>,
    /// The signal that ended it, or on Windows the exception.
    #[serde(default)]
    pub signal: Option<i64>,
    /// Its output, as base64.
    #[serde(default)]
    pub out_data: Option<String>,
    /// What it wrote to standard error, as base64.
    #[serde(default)]
    pub err_data: Option<String>,
}

/// `guest-exec-status`.
///
/// # Errors
/// When the answer is of another form.
pub fn exec_status(json: &str) -> Result<ExecStatus, AgentAnswerError> {
    value(json)
}

/// `guest-file-open`: the handle of an open file.
///
/// # Errors
/// When the answer is of another form.
pub fn file_handle(json: &str) -> Result<i64, AgentAnswerError> {
    value(json)
}

/// `guest-file-read`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FileContent {
    /// Bytes that were read.
    #[serde(default)]
    pub count: i64,
    /// The bytes, as base64.
    #[serde(default, rename = "buf-b64")]
    pub data: String,
    /// Whether the file ends here.
    #[serde(default)]
    pub eof: bool,
}

/// `guest-file-read`.
///
/// # Errors
/// When the answer is of another form.
pub fn file_content(json: &str) -> Result<FileContent, AgentAnswerError> {
    value(json)
}

/// The value of an answer.
fn value<T: DeserializeOwned>(json: &str) -> Result<T, AgentAnswerError> {
    if json.len() > MAX_ANSWER_BYTES {
        return Err(AgentAnswerError::TooLong(json.len()));
    }
    let wrapped: Wrapped<T> = serde_json::from_str(json).map_err(|error| refusal(json, error))?;
    Ok(wrapped.value)
}

/// libvirt turns an agent's error into its own; an answer that has come another way may still be
/// one.
fn refusal(json: &str, error: serde_json::Error) -> AgentAnswerError {
    match serde_json::from_str::<ErrorAnswer>(json) {
        Ok(refused) => AgentAnswerError::Refused(text(refused.error.desc)),
        Err(_) => AgentAnswerError::Form(error),
    }
}

#[derive(Deserialize)]
struct Wrapped<T> {
    #[serde(rename = "return")]
    value: T,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorValue,
}

#[derive(Deserialize)]
struct ErrorValue {
    desc: String,
}

#[derive(Deserialize)]
struct InfoAnswer {
    version: Option<String>,
    supported_commands: Option<List<CommandAnswer, MAX_COMMANDS>>,
}

#[derive(Default, Deserialize)]
struct CommandAnswer {
    name: Option<String>,
    enabled: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct FilesystemAnswer {
    name: Option<String>,
    mountpoint: Option<String>,
    r#type: Option<String>,
    used_bytes: Option<i64>,
    total_bytes: Option<i64>,
    disk: Option<List<DiskAnswer, MAX_DISKS>>,
}

impl FilesystemAnswer {
    fn read(self) -> Filesystem {
        let disks = self.disk.unwrap_or_default().0;
        Filesystem {
            name: string(self.name),
            mount_point: string(self.mountpoint),
            kind: string(self.r#type),
            used_bytes: self.used_bytes.unwrap_or_default(),
            total_bytes: self.total_bytes.unwrap_or_default(),
            disks: disks
                .into_iter()
                .map(|disk| FilesystemDisk {
                    serial: string(disk.serial),
                    bus: string(disk.bus_type),
                })
                .collect(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct DiskAnswer {
    serial: Option<String>,
    bus_type: Option<String>,
}

#[derive(Deserialize)]
struct ExecAnswer {
    pid: i64,
}

/// An absent text is empty, a long one is cut.
fn string(given: Option<String>) -> String {
    given.map(text).unwrap_or_default()
}

/// A list of which no more than the first `MAX` elements are kept, so that a long one takes no
/// memory. `null` in it is an empty element, as Go reads it.
struct List<T, const MAX: usize>(Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + Default, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

struct Elements<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
    type Value = List<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while list.len() < MAX {
            match seq.next_element::<Option<T>>()? {
                Some(element) => list.push(element.unwrap_or_default()),
                None => return Ok(List(list)),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(List(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut() {
        let fs = r#"{"name":"a","mountpoint":"/","type":"ext4"}"#;
        let all = vec![fs; MAX_FILESYSTEMS + 5].join(",");
        let read = filesystems(&format!("{{\"return\":[{all}]}}")).unwrap();
        assert_eq!(read.len(), MAX_FILESYSTEMS);
    }

    #[test]
    fn a_long_answer_is_refused_unread() {
        let answer = format!("{{\"return\":\"{}\"}}", "x".repeat(MAX_ANSWER_BYTES));
        let error = freeze_status(&answer).unwrap_err();
        assert!(matches!(error, AgentAnswerError::TooLong(_)), "{error}");
    }

    #[test]
    fn an_error_of_the_agents_is_passed_on() {
        let answer = r#"{"error":{"class":"GenericError","desc":"guest-exec is disabled"}}"#;
        let error = exec_pid(answer).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the guest agent refuses: guest-exec is disabled"
        );
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let deep = format!(
            "{{\"return\":{}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(filesystems(&deep).is_err());
    }

    #[test]
    fn a_file_system_has_its_disks() {
        let answer = r#"{"return":[{"name":"sda1","mountpoint":"/","type":"ext4","used-bytes":1,"total-bytes":2,
            "disk":[{"serial":"S","bus-type":"scsi","bus":0,"pci-controller":{"bus":0}},null]},null]}"#;
        let read = filesystems(answer).unwrap();
        let disks = vec![
            FilesystemDisk {
                serial: "S".into(),
                bus: "scsi".into(),
            },
            FilesystemDisk::default(),
        ];
        assert_eq!(
            read,
            [
                Filesystem {
                    name: "sda1".into(),
                    mount_point: "/".into(),
                    kind: "ext4".into(),
                    used_bytes: 1,
                    total_bytes: 2,
                    disks,
                },
                Filesystem::default()
            ]
        );
    }

    #[test]
    fn a_command_that_was_killed_has_a_signal() {
        let status = exec_status(r#"{"return":{"exited":true,"signal":9}}"#).unwrap();
        assert_eq!(
            (status.exited, status.exit_code, status.signal),
            (true, None, Some(9))
        );
    }
}
