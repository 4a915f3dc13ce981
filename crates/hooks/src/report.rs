//! The report that `launcherctl launcher hooks` shows: a launcher's sidecars and the changes of
//! each one's last call. The launcher writes it as JSON to
//! [`HOOKS_REPORT`](api::pod_paths::HOOKS_REPORT).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::diff::Changes;
use super::sidecar::{HookPoint, Sidecar, Version, calling_order};

/// The sidecars in natural order of their sockets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub sidecars: Vec<SidecarReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarReport {
    /// The name in its answer to `Info`.
    pub name: String,
    /// The socket's path below the hooks directory.
    pub socket: String,
    /// The protocol version in use.
    pub version: Version,
    pub points: Vec<HookPointReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookPointReport {
    pub point: HookPoint,
    /// The sidecar's priority at the hook point.
    pub priority: i32,
    /// The sidecar's position in the calling order, from 1.
    pub order: usize,
    pub calls: u64,
    /// The last call, if any.
    pub last: Option<CallReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallReport {
    pub microseconds: u64,
    #[serde(flatten)]
    pub changes: Changes,
    pub error: Option<String>,
}

impl CallReport {
    pub fn succeeded(time: Duration, changes: Changes) -> Self {
        Self {
            microseconds: microseconds(time),
            changes,
            error: None,
        }
    }

    pub fn failed(time: Duration, error: String) -> Self {
        Self {
            microseconds: microseconds(time),
            changes: Changes::default(),
            error: Some(error),
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The number of calls so far and the last one, by [`Sidecar::id`] and hook point.
#[derive(Debug, Default)]
pub struct CallLog(BTreeMap<(String, HookPoint), (u64, CallReport)>);

impl CallLog {
    pub fn record(&mut self, sidecar: &Sidecar, point: HookPoint, call: CallReport) {
        let key = (sidecar.id.clone(), point);
        let calls = self.0.get(&key).map_or(0, |(calls, _)| *calls);
        self.0.insert(key, (calls.saturating_add(1), call));
    }

    pub fn last(&self, sidecar: &Sidecar, point: HookPoint) -> Option<&CallReport> {
        self.get(sidecar, point).map(|(_, last)| last)
    }

    fn get(&self, sidecar: &Sidecar, point: HookPoint) -> Option<&(u64, CallReport)> {
        self.0.get(&(sidecar.id.clone(), point))
    }
}

impl Report {
    pub fn new(sidecars: &[Sidecar], log: &CallLog) -> Self {
        let point_report = |sidecar: &Sidecar, point, priority| {
            let order = calling_order(sidecars, point);
            let position = order.iter().position(|other| other.id == sidecar.id);
            let calls = log.get(sidecar, point);
            HookPointReport {
                point,
                priority,
                order: position.map_or(0, |position| position + 1),
                calls: calls.map_or(0, |(count, _)| *count),
                last: calls.map(|(_, last)| last.clone()),
            }
        };
        let sidecar_report = |sidecar: &Sidecar| SidecarReport {
            name: sidecar.name.clone(),
            socket: sidecar.id.clone(),
            version: sidecar.version,
            points: sidecar
                .points
                .iter()
                .map(|&(point, priority)| point_report(sidecar, point, priority))
                .collect(),
        };
        Self {
            sidecars: sidecars.iter().map(sidecar_report).collect(),
        }
    }

    /// Replaces the file at `path` atomically.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, path)
    }
}
