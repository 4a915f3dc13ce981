//! The table of `launcherctl volumes`: the VM's volumes and empty CD-ROM drives, with libvirt's
//! names.

use std::path::Path;

use serde::Serialize;

use crate::files::absolute;
use crate::host::vm_dir::VmDir;
use crate::view::output::{Line, or_dash};
use domain::Domain;
use domain::disks::Disk;
use terminal::human_size;
use terminal::table;

/// The disk of a volume.
pub fn find_disk<'a>(domain: &'a Domain, name: &str) -> Option<&'a Disk> {
    let mut disks = domain.spec.devices.disks.iter();
    disks.find(|disk| disk.volume() == name)
}

/// Like [`find_disk`], except for a CD-ROM drive without a medium.
pub fn find_attached<'a>(domain: &'a Domain, name: &str) -> Option<&'a Disk> {
    find_disk(domain, name).filter(|disk| !disk.is_empty_drive())
}

/// A volume, or an empty drive.
#[derive(Debug, Default, Serialize)]
pub struct Row {
    name: String,
    state: &'static str,
    /// The guest's disk, in libvirt's words.
    target: Option<String>,
    serial: Option<String>,
    /// In bytes, as the guest sees it; `None` if the image is unreadable.
    size: Option<u64>,
    source: Option<String>,
}

impl Row {
    /// Of the volume or drive `name`.
    pub fn new(dir: &VmDir, domain: &Domain, name: &str) -> Self {
        let mut row = Self {
            name: name.to_owned(),
            state: "not attached",
            ..Self::default()
        };
        let Some(disk) = find_disk(domain, name) else {
            return row;
        };
        row.target = Some(disk.target.device.clone());
        row.serial = Some(disk.serial.clone());
        if disk.is_empty_drive() {
            row.state = "empty drive";
            return row;
        }
        row.state = "attached";
        // A disk with tracked changes has its data below its overlay.
        let data = disk.source.data_store.as_ref();
        let of_data = data.and_then(|data| data.format.as_ref());
        let of_driver = disk.driver.as_ref().map(|driver| &driver.r#type);
        let format = of_data.map(|format| &format.r#type).or(of_driver);
        let source = disk.source.backend_path().unwrap_or_default();
        let root = dir.pod_root();
        row.size = format.and_then(|format| pod::virtual_size(&root, source, format).ok());
        // QEMU's path may be a link, which leads to the user's file.
        let shown = match dir.is_of_run() {
            true => absolute(Path::new(source)).display().to_string(),
            false => source.to_owned(),
        };
        row.source = Some(shown);
        row
    }
}

/// The rows as text, with a headline.
pub fn text(rows: &[Row]) -> Vec<Line> {
    let cells = rows.iter().map(|row| {
        let (name, state) = (&row.name, row.state);
        let cells = [&row.target, &row.serial, &row.source];
        let [target, serial, source] = cells.map(|it| or_dash(it.as_deref().unwrap_or_default()));
        let size = row.size.map_or_else(|| "-".into(), human_size);
        format!("{name}\t{target}\t{size}\t{serial}\t{state}\t{source}")
    });
    table("NAME\tTARGET\tSIZE\tSERIAL\tSTATE\tSOURCE", cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::output::joined;
    use serde_json::{Value, json};

    /// A domain with this disk.
    fn of(disk: Value) -> Domain {
        crate::json::domain(json!({"Spec": {"Devices": {"Disks": [disk]}}}))
    }

    fn row(dir: &VmDir, domain: &Domain, name: &str) -> Value {
        json!(Row::new(dir, domain, name))
    }

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
            Row::new(&VmDir::at(dir.path().to_owned()), &of(disk), "a")
        };
        assert_eq!(json!(row_as("qcow2"))["size"], 3_u64 << 29);
        assert!(joined(text(&[row_as("qcow2")])).contains(" 1.5 GiB "));
        assert_eq!(
            json!(row_as("raw"))["size"],
            512,
            "the guest sees the file as it is"
        );
    }

    #[test]
    fn a_disk_with_tracked_changes_has_the_size_and_file_of_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("disk.img");
        std::fs::write(&data, [0; 1024]).unwrap();
        let disk = json!({"Alias": {"Name": "a"}, "Driver": {"Type": "qcow2"}, "Source": {"File": "/overlay.qcow2",
            "DataStore": {"Format": {"Type": "raw"}, "Source": {"File": data}}}});
        let row = row(&VmDir::at(dir.path().to_owned()), &of(disk), "a");
        assert_eq!(row["size"], 1024);
        assert_eq!(row["source"], json!(data));
    }

    #[test]
    fn an_empty_drive_is_a_row_and_not_attached() {
        let drive = json!({"Alias": {"Name": "cd"}, "Device": "cdrom", "Target": {"Device": "sdb"}, "Source": {"File": ""}});
        let domain = of(drive);
        let row = row(&VmDir::at("/".into()), &domain, "cd");
        assert_eq!(
            (&row["target"], &row["state"]),
            (&json!("sdb"), &json!("empty drive"))
        );
        assert!(find_attached(&domain, "cd").is_none());
    }

    #[test]
    fn a_volume_that_is_not_attached_says_so() {
        let domain = of(
            json!({"Alias": {"Name": "a"}, "Source": {"File": "/nonexistent"},
            "Target": {"Device": "sda"}, "Serial": "S"}),
        );
        let row = |name| row(&VmDir::at("/".into()), &domain, name);
        assert_eq!(row("a")["target"], "sda");
        assert_eq!(row("a")["size"], Value::Null);
        assert_eq!(row("b")["state"], "not attached");
        assert!(row("b")["target"].is_null());
        let rows = ["a", "b"].map(|name| Row::new(&VmDir::at("/".into()), &domain, name));
        let text = joined(text(&rows));
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.lines()
                .nth(2)
                .is_some_and(|line| line.contains("not attached")),
            "{text}"
        );
    }
}
