//! KubeVirt's documents about a guest, as `GetGuestInfo`, `GetUsers` and `GetFilesystems` answer
//! them.

use serde::{Deserialize, Serialize};

use super::{AgentInfo, Command, Filesystem, FreezeStatus, Timezone, User};
use crate::object::GuestOsInfo;
use crate::xml::or_default;

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
    /// The answer of `GetGuestInfo`, with the first [`MAX_LISTED`] users and file systems.
    // D-agent-4 (docs/differences.md).
    #[must_use]
    pub fn document(self) -> GuestDocument {
        let timezone = self.timezone;
        GuestDocument {
            guest_agent_version: self.agent.version,
            supported_commands: self.agent.commands,
            hostname: self.hostname,
            os: self.os,
            timezone: timezone
                .map(|zone| format!("{}, {}", zone.name, zone.offset))
                .unwrap_or_default(),
            user_list: first(self.users),
            fs_info: FsInfo {
                disks: first(self.filesystems),
            },
            fs_freeze_status: (self.freeze_status.map_or("", FreezeStatus::as_str)).to_owned(),
        }
    }
}

fn first<T>(mut all: Vec<T>) -> Vec<T> {
    all.truncate(MAX_LISTED);
    all
}

/// `GetGuestInfo`'s answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GuestDocument {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub guest_agent_version: String,
    /// By these virt-handler decides whether the agent is supported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub supported_commands: Vec<Command>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    #[serde(with = "Os")]
    pub os: GuestOsInfo,
    /// Name, and seconds east of UTC: `CET, 3600`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timezone: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user_list: Vec<User>,
    pub fs_info: FsInfo,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_freeze_status: String,
}

/// The file systems of a [`GuestDocument`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FsInfo {
    #[serde(deserialize_with = "or_default")]
    pub disks: Vec<Filesystem>,
}

/// [`GuestOsInfo`] under the names of a [`GuestDocument`].
#[derive(Default, Serialize, Deserialize)]
#[serde(remote = "GuestOsInfo", default, rename_all = "camelCase")]
pub struct Os {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_release: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pretty_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Command;
    use super::*;

    #[test]
    fn a_guest_without_an_agent_has_an_empty_document() {
        assert_eq!(
            serde_json::to_string(&GuestAgentInfo::default().document()).unwrap(),
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
        let json: Value = serde_json::to_value(info.document()).unwrap();
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
