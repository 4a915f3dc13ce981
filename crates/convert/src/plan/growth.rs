//! Which disks of the running domain have room to grow.
//!
//! | the claim's | has room for more than the guest sees | |
//! |---|---|---|
//! | image file | | resized to what fits |
//! | block device | | resized to the whole device |
//! | block device or file below an overlay that tracks changes | | resized to the size of what is below |
//!
//! Nothing ever shrinks. A disk that the guest cannot write, or that is not the wanted volume's, is left alone.

use std::collections::BTreeMap;

use super::disks::{is_same_volume, volume};
use super::{Change, NewSize, Resize, Why};
use domain::disk::Disk;
use domain::{Domain, Text};

/// How large a disk is, and could be; in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// What the guest sees; 0 if QEMU cannot tell.
    pub guest: u64,
    /// What it could see.
    pub room: u64,
}

/// The disks of the `live` domain to resize, in the order of the `wanted` one. `sizes` has those that may grow, by
/// target: claims, and no others.
#[must_use]
pub fn growth(live: &Domain, wanted: &Domain, sizes: &BTreeMap<Text, Size>) -> Vec<Resize> {
    let live_at = |target: &Text| {
        live.devices
            .disks
            .iter()
            .find(|disk| disk.target.device == *target)
    };
    let grown = |new: &Disk| {
        let (old, size) = (live_at(&new.target.device)?, sizes.get(&new.target.device)?);
        let can_grow = is_same_volume(old, new) && old.read_only.is_none() && size.guest > 0;
        (can_grow && size.room > size.guest).then(|| resize(new, *size))
    };
    wanted.devices.disks.iter().filter_map(grown).collect()
}

fn resize(disk: &Disk, Size { guest, room }: Size) -> Resize {
    // libvirt takes the device's own size only where QEMU has the device itself open, without an overlay.
    let is_device = !disk.source.dev.is_empty() && disk.source.data_store.is_none();
    let to = if is_device {
        NewSize::Device
    } else {
        NewSize::Bytes(room)
    };
    Resize {
        change: Change {
            disk: disk.clone(),
            why: Why::Grown {
                volume: volume(disk),
                from: guest,
                to: room,
            },
        },
        to,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: &str = r#"<disk type="file" device="disk"><source file="/a.img"/><target dev="vda" bus="virtio"/><alias name="ua-data"/></disk>"#;
    const DEVICE: &str = r#"<disk type="block" device="disk"><source dev="/dev/a"/><target dev="vda" bus="virtio"/><alias name="ua-data"/></disk>"#;

    fn domain(disk: &str) -> Domain {
        Domain::from_xml(&format!("<domain><devices>{disk}</devices></domain>")).unwrap()
    }

    /// What becomes of `vda`, which the guest sees with 8 bytes.
    fn grown(live: &str, wanted: &str, guest: u64, room: u64) -> Option<(NewSize, String)> {
        let sizes = [(Text::from("vda"), Size { guest, room })].into();
        let found = growth(&domain(live), &domain(wanted), &sizes);
        found
            .into_iter()
            .next()
            .map(|resize| (resize.to, resize.change.why.to_string()))
    }

    #[test]
    fn a_file_grows_to_the_size_that_fits_and_a_device_as_a_whole() {
        let why = r#"the claim of volume "data" has grown: 9 bytes instead of 8"#.to_owned();
        assert_eq!(
            grown(FILE, FILE, 8, 9),
            Some((NewSize::Bytes(9), why.clone()))
        );
        assert_eq!(grown(DEVICE, DEVICE, 8, 9), Some((NewSize::Device, why)));
    }

    #[test]
    fn an_overlay_grows_to_the_size_of_what_is_below() {
        let overlay = r#"<source file="/o.qcow2"><dataStore type="block"><source dev="/dev/a"/></dataStore></source>"#;
        let tracked = DEVICE.replace(r#"<source dev="/dev/a"/>"#, overlay);
        assert_eq!(
            grown(&tracked, &tracked, 8, 9).unwrap().0,
            NewSize::Bytes(9)
        );
    }

    #[test]
    fn nothing_shrinks_and_what_has_its_size_stays() {
        for disk in [FILE, DEVICE] {
            assert_eq!(grown(disk, disk, 9, 8), None);
            assert_eq!(grown(disk, disk, 8, 8), None);
        }
    }

    #[test]
    fn what_is_no_claim_or_of_unknown_size_is_left_alone() {
        assert_eq!(grown(FILE, FILE, 0, 9), None);
        assert!(growth(&domain(FILE), &domain(FILE), &BTreeMap::new()).is_empty());
    }

    #[test]
    fn only_the_wanted_volume_of_a_live_disk_that_can_be_written_grows() {
        assert_eq!(grown(&FILE.replace("/a.img", "/b.img"), FILE, 8, 9), None);
        assert_eq!(grown(&FILE.replace("vda", "vdb"), FILE, 8, 9), None);
        assert_eq!(
            grown(&FILE.replace("<target", "<readonly/><target"), FILE, 8, 9),
            None
        );
    }
}
