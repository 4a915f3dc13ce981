//! The table of `launcherctl volumes`: the VM's volumes and empty CD-ROM drives, with libvirt's
//! names.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::json::{list_at, set, text_at, text_or_dash};
use crate::manifest::drives;
use crate::view::size::human_size;
use pod::Root;

/// Where a disk in Domain JSON names its files.
const IMAGE_FILES: [&str; 3] = [
    "/Source/File",
    "/Source/DataStore/Source/File",
    "/BackingStore/Source/File",
];

/// The disk of a volume in Domain JSON.
fn find_disk<'a>(domain: &'a Value, name: &str) -> Option<&'a Value> {
    list_at(domain, "/Spec/Devices/Disks")
        .iter()
        .find(|disk| text_at(disk, "/Alias/Name") == name)
}

/// Like [`find_disk`], except for a CD-ROM drive without a medium.
pub fn find_attached<'a>(domain: &'a Value, name: &str) -> Option<&'a Value> {
    find_disk(domain, name).filter(|disk| !drives::is_empty(disk))
}

/// The disk that uses this very file, under any name.
pub fn find_disk_of_file<'a>(domain: &'a Value, file: &Path) -> Option<&'a Value> {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let wanted = identity(file)?;
    let has_it = |disk: &&Value| {
        let files = IMAGE_FILES.map(|file| Path::new(text_at(disk, file)));
        files.map(identity).contains(&Some(wanted))
    };
    let disks = list_at(domain, "/Spec/Devices/Disks");
    disks.iter().find(has_it)
}

/// The row of a volume, or of an empty drive, from Domain JSON.
pub fn row(root: &Root, domain: &Value, name: &str) -> Value {
    let Some(disk) = find_disk(domain, name) else {
        return json!({"name": name, "state": "not attached"});
    };
    let (target, serial) = (text_at(disk, "/Target/Device"), text_at(disk, "/Serial"));
    let mut row = json!({"name": name, "state": "empty drive", "target": target, "serial": serial});
    if !drives::is_empty(disk) {
        set(&mut row, "/state", json!("attached"));
        add_image(root, disk, &mut row);
    }
    row
}

/// Adds the file of a disk's image and, if that is readable, its size in bytes as the guest sees
/// it.
fn add_image(root: &Root, disk: &Value, row: &mut Value) {
    // A disk with tracked changes has its data below its overlay.
    let (source, format) = match disk.pointer("/Source/DataStore/Source") {
        Some(data) if data.is_object() => (data, "/Source/DataStore/Format/Type"),
        _ => (disk.get("Source").unwrap_or(&Value::Null), "/Driver/Type"),
    };
    let source = [text_at(source, "/File"), text_at(source, "/Dev")].concat();
    if let Ok(size) = pod::virtual_size(root, &source, text_at(disk, format)) {
        set(row, "/size", json!(size));
    }
    set(row, "/source", json!(source));
}

/// The rows as text, with a headline.
pub fn table(rows: &[Value]) -> Vec<String> {
    let head =
        "NAME                 TARGET           SIZE SERIAL               STATE         SOURCE";
    let rows = rows.iter().map(|row| {
        let parts = ["/name", "/target", "/serial", "/state", "/source"];
        let [name, target, serial, state, source] = parts.map(|part| text_or_dash(row, part));
        let size = row.get("size").and_then(Value::as_u64);
        let size = size.map_or("-".to_owned(), human_size);
        format!("{name:<20} {target:<7} {size:>13} {serial:<20} {state:<13} {source}")
    });
    [head.to_owned()].into_iter().chain(rows).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn size_is_what_the_guest_sees() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.qcow2");
        let mut header = [0; 512];
        header[..8].copy_from_slice(b"QFI\xfb\0\0\0\x02");
        header[20..24].copy_from_slice(&16_u32.to_be_bytes());
        header[24..32].copy_from_slice(&(3_u64 << 29).to_be_bytes());
        std::fs::write(&image, header).unwrap();
        let row_as = |format: &str| {
            let disk = json!({"Alias": {"Name": "a"}, "Source": {"File": image}, "Driver": {"Type": format}});
            row(
                &Root::new(dir.path()),
                &json!({"Spec": {"Devices": {"Disks": [disk]}}}),
                "a",
            )
        };
        assert_eq!(row_as("qcow2")["size"], 3_u64 << 29);
        assert!(table(&[row_as("qcow2")]).join("").contains(" 1.5 GiB "));
        assert_eq!(
            row_as("raw")["size"],
            512,
            "the guest sees the file as it is"
        );
    }

    #[test]
    fn a_file_is_found_under_another_name() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("data.img"), dir.path().join("link.img"));
        std::fs::write(&file, "x").unwrap();
        std::fs::hard_link(&file, &link).unwrap();
        let domain = |disk: Value| json!({"Spec": {"Devices": {"Disks": [disk]}}});
        let plain = json!({"Source": {"File": link}});
        let tracked =
            json!({"Source": {"File": "/nonexistent", "DataStore": {"Source": {"File": link}}}});
        let backed =
            json!({"Source": {"File": "/nonexistent"}, "BackingStore": {"Source": {"File": link}}});
        for disk in [plain, tracked, backed] {
            assert!(find_disk_of_file(&domain(disk), &file).is_some());
        }
        let other = domain(json!({"Source": {"File": dir.path()}}));
        assert!(find_disk_of_file(&other, &file).is_none());
        assert!(find_disk_of_file(&other, &dir.path().join("missing")).is_none());
    }

    #[test]
    fn a_disk_with_tracked_changes_has_the_size_and_file_of_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("disk.img");
        std::fs::write(&data, [0; 1024]).unwrap();
        let disk = json!({"Alias": {"Name": "a"}, "Driver": {"Type": "qcow2"}, "Source": {"File": "/overlay.qcow2",
            "DataStore": {"Format": {"Type": "raw"}, "Source": {"File": data}}}});
        let domain = json!({"Spec": {"Devices": {"Disks": [disk]}}});
        let row = row(&Root::new(dir.path()), &domain, "a");
        assert_eq!(row["size"], 1024);
        assert_eq!(row["source"], json!(data));
    }

    #[test]
    fn an_empty_drive_is_a_row_and_not_attached() {
        let drive = json!({"Alias": {"Name": "cd"}, "Device": "cdrom", "Target": {"Device": "sdb"}, "Source": {"File": ""}});
        let domain = json!({"Spec": {"Devices": {"Disks": [drive]}}});
        let row = row(&Root::default(), &domain, "cd");
        assert_eq!(
            (&row["target"], &row["state"]),
            (&json!("sdb"), &json!("empty drive"))
        );
        assert!(find_attached(&domain, "cd").is_none());
    }

    #[test]
    fn a_volume_that_is_not_attached_says_so() {
        let domain = json!({"Spec": {"Devices": {"Disks": [{"Alias": {"Name": "a"}, "Source": {"File": "/nonexistent"}, "Target": {"Device": "sda"}, "Serial": "S"}]}}});
        let row = |name| row(&Root::default(), &domain, name);
        assert_eq!(row("a")["target"], "sda");
        assert_eq!(row("a")["size"], Value::Null);
        assert_eq!(row("b"), json!({"name": "b", "state": "not attached"}));
        let text = table(&["a", "b"].map(row)).join("\n");
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.lines()
                .nth(2)
                .is_some_and(|line| line.contains("not attached")),
            "{text}"
        );
    }
}
