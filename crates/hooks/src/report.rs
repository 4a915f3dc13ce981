//! The report that `launcherctl launcher hooks` shows: a launcher's sidecars and the changes of
//! each one's last call. The launcher writes it as JSON to
//! [`HOOKS_REPORT`](api::pod_paths::HOOKS_REPORT).

use std::path::Path;
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

impl Report {
    /// The report before the first call.
    pub fn new(sidecars: &[Sidecar]) -> Self {
        let point_report = |sidecar: &Sidecar, &(point, priority): &(HookPoint, i32)| {
            let order = calling_order(sidecars, point);
            let position = order.iter().position(|other| other.id == sidecar.id);
            HookPointReport {
                point,
                priority,
                order: position.map_or(0, |position| position + 1),
                calls: 0,
                last: None,
            }
        };
        let sidecar_report = |sidecar: &Sidecar| SidecarReport {
            name: sidecar.name.clone(),
            socket: sidecar.id.clone(),
            version: sidecar.version,
            points: sidecar
                .points
                .iter()
                .map(|point| point_report(sidecar, point))
                .collect(),
        };
        Self {
            sidecars: sidecars.iter().map(sidecar_report).collect(),
        }
    }

    pub fn record(&mut self, sidecar: &Sidecar, point: HookPoint, call: CallReport) {
        let all = self.sidecars.iter_mut();
        let of_sidecar = all.filter(|report| report.socket == sidecar.id);
        let mut points = of_sidecar.flat_map(|report| &mut report.points);
        if let Some(report) = points.find(|report| report.point == point) {
            report.calls = report.calls.saturating_add(1);
            report.last = Some(call);
        }
    }

    /// Replaces the file at `path` atomically.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, path)
    }
}
