//! What `launcherctl hooks` shows: the sidecars of a launcher and what each did last.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::diff::Change;
use super::sidecar::{Point, Sidecar, Version};

/// Most changes that are kept of a run.
const CHANGES: usize = 200;

/// All sidecars, in the order of their sockets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One for each sidecar.
    pub sidecars: Vec<SidecarReport>,
}

/// One sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarReport {
    /// The name it gives itself.
    pub name: String,
    /// Its socket, below the directory of the sockets.
    pub socket: String,
    /// The version it is spoken to in.
    pub version: Version,
    /// The points it is called at.
    pub points: Vec<PointReport>,
}

/// One point of one sidecar.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PointReport {
    /// Which.
    pub point: Point,
    /// Its priority there.
    pub priority: i32,
    /// Its place in the order of those called at this point, from 1.
    pub order: usize,
    /// How often it was called.
    pub calls: u64,
    /// The last call, if there was one.
    pub last: Option<Run>,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// How long it took.
    pub microseconds: u64,
    /// What it changed; at most the first 200 changes.
    pub changes: Vec<Change>,
    /// How many changes there were.
    pub changed: usize,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

impl Run {
    /// A call that took `time` and changed this.
    pub fn new(time: std::time::Duration, mut changes: Vec<Change>, error: Option<String>) -> Self {
        let changed = changes.len();
        changes.truncate(CHANGES);
        Self {
            microseconds: u64::try_from(time.as_micros()).unwrap_or(u64::MAX),
            changes,
            changed,
            error,
        }
    }
}

/// The last run and the number of calls, for each socket and point.
pub type Runs = BTreeMap<(String, Point), (u64, Option<Run>)>;

impl Report {
    /// The report on `sidecars`.
    pub fn new(sidecars: &[Sidecar], runs: &Runs) -> Self {
        let order = |sidecar: &Sidecar, point| {
            let called = super::sidecar::ordered(sidecars, point);
            called
                .iter()
                .position(|other| other.place == sidecar.place)
                .map_or(0, |at| at + 1)
        };
        let one = |sidecar: &Sidecar| SidecarReport {
            name: sidecar.name.clone(),
            socket: sidecar.place.clone(),
            version: sidecar.version,
            points: sidecar
                .points
                .iter()
                .map(|&(point, priority)| {
                    let (calls, last) = runs
                        .get(&(sidecar.place.clone(), point))
                        .cloned()
                        .unwrap_or_default();
                    PointReport {
                        point,
                        priority,
                        order: order(sidecar, point),
                        calls,
                        last,
                    }
                })
                .collect(),
        };
        Self {
            sidecars: sidecars.iter().map(one).collect(),
        }
    }

    /// Writes it to `path`, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn save(&self, path: &Path) -> std::io::Result<()> {
        let new = path.with_extension("new");
        tokio::fs::write(&new, serde_json::to_vec(self)?).await?;
        tokio::fs::rename(&new, path).await
    }
}
