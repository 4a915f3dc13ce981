//! The guest agent's answers, and KubeVirt's view of them. Pure: no connection, no clock.
//!
//! ```text
//!   answer of an agent command (JSON) ─────► answer ─┐
//!   virDomainGetGuestInfo's parameters ────► params ─┴─► values of this module ─► report (KubeVirt's JSON)
//! ```
//!
//! A guest is not trusted. Whatever it answers, what comes out is valid UTF-8 and within
//! [`limits`]: longer lists and texts are cut, answers of another form are errors.

pub mod answer;
pub mod limits;
pub mod params;
pub mod report;

use serde::{Deserialize, Serialize};

pub use report::{GuestAgentInfo, GuestDocument};

/// `guest-info`: the agent itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentInfo {
    /// Its version, such as `10.0.2`.
    pub version: String,
    /// The commands that it knows.
    pub commands: Vec<Command>,
}

/// A command of the agent's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Command {
    /// Its name, such as `guest-ping`.
    pub name: String,
    /// Whether the agent allows it: its administrator, and frozen file systems, can disable it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enabled: bool,
}

/// A user who is logged in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// Name of the account.
    #[serde(rename = "userName")]
    pub name: String,
    /// Domain of the account (Windows).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Since when, in seconds since 1970.
    #[serde(rename = "loginTime", skip_serializing_if = "is_zero")]
    pub login_time: f64,
}

/// A mounted file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Filesystem {
    /// Name of its device, such as `sda1`.
    #[serde(rename = "diskName")]
    pub name: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Its type, such as `ext4`.
    #[serde(rename = "fileSystemType")]
    pub kind: String,
    /// Bytes in use.
    pub used_bytes: i64,
    pub total_bytes: i64,
    /// The disks that it is on.
    #[serde(rename = "disk", skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<FilesystemDisk>,
}

/// A disk of a file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesystemDisk {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    /// Its bus, such as `scsi` or `virtio`.
    #[serde(rename = "busType")]
    pub bus: String,
}

/// `guest-fsfreeze-status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FreezeStatus {
    /// File systems are frozen: the guest cannot write.
    Frozen,
    /// They are not.
    Thawed,
}

impl FreezeStatus {
    /// The agent's word, which is also KubeVirt's.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Frozen => "frozen",
            Self::Thawed => "thawed",
        }
    }
}

/// The guest's time zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timezone {
    /// Its name, such as `CET`; empty if the agent does not know it.
    pub name: String,
    /// Seconds east of UTC.
    pub offset: i64,
}

/// The guest's load average.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Over one minute.
    pub one: Option<f64>,
    /// Over five.
    pub five: Option<f64>,
    /// Over fifteen.
    pub fifteen: Option<f64>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "as serde passes the field"
)]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}
