//! What a running domain needs so that it becomes the wanted one. Pure: two domains in, a list of
//! changes out; nobody is asked and nothing is touched.
//!
//! ```text
//!  live (what libvirt reports) ──┐
//!                                ├──► disks() ──► detach, then attach, then update
//!  wanted (what convert made) ───┤
//!                                ├──► growth() ─► resize
//!  sizes (of claims) ────────────┘
//! ```
//!
//! Done in that order, a domain that allows each step is in a valid state after every one of them:
//! a target is free before a disk is attached to it, and a volume has left its old disk before it
//! appears on another.

mod disks;
mod growth;
mod why;

use crate::domain::disk::Disk;

pub use disks::disks;
pub use growth::{Size, growth};
pub use why::Why;

/// A disk to act on.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// For a detach the live disk, for an attach the wanted one, for an update the live one with its
    /// new medium: what libvirt's call takes, as XML.
    pub disk: Disk,
    /// What the change is for.
    pub why: Why,
}

/// A disk that grows while the guest runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    /// The wanted disk, and why it grows.
    pub change: Change,
    /// How far.
    pub to: NewSize,
}

/// What a disk grows to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewSize {
    /// To this size.
    Bytes(u64),
    /// To whatever its device has.
    Device,
}

/// What to do with the disks of a running domain, see [`disks`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskPlan {
    /// Disks to unplug, first; in the order of the live domain.
    pub detach: Vec<Change>,
    /// Disks to plug in, second; in the order of the wanted domain.
    pub attach: Vec<Change>,
    /// CD-ROMs whose medium changes, third; in the order of the live domain.
    pub update: Vec<Change>,
    /// Disks that grow, last; in the order of the wanted domain. See [`growth`].
    pub resize: Vec<Resize>,
    /// Wanted disks that a running domain cannot get: nothing to do, but worth telling.
    pub kept: Vec<Change>,
}

impl DiskPlan {
    /// Whether the live domain is as it should be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }

    /// The changes in the order in which they are to be made, each with its verb.
    pub fn steps(&self) -> impl Iterator<Item = (&'static str, &Change)> {
        let lists = [("detach", &self.detach), ("attach", &self.attach), ("update", &self.update)];
        let resizes = self.resize.iter().map(|resize| ("resize", &resize.change));
        lists.into_iter().flat_map(|(verb, changes)| changes.iter().map(move |change| (verb, change))).chain(resizes)
    }
}

/// The plan for programs: `{"detach":[…],"attach":[…],"update":[…]}`, lists of `<disk>` documents.
#[must_use]
pub fn to_json(plan: &DiskPlan) -> String {
    let documents = |changes: &[Change]| changes.iter().map(|change| change.disk.to_xml()).collect::<Vec<_>>();
    serde_json::json!({
        "detach": documents(&plan.detach),
        "attach": documents(&plan.attach),
        "update": documents(&plan.update),
    })
    .to_string()
}
