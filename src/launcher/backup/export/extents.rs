//! Merges a disk's extents (`base:allocation`, dirty bitmap) for the backup's reader. Pure.
//!
//! ```text
//!   base:allocation      ├── data ──┼─ zero ─┼──── data ────┤
//!   dirty bitmap         ├─ clean ┼───────── dirty ─────────┤
//!   merged               ├─ clean ┼d┼ d,zero ┼─── dirty ────┤   flags: dirty 1, zero 2
//! ```

use api::proto::nbd::{Extent, MapResponse};

use crate::nbd::{self, STATE_DIRTY, STATE_ZERO};

/// Number of extents in one message.
const BATCH_SIZE: usize = 512;

/// Collects a disk's extents and joins equal neighbours.
pub(super) struct Extents {
    /// Whether a bitmap tells which extents have changed.
    incremental: bool,
    batch: Vec<Extent>,
    last: Option<Extent>,
}

impl Extents {
    pub fn new(incremental: bool) -> Self {
        Self {
            incremental,
            batch: Vec::new(),
            last: None,
        }
    }

    /// Adds the server's extents from `offset` to `end`, for each context. Returns the offset up to
    /// which they are known, and the messages to send.
    pub fn add(
        &mut self,
        offset: u64,
        end: u64,
        contexts: &[Vec<nbd::Extent>],
    ) -> (u64, Vec<MapResponse>) {
        let (mut at, mut full) = (offset, Vec::new());
        for (length, flags) in parts(self.incremental, contexts) {
            let length = length.min(end.saturating_sub(at));
            if length > 0 {
                full.extend(self.push(at, length, flags.into()));
                at = at.saturating_add(length);
            }
        }
        (at, full)
    }

    /// Returns the last message.
    pub fn finish(mut self) -> Option<MapResponse> {
        self.batch.extend(self.last.take());
        self.take_batch()
    }

    fn push(&mut self, offset: u64, length: u64, flags: u64) -> Option<MapResponse> {
        if let Some(last) = &mut self.last
            && last.flags == flags
            && last.offset.saturating_add(last.length) == offset
        {
            last.length = last.length.saturating_add(length);
            return None;
        }
        let next = Extent {
            offset,
            length,
            flags,
            description: description(self.incremental, flags).to_owned(),
        };
        self.batch.extend(self.last.replace(next));
        if self.batch.len() < BATCH_SIZE {
            return None;
        }
        self.take_batch()
    }

    fn take_batch(&mut self) -> Option<MapResponse> {
        let last = self.batch.last()?;
        let next_offset = last.offset.saturating_add(last.length);
        Some(MapResponse {
            extents: std::mem::take(&mut self.batch),
            next_offset,
        })
    }
}

/// Length and flags of consecutive extents.
// D-backup-7 (docs/differences.md).
fn parts(incremental: bool, contexts: &[Vec<nbd::Extent>]) -> Vec<(u64, u32)> {
    match contexts {
        [allocation] if !incremental => allocation
            .iter()
            .map(|extent| (extent.length, extent.flags))
            .collect(),
        [allocation, dirty] => merged(allocation, dirty),
        _ => Vec::new(),
    }
}

/// Merges both contexts up to the end of the shorter one.
fn merged(allocation: &[nbd::Extent], dirty: &[nbd::Extent]) -> Vec<(u64, u32)> {
    let (mut allocation, mut dirty) = (allocation.iter().copied(), dirty.iter().copied());
    let (mut one, mut other) = (allocation.next(), dirty.next());
    let mut parts = Vec::new();
    while let (Some(a), Some(d)) = (&mut one, &mut other) {
        let length = a.length.min(d.length);
        parts.push((length, (a.flags & STATE_ZERO) | (d.flags & STATE_DIRTY)));
        a.length = a.length.saturating_sub(length);
        d.length = d.length.saturating_sub(length);
        if a.length == 0 {
            one = allocation.next();
        }
        if d.length == 0 {
            other = dirty.next();
        }
    }
    parts
}

fn description(incremental: bool, flags: u64) -> &'static str {
    match (incremental, flags) {
        (false, 0) => "data",
        (false, 1) => "hole",
        (false, 3) => "hole,zero",
        (true, 0) => "clean",
        (true, 1) => "dirty",
        (true, 3) => "dirty,zero",
        (_, 2) => "zero",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(parts: &[(u64, u32)]) -> Vec<nbd::Extent> {
        let extent = |&(length, flags): &(u64, u32)| nbd::Extent { length, flags };
        parts.iter().map(extent).collect()
    }

    fn shown(messages: &[MapResponse]) -> Vec<(u64, u64, String)> {
        let extents = messages.iter().flat_map(|message| &message.extents);
        extents
            .map(|it| (it.offset, it.length, it.description.clone()))
            .collect()
    }

    #[test]
    fn neighbours_that_are_the_same_are_one_extent_also_across_answers() {
        let mut all = Extents::new(false);
        let (at, sent) = all.add(10, 100, &[extents(&[(5, 0), (5, 0), (10, 3), (0, 2)])]);
        assert_eq!((at, sent.len()), (30, 0));
        // The last extent goes beyond the end.
        let (at, _) = all.add(30, 100, &[extents(&[(30, 3), (1000, 1)])]);
        assert_eq!(at, 100);
        let last = all.finish().unwrap();
        assert_eq!(last.next_offset, 100);
        let expected = [(10, 10, "data"), (20, 40, "hole,zero"), (60, 40, "hole")];
        assert_eq!(
            shown(&[last]),
            expected.map(|(at, length, text)| (at, length, text.to_owned()))
        );
    }

    #[test]
    fn what_has_changed_is_merged_with_what_is_zero() {
        let mut all = Extents::new(true);
        let allocation = extents(&[(10, 0), (10, 3), (10, 1)]);
        let (at, _) = all.add(0, 30, &[allocation, extents(&[(5, 0), (20, 1), (5, 0)])]);
        assert_eq!(at, 30);
        let expected = [
            (0, 5, "clean"),
            (5, 5, "dirty"),
            (10, 10, "dirty,zero"),
            (20, 5, "dirty"),
            (25, 5, "clean"),
        ];
        assert_eq!(
            shown(&[all.finish().unwrap()]),
            expected.map(|(at, length, text)| (at, length, text.to_owned()))
        );
    }

    #[test]
    // D-backup-7 (docs/differences.md).
    fn where_one_context_says_less_the_rest_is_asked_for_again() {
        let mut all = Extents::new(true);
        let (at, _) = all.add(0, 100, &[extents(&[(10, 0)]), extents(&[(100, 1)])]);
        assert_eq!(at, 10);
        let (at, _) = all.add(0, 100, &[extents(&[(10, 0)]), Vec::new()]);
        assert_eq!(at, 0);
    }

    #[test]
    fn messages_have_at_most_512_extents() {
        let mut all = Extents::new(false);
        let many: Vec<(u64, u32)> = (0..1500).map(|n| (1, n % 2)).collect();
        let (at, mut sent) = all.add(0, 1500, &[extents(&many)]);
        assert_eq!(at, 1500);
        sent.extend(all.finish());
        let sizes: Vec<usize> = sent.iter().map(|it| it.extents.len()).collect();
        assert_eq!(sizes, [512, 512, 476]);
        let next: Vec<u64> = sent.iter().map(|it| it.next_offset).collect();
        assert_eq!(next, [512, 1024, 1500]);
    }
}
