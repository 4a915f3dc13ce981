//! Paths of a VM that moves to another namespace: the pod's files are in directories named after
//! it.

use domain::xml::tree::Element;

use super::{disks_mut, set_attribute};

/// Replaces the directory `from` by `to` in the paths of the disks' image files, and of the files
/// that hold the data of disks with changed block tracking. The first occurrence counts.
// D-mig-7 (docs/differences.md).
pub fn move_to_namespace(domain: &mut Element, from: &str, to: &str) {
    if from.is_empty() || from == to {
        return;
    }
    let (from, to) = (format!("/{from}/"), format!("/{to}/"));
    for source in disks_mut(domain).filter_map(|disk| disk.child_mut("source")) {
        move_file(source, &from, &to);
        let data = source.child_mut("dataStore");
        if let Some(source) = data.and_then(|data| data.child_mut("source")) {
            move_file(source, &from, &to);
        }
    }
}

fn move_file(source: &mut Element, from: &str, to: &str) {
    if let Some(file) = source.attribute("file") {
        let moved = file.replacen(from, to, 1);
        set_attribute(source, "file", &moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(source: &str) -> String {
        let text = format!("<domain><devices><disk>{source}</disk></devices></domain>");
        let mut domain = Element::parse(&text).unwrap();
        move_to_namespace(&mut domain, "ns1", "ns2");
        let disk = domain.child("devices").unwrap().child("disk").unwrap();
        disk.child("source").unwrap().to_xml()
    }

    #[test]
    fn image_and_data_of_a_disk_move() {
        assert_eq!(
            moved("<source file='/data/ns1/vm/ns1/a.iso'/>"),
            "<source file=\"/data/ns2/vm/ns1/a.iso\"></source>"
        );
        let tracked = moved(
            "<source file='/cbt/ns1/a.qcow2'><dataStore type='file'><source file='/ns1/disk.img'/></dataStore></source>",
        );
        assert!(tracked.contains("/cbt/ns2/a.qcow2"), "{tracked}");
        assert!(tracked.contains("/ns2/disk.img"), "{tracked}");
    }

    #[test]
    fn other_paths_stay() {
        for source in [
            "<source file=\"/data/ns10/a.iso\"></source>",
            "<source file=\"/ns1\"></source>",
            "<source dev=\"/dev/ns1/a\"></source>",
        ] {
            assert_eq!(moved(source), source);
        }
    }
}
