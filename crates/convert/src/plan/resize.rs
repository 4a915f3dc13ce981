//! Which disks of the running domain can be resized, because their claim is larger than what the
//! guest sees.
//!
//! | data of the disk | new size |
//! |---|---|
//! | image file | what fits into the claim |
//! | block device | the whole device |
//! | file or block device below a changed block tracking overlay | size of that file or device |
//!
//! Nothing ever shrinks. A disk that the guest cannot write, or that holds another volume, is left
//! as it is.

use super::disks::{is_same_volume, volume};
use super::{DiskChange, Resize, Why};
use domain::DomainSpec;
use domain::disks::Disk;

/// Sizes of a disk in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSize {
    /// The size that the guest sees; 0 if QEMU does not know.
    pub current: u64,
    /// What its claim has for it.
    pub available: u64,
}

/// The disks of the `live` domain to resize, in the order of the `wanted` one. `size` knows only
/// disks on claims, as no others may grow.
#[must_use]
pub fn resizes(
    live: &DomainSpec,
    wanted: &DomainSpec,
    size: impl Fn(&Disk) -> Option<DiskSize>,
) -> Vec<Resize> {
    let resized = |new: &Disk| {
        let mut live = live.devices.disks.iter();
        let old = live.find(|disk| disk.target.device == new.target.device)?;
        let can_grow = is_same_volume(old, new) && old.read_only.is_none();
        let size = can_grow.then(|| size(new))??;
        (0 < size.current && size.current < size.available).then(|| resize(new, size))
    };
    wanted.devices.disks.iter().filter_map(resized).collect()
}

fn resize(disk: &Disk, DiskSize { current, available }: DiskSize) -> Resize {
    // libvirt takes the device's own size only where QEMU has the device itself open, without an
    // overlay.
    let is_device = !disk.source.dev.is_empty() && disk.source.data_store.is_none();
    let why = Why::Grown {
        volume: volume(disk),
        from: current,
        to: available,
    };
    Resize {
        change: DiskChange::new(disk, why),
        bytes: (!is_device).then_some(available),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"<disk type="file" device="disk"><source file="/a.img"/><target dev="vda" bus="virtio"/><alias name="ua-data"/></disk>"#;
    const DEVICE: &str = r#"<disk type="block" device="disk"><source dev="/dev/a"/><target dev="vda" bus="virtio"/><alias name="ua-data"/></disk>"#;

    fn domain(disk: &str) -> DomainSpec {
        DomainSpec::from_xml(&format!("<domain><devices>{disk}</devices></domain>")).unwrap()
    }

    /// What becomes of `vda`, which the guest sees with 8 bytes.
    fn grown(
        live: &str,
        wanted: &str,
        current: u64,
        available: u64,
    ) -> Option<(Option<u64>, String)> {
        let size = |_: &Disk| Some(DiskSize { current, available });
        let found = resizes(&domain(live), &domain(wanted), size);
        found
            .into_iter()
            .next()
            .map(|resize| (resize.bytes, resize.change.why.to_string()))
    }

    #[test]
    fn a_file_is_resized_to_what_fits_and_a_device_to_its_whole_size() {
        let why = r#"the claim of volume "data" has grown: 9 bytes instead of 8"#.to_owned();
        assert_eq!(grown(FILE, FILE, 8, 9), Some((Some(9), why.clone())));
        assert_eq!(grown(DEVICE, DEVICE, 8, 9), Some((None, why)));
    }

    #[test]
    // D-disk-6 (docs/differences.md).
    fn an_overlay_is_resized_to_the_size_of_its_data() {
        let overlay = r#"<source file="/o.qcow2"><dataStore type="block"><source dev="/dev/a"/></dataStore></source>"#;
        let tracked = DEVICE.replace(r#"<source dev="/dev/a"/>"#, overlay);
        assert_eq!(grown(&tracked, &tracked, 8, 9).unwrap().0, Some(9));
    }

    #[test]
    fn nothing_shrinks() {
        for disk in [FILE, DEVICE] {
            assert_eq!(grown(disk, disk, 9, 8), None);
            assert_eq!(grown(disk, disk, 8, 8), None);
        }
    }

    #[test]
    fn a_disk_without_a_claim_or_of_unknown_size_is_not_resized() {
        assert_eq!(grown(FILE, FILE, 0, 9), None);
        assert!(resizes(&domain(FILE), &domain(FILE), |_| None).is_empty());
    }

    #[test]
    // D-disk-5 (docs/differences.md).
    fn only_a_writable_disk_that_holds_the_wanted_volume_is_resized() {
        assert_eq!(grown(&FILE.replace("/a.img", "/b.img"), FILE, 8, 9), None);
        assert_eq!(grown(&FILE.replace("vda", "vdb"), FILE, 8, 9), None);
        assert_eq!(
            grown(&FILE.replace("<target", "<readonly/><target"), FILE, 8, 9),
            None
        );
    }
}
