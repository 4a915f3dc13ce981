//! The target device name of each disk, `<target dev='vda'>` (`sda` on SATA, SCSI and USB). A name
//! recorded in the status is used again; others take the first free one. The SCSI unit is the
//! number of the name.

use api::vmi::disks::Disk;
use api::vmi::status::VolumeStatus;
use domain::disks::DiskBus;
use std::collections::BTreeMap;

/// Names have at most three letters.
const LIMIT: usize = 26 * 26 * 26;

/// Names in use.
#[derive(Debug, Default)]
pub(super) struct Names {
    taken: Vec<Taken>,
    /// All names before this number are taken.
    free_from: BTreeMap<Prefix, usize>,
}

#[derive(Debug)]
struct Taken {
    prefix: Prefix,
    disk: String,
    name: String,
}

/// What the name of a disk starts with. Buses whose names count together share a prefix; another
/// bus than these has none.
type Prefix = &'static str;

fn prefix(bus: &DiskBus) -> Prefix {
    match bus {
        DiskBus::Virtio => "vd",
        DiskBus::Sata | DiskBus::Scsi | DiskBus::Usb => "sd",
        _ => "",
    }
}

impl Names {
    /// Reserves the names that the status has recorded.
    pub(super) fn new(status: &[VolumeStatus], disks: &[Disk]) -> Self {
        let mut names = Self {
            taken: Vec::with_capacity(disks.len()),
            ..Self::default()
        };
        for disk in disks.iter().filter(|disk| disk.has_device()) {
            let known = status
                .iter()
                .rfind(|volume| volume.name == disk.name && !volume.target.is_empty());
            if let Some(known) = known {
                let bus = DiskBus::from(disk.bus().as_str());
                names.take(prefix(&bus), disk.name.clone(), known.target.clone());
            }
        }
        names
    }

    fn take(&mut self, prefix: Prefix, disk: String, name: String) {
        self.taken.push(Taken { prefix, disk, name });
    }

    /// The disk's name on that bus, and the number of that name. A recorded name of another kind
    /// has the number 0; when all names are taken the name is empty.
    pub(super) fn name(&mut self, disk: &String, bus: &DiskBus) -> (String, usize) {
        let prefix = prefix(bus);
        let same_prefix = |taken: &&Taken| taken.prefix == prefix;
        if let Some(known) = self
            .taken
            .iter()
            .filter(same_prefix)
            .find(|taken| taken.disk == *disk)
        {
            return (known.name.clone(), number(prefix, &known.name).unwrap_or(0));
        }
        let is_free = |name: &String| {
            !self
                .taken
                .iter()
                .filter(same_prefix)
                .any(|taken| taken.name == *name)
        };
        let first = self.free_from.get(prefix).copied().unwrap_or(0);
        let mut names = (first..LIMIT).map(|number| (format(prefix, number), number));
        match names.find(|(name, _)| is_free(name)) {
            Some((name, number)) => {
                self.free_from.insert(prefix, number + 1);
                self.take(prefix, disk.clone(), name.clone());
                (name, number)
            }
            None => (String::default(), 0),
        }
    }
}

/// `a` to `z`, then `aa`, `ab`, ….
fn format(prefix: &str, mut number: usize) -> String {
    let mut letters = Vec::with_capacity(3);
    loop {
        letters.push(b'a' + u8::try_from(number % 26).unwrap_or_default());
        if number < 26 {
            break;
        }
        number = number / 26 - 1;
    }
    let mut name = String::from(prefix);
    name.extend(letters.into_iter().rev().map(char::from));
    name
}

/// The number of a name with that prefix; `None` if it is not one of the [`LIMIT`] names.
fn number(prefix: &str, name: &str) -> Option<usize> {
    let letters = name.strip_prefix(prefix)?;
    if letters.is_empty()
        || letters.len() > 3
        || !letters.bytes().all(|letter| letter.is_ascii_lowercase())
    {
        return None;
    }
    let number = letters.bytes().fold(0, |number, letter| {
        number * 26 + usize::from(letter - b'a') + 1
    }) - 1;
    (number < LIMIT).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_count_like_the_kernel_does() {
        for (count, name) in [
            (0, "sda"),
            (25, "sdz"),
            (26, "sdaa"),
            (701, "sdzz"),
            (702, "sdaaa"),
            (LIMIT - 1, "sdyyz"),
        ] {
            assert_eq!(format("sd", count), name);
            assert_eq!(number("sd", name), Some(count), "{name}");
        }
        for other in ["vda", "sd", "sdA", "sdzzz", "sdaaaa", "sd1"] {
            assert_eq!(number("sd", other), None, "{other}");
        }
    }

    #[test]
    // D-disk-3 (docs/differences.md).
    fn a_recorded_name_is_kept_and_not_given_twice() {
        let disk = |name: &str| Disk {
            name: name.into(),
            disk: Some(api::vmi::disks::DiskTarget {
                bus: "sata".into(),
                ..Default::default()
            }),
            ..Disk::default()
        };
        let status = [VolumeStatus {
            name: "second".into(),
            target: "sda".into(),
            ..VolumeStatus::default()
        }];
        let mut names = Names::new(&status, &[disk("first"), disk("second")]);
        assert_eq!(
            names.name(&"first".into(), &DiskBus::Sata),
            ("sdb".into(), 1)
        );
        assert_eq!(
            names.name(&"second".into(), &DiskBus::Usb),
            ("sda".into(), 0)
        );
        assert_eq!(
            names.name(&"third".into(), &DiskBus::Virtio),
            ("vda".into(), 0)
        );
    }
}
