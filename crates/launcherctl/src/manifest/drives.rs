//! A VMI's CD-ROM drives. A drive without a volume is empty: a volume of its name is the medium
//! inserted while the guest runs.

use serde_json::Value;

use super::{DISKS, VOLUMES};
use crate::json::{find_named, is_object_at, list_at, text_at};

/// Whether the disk `name` of a VMI is a CD-ROM drive, empty or not.
pub fn is_drive(vmi: &Value, name: &str) -> bool {
    find_named(vmi, DISKS, name).is_some_and(|disk| is_object_at(disk, "/cdrom"))
}

/// The names of a VMI's drives without a medium.
pub fn empty_drives(vmi: &Value) -> impl Iterator<Item = &str> {
    let disks = list_at(vmi, DISKS).iter();
    let drives = disks.filter(|disk| is_object_at(disk, "/cdrom"));
    let names = drives.map(|disk| text_at(disk, "/name"));
    names.filter(|name| find_named(vmi, VOLUMES, name).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_drive_without_a_volume_is_empty() {
        let vmi = json!({"spec": {
            "volumes": [{"name": "seed"}, {"name": "root"}],
            "domain": {"devices": {"disks": [{"name": "root", "disk": {}}, {"name": "seed", "cdrom": {}},
                {"name": "cd2", "cdrom": {"bus": "sata"}}, {"name": "other", "disk": {}}]}},
        }});
        assert!(is_drive(&vmi, "seed") && is_drive(&vmi, "cd2"));
        assert!(!is_drive(&vmi, "root") && !is_drive(&vmi, "cd3"));
        assert_eq!(empty_drives(&vmi).collect::<Vec<_>>(), ["cd2"]);
    }
}
