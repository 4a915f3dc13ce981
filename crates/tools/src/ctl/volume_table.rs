//! The table of `launcherctl volumes`: the VM's volumes, and where the guest has them.

use serde_json::{Value, json};

use super::json::{list_at, text_at, text_or_dash};
use pod::Root;

/// The disk of a volume in Domain JSON.
#[must_use]
pub fn find_disk<'a>(domain: &'a Value, name: &str) -> Option<&'a Value> {
    list_at(domain, "/Spec/Devices/Disks")
        .iter()
        .find(|disk| text_at(disk, "/Alias/Name") == name)
}

/// A volume as JSON.
#[must_use]
pub fn row(root: &Root, domain: &Value, name: &str) -> Value {
    let Some(disk) = find_disk(domain, name) else {
        return json!({"name": name, "state": "not attached"});
    };
    let source = [text_at(disk, "/Source/File"), text_at(disk, "/Source/Dev")].concat();
    let size = pod::virtual_size(root, &source, text_at(disk, "/Driver/Type")).ok();
    json!({"name": name, "target": text_at(disk, "/Target/Device"), "source": source, "size": size, "serial": text_at(disk, "/Serial"), "state": "attached"})
}

/// The rows as text, below a headline.
#[must_use]
pub fn table(rows: &[Value]) -> String {
    let line = |name: &str, target: &str, size: &str, serial: &str, state: &str, source: &str| {
        format!("{name:<20} {target:<7} {size:>13} {serial:<20} {state:<13} {source}")
            .trim_end()
            .to_owned()
    };
    let mut lines = vec![line("NAME", "TARGET", "SIZE", "SERIAL", "STATE", "SOURCE")];
    for row in rows {
        let size = row
            .get("size")
            .and_then(Value::as_u64)
            .map_or_else(|| "-".into(), human_size);
        lines.push(line(
            text_or_dash(row, "/name"),
            text_or_dash(row, "/target"),
            &size,
            text_or_dash(row, "/serial"),
            text_or_dash(row, "/state"),
            text_or_dash(row, "/source"),
        ));
    }
    lines.join("\n")
}

/// A size in the largest unit of which it has at least one, with a decimal unless it is whole.
fn human_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    if tenths % 10 == 0 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
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
        assert!(table(&[row_as("qcow2")]).contains(" 1.5 GiB "));
        assert_eq!(
            row_as("raw")["size"],
            512,
            "the guest sees the file as it is"
        );
    }

    #[test]
    fn sizes_are_short() {
        let short = [0, 1023, 1024, 1536, 64 << 20, (64 << 20) + 1, 1 << 40].map(human_size);
        assert_eq!(
            short,
            [
                "0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "64 MiB", "1 TiB"
            ]
        );
    }

    #[test]
    fn a_volume_that_is_not_attached_says_so() {
        let domain = json!({"Spec": {"Devices": {"Disks": [{"Alias": {"Name": "a"}, "Source": {"File": "/nonexistent"}, "Target": {"Device": "sda"}, "Serial": "S"}]}}});
        let row = |name| row(&Root::default(), &domain, name);
        assert_eq!(row("a")["target"], "sda");
        assert_eq!(row("a")["size"], Value::Null);
        assert_eq!(row("b"), json!({"name": "b", "state": "not attached"}));
        let text = table(&[row("a"), row("b")]);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.lines()
                .nth(2)
                .is_some_and(|line| line.contains("not attached")),
            "{text}"
        );
    }
}
