//! Checkpoints that libvirt has forgotten, as with the domain's end, while their bitmaps are still
//! in the overlays.

use api::backup::BackupCheckpoint;
use domain::backup::{CheckpointDisk, CheckpointDisks, CheckpointKind, DomainCheckpoint};
use domain::disks::Disk;
use domain::metadata::Time;
use serde::Deserialize;

/// The command for QEMU's monitor; [`redefinition`] reads the answer. `qemu-img` does not see
/// bitmaps that QEMU has not written yet.
pub const QUERY_BLOCK_NODES: &str =
    r#"{"execute":"query-named-block-nodes","arguments":{"flat":true}}"#;

/// Why a checkpoint cannot be redefined.
#[derive(Debug, thiserror::Error)]
pub enum RedefineError {
    /// The checkpoint in the request cannot be decoded.
    #[error("Redefine checkpoint failed: invalid checkpoint info")]
    Json(#[source] serde_json::Error),
    /// It has no name.
    #[error("Redefine checkpoint failed: the checkpoint has no name")]
    NoName,
    /// Its time is not one.
    #[error("Redefine checkpoint failed: creationTime {0:?} is not a time as of RFC 3339")]
    Time(String),
    /// QEMU's answer cannot be used.
    #[error("QEMU's list of block nodes cannot be read")]
    BlockNodes(#[source] serde_json::Error),
    /// No disk has its bitmap.
    #[error("no disks found with checkpoint bitmap {0}")]
    NoBitmap(String),
}

/// The answer to [`QUERY_BLOCK_NODES`].
#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    nodes: Vec<BlockNode>,
}

#[derive(Deserialize)]
struct BlockNode {
    #[serde(default)]
    file: String,
    #[serde(default, rename = "dirty-bitmaps")]
    bitmaps: Vec<Bitmap>,
}

#[derive(Deserialize)]
struct Bitmap {
    #[serde(default)]
    name: String,
    /// It was not written to the end, and says nothing.
    #[serde(default)]
    inconsistent: bool,
}

/// The checkpoint on all disks that have its bitmap in their overlays. `block_nodes` is QEMU's
/// answer to [`QUERY_BLOCK_NODES`].
///
/// # Errors
/// No disk has the bitmap, or something cannot be read.
pub fn redefinition(
    disks: &[Disk],
    checkpoint: &BackupCheckpoint,
    block_nodes: &str,
) -> Result<DomainCheckpoint, RedefineError> {
    let name = &checkpoint.name;
    if name.is_empty() {
        return Err(RedefineError::NoName);
    }
    let creation_time = checkpoint.creation_time.as_ref();
    let creation_time = creation_time
        .map(|text| text.parse().map_err(|_| RedefineError::Time(text.clone())))
        .transpose()?
        .map(Time::as_second);
    let answer: Answer = serde_json::from_str(block_nodes).map_err(RedefineError::BlockNodes)?;
    let has_bitmap = |file: &str| {
        let nodes = answer.nodes.iter().filter(|node| node.file == file);
        let mut bitmaps = nodes.flat_map(|node| &node.bitmaps);
        bitmaps.any(|bitmap| bitmap.name == *name && !bitmap.inconsistent)
    };
    let is_tracked = |disk: &&Disk| {
        let overlay = &disk.source.file;
        disk.source.data_store.is_some() && !disk.target.device.is_empty() && has_bitmap(overlay)
    };
    let disks: Vec<CheckpointDisk> = disks
        .iter()
        .filter(is_tracked)
        .map(|disk| CheckpointDisk {
            name: disk.target.device.clone(),
            checkpoint: CheckpointKind::Bitmap,
        })
        .collect();
    if disks.is_empty() {
        return Err(RedefineError::NoBitmap(name.clone()));
    }
    Ok(DomainCheckpoint {
        name: name.clone(),
        disks: CheckpointDisks { disks },
        creation_time,
    })
}

impl RedefineError {
    /// The next backup has to be a full one.
    #[must_use]
    pub fn is_checkpoint_invalid(&self) -> bool {
        matches!(self, Self::NoBitmap(_))
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
