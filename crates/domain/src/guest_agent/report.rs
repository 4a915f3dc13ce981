//! KubeVirt's documents about a guest, as `GetGuestInfo`, `GetUsers` and `GetFilesystems` answer
//! them.

use serde::Serialize;

use super::{AgentInfo, Filesystem, FreezeStatus, Timezone, User};
use crate::object::GuestOsInfo;

/// Users and file systems in the document of `GetGuestInfo`; their own calls have all.
pub const MAX_LISTED: usize = 10;

/// `VirtualMachineInstanceGuestAgentInfo`. The default is for a guest without an agent.
#[derive(Debug, Clone, Default)]
pub struct GuestAgentInfo {
    pub agent: AgentInfo,
    /// The guest's host name.
    pub hostname: String,
    /// The guest's operating system.
    pub os: GuestOsInfo,
    /// The guest's time zone.
    pub timezone: Option<Timezone>,
    /// Users who are logged in; the first ten are shown.
    pub users: Vec<User>,
    /// File systems; the first ten are shown.
    pub filesystems: Vec<Filesystem>,
    /// Whether the file systems are frozen.
    pub freeze_status: Option<FreezeStatus>,
}

impl GuestAgentInfo {
    /// The document as JSON.
    ///
    /// # Errors
    /// None that a guest could cause; the serializer's own.
    // D-agent-4 (docs/differences.md).
    pub fn to_json(&self) -> serde_json::Result<String> {
        let timezone = self.timezone.as_ref();
        serde_json::to_string(&Document {
            guest_agent_version: &self.agent.version,
            // By these (`supportedCommands`) virt-handler decides whether the agent is supported.
            supported_commands: &self.agent.commands,
            hostname: &self.hostname,
            os: Os::of(&self.os),
            timezone: timezone
                .map(|zone| format!("{}, {}", zone.name, zone.offset))
                .unwrap_or_default(),
            user_list: first(&self.users),
            fs_info: FsInfo {
                disks: first(&self.filesystems),
            },
            fs_freeze_status: self
                .freeze_status
                .map(FreezeStatus::as_str)
                .unwrap_or_default(),
        })
    }
}

fn first<T>(all: &[T]) -> &[T] {
    all.get(..MAX_LISTED).unwrap_or(all)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    guest_agent_version: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    supported_commands: &'a [super::Command],
    #[serde(skip_serializing_if = "str::is_empty")]
    hostname: &'a str,
    os: Os<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    timezone: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    user_list: &'a [User],
    fs_info: FsInfo<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    fs_freeze_status: &'a str,
}

#[derive(Serialize)]
struct FsInfo<'a> {
    disks: &'a [Filesystem],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Os<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kernel_release: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pretty_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kernel_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    machine: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
}

impl<'a> Os<'a> {
    fn of(os: &'a GuestOsInfo) -> Self {
        Self {
            name: &os.name,
            kernel_release: &os.kernel_release,
            version: &os.version,
            pretty_name: &os.pretty_name,
            version_id: &os.version_id,
            kernel_version: &os.kernel_version,
            machine: &os.machine,
            id: &os.id,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::super::Command;
    use super::*;

    #[test]
    fn a_guest_without_an_agent_has_an_empty_document() {
        assert_eq!(
            GuestAgentInfo::default().to_json().unwrap(),
            r#"{"os":{},"fsInfo":{"disks":[]}}"#
        );
    }

    #[test]
    fn the_document_lists_ten_users() {
        let users = vec![
            User {
                name: "root".into(),
                ..User::default()
            };
            11
        ];
        let info = GuestAgentInfo {
            agent: AgentInfo {
                version: "10.0.2".into(),
                commands: vec![Command {
                    name: "guest-ping".into(),
                    enabled: true,
                }],
            },
            timezone: Some(Timezone {
                name: "UTC".into(),
                offset: 0,
            }),
            users,
            freeze_status: Some(FreezeStatus::Thawed),
            ..GuestAgentInfo::default()
        };
        let json: Value = serde_json::from_str(&info.to_json().unwrap()).unwrap();
        assert_eq!(json["userList"].as_array().unwrap().len(), MAX_LISTED);
        assert_eq!(json["userList"][0], json!({"userName": "root"}));
        assert_eq!(json["timezone"], "UTC, 0");
        assert_eq!(json["fsFreezeStatus"], "thawed");
        assert_eq!(
            json["supportedCommands"],
            json!([{"name": "guest-ping", "enabled": true}])
        );
    }
}
