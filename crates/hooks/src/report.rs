//! The report that `launcherctl hooks` shows: the sidecars of a launcher, and what the last call of each
//! changed. The launcher writes it as JSON to [`HOOKS_REPORT`](api::pod_paths::HOOKS_REPORT).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::diff::Changes;
use super::sidecar::{HookPoint, Sidecar, Version, calling_order};

/// All sidecars, in natural order of their sockets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One entry per sidecar.
    pub sidecars: Vec<SidecarReport>,
}

/// One sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarReport {
    /// The name from its `Info`.
    pub name: String,
    /// Its socket, as a path below the hooks directory.
    pub socket: String,
    /// The protocol version that it is called in.
    pub version: Version,
    /// The hook points that it subscribes to.
    pub points: Vec<HookPointReport>,
}

/// One hook point of one sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookPointReport {
    /// Which hook point.
    pub point: HookPoint,
    /// The sidecar's priority there.
    pub priority: i32,
    /// The sidecar's position in the calling order there, from 1.
    pub order: usize,
    /// How often it was called.
    pub calls: u64,
    /// The last call, if there was one.
    pub last: Option<CallReport>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallReport {
    /// How long it took.
    pub microseconds: u64,
    /// What it changed.
    #[serde(flatten)]
    pub changes: Changes,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl CallReport {
    /// A call that took `time` and made these changes.
    pub fn succeeded(time: Duration, changes: Changes) -> Self {
        Self {
            microseconds: microseconds(time),
            changes,
            error: None,
        }
    }

    /// A call that failed after `time`.
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

/// The calls so far, by [`Sidecar::id`] and hook point: how many, and the last one.
#[derive(Debug, Default)]
pub struct CallLog(BTreeMap<(String, HookPoint), (u64, CallReport)>);

impl CallLog {
    /// Adds a call.
    pub fn record(&mut self, sidecar: &Sidecar, point: HookPoint, call: CallReport) {
        let key = (sidecar.id.clone(), point);
        let calls = self.0.get(&key).map_or(0, |(calls, _)| *calls);
        self.0.insert(key, (calls.saturating_add(1), call));
    }

    /// The last call of a sidecar at a hook point.
    pub fn last(&self, sidecar: &Sidecar, point: HookPoint) -> Option<&CallReport> {
        self.get(sidecar, point).map(|(_, last)| last)
    }

    fn get(&self, sidecar: &Sidecar, point: HookPoint) -> Option<&(u64, CallReport)> {
        self.0.get(&(sidecar.id.clone(), point))
    }
}

impl Report {
    /// The report on `sidecars`.
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
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, path)
    }
}
