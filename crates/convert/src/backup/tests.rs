//! Against the XML as it goes to libvirt.

use super::*;
use crate::backup::{BackupId, RequestedMode, Start, backup_plan};
use domain::DomainSpec;

/// A domain with a tracked disk on a file, one on a device, and a CD-ROM.
fn disks() -> Vec<Disk> {
    let xml = "<domain type='kvm'><name>vm</name><devices>
        <disk device='disk' type='file'><source file='/cbt/Root.qcow2'><dataStore type='file'><format type='raw'/>
          <source file='/claims/Root/disk.img'/></dataStore></source><target bus='virtio' dev='vda'/><alias name='ua-Root'/></disk>
        <disk device='cdrom' type='file'><source file='/iso'/><target bus='sata' dev='sda'/><alias name='ua-iso'/></disk>
        <disk device='disk' type='file'><source file='/cbt/device.qcow2'><dataStore type='block'><format type='raw'/>
          <source dev='/dev/device'/></dataStore></source><target bus='virtio' dev='vdb'/><alias name='ua-device'/></disk>
        </devices></domain>";
    DomainSpec::from_xml(xml).unwrap().devices.disks
}

fn start(mode: RequestedMode, incremental: Option<&str>) -> Start {
    Start {
        id: BackupId {
            name: "Nightly".into(),
            started: "2026-01-02T03:04:05Z".parse().unwrap(),
        },
        mode,
        incremental: incremental.map(str::to_owned),
        target_path: "/Target".into(),
        skip_quiesce: false,
    }
}

/// Without line breaks and indentation.
fn flat(xml: &str) -> String {
    xml.lines().map(str::trim).collect()
}

#[test]
fn a_push_writes_each_tracked_disk_into_a_file_of_its_own() {
    let start = start(RequestedMode::Push, Some("Earlier & so on"));
    let plan = backup_plan(&disks(), &start, "/Target/vm/N", "/sock").unwrap();
    assert_eq!(
        flat(&plan.backup.to_xml()),
        "<domainbackup mode=\"push\"><incremental>Earlier &amp; so on</incremental><disks>\
         <disk name=\"vda\" backup=\"yes\" type=\"file\"><target file=\"/Target/vm/N/Nightly-Root.qcow2\"/></disk>\
         <disk name=\"sda\" backup=\"no\"/>\
         <disk name=\"vdb\" backup=\"yes\" type=\"file\"><target file=\"/Target/vm/N/Nightly-device.qcow2\"/></disk>\
         </disks></domainbackup>"
    );
    assert_eq!(
        flat(&plan.checkpoint.to_xml()),
        "<domaincheckpoint><name>Nightly-2026-01-02_03-04-05</name><disks>\
         <disk name=\"vda\" checkpoint=\"bitmap\"/><disk name=\"sda\" checkpoint=\"no\"/>\
         <disk name=\"vdb\" checkpoint=\"bitmap\"/></disks></domaincheckpoint>"
    );
    assert_eq!(
        serde_json::to_string(&plan.volumes).unwrap(),
        r#"[{"volumeName":"Root","diskTarget":"vda"},{"volumeName":"device","diskTarget":"vdb"}]"#
    );
}

#[test]
fn a_pull_exports_each_tracked_disk_with_its_bitmap() {
    let plan = backup_plan(
        &disks(),
        &start(RequestedMode::Pull, None),
        "/T",
        "/Run/sock",
    )
    .unwrap();
    let xml = flat(&plan.backup.to_xml());
    assert!(
        xml.contains(
            "<disk name=\"vda\" backup=\"yes\" type=\"file\" exportname=\"Root\" \
             exportbitmap=\"Nightly-2026-01-02_03-04-05\"><scratch file=\"/T/Nightly-Root.qcow2\"/></disk>"
        ),
        "{xml}"
    );
    assert!(
        xml.contains("<server transport=\"unix\" socket=\"/Run/sock\"/>"),
        "{xml}"
    );
    assert!(
        xml.starts_with("<domainbackup mode=\"pull\"><disks>"),
        "{xml}"
    );
}

#[test]
fn without_a_tracked_disk_there_is_nothing_to_back_up() {
    let mut disks = disks();
    disks.retain(|disk| disk.source.data_store.is_none());
    backup_plan(&disks, &start(RequestedMode::Push, None), "/t", "/s").unwrap_err();
}

fn checkpoint(name: &str) -> BackupCheckpoint {
    BackupCheckpoint {
        name: name.into(),
        creation_time: Some("2026-01-02T03:04:05Z".into()),
    }
}

/// As QEMU answers, with more than is read.
const NODES: &str = r#"{"return":[
    {"node-name":"n1","drv":"qcow2","file":"/cbt/Root.qcow2","ro":false,
     "dirty-bitmaps":[{"name":"C1","recording":true,"persistent":true,"busy":false,"granularity":65536,"count":0},{"name":"c2","inconsistent":true}]},
    {"node-name":"n2","drv":"file","file":"/cbt/Root.qcow2"},
    {"node-name":"n3","drv":"qcow2","file":"/cbt/device.qcow2","dirty-bitmaps":[{"name":"c2"}]},
    {"node-name":"n4","drv":"qcow2","file":"/iso","dirty-bitmaps":[{"name":"C1"}]}],"id":"libvirt-1"}"#;

#[test]
fn a_checkpoint_is_made_known_for_the_disks_that_have_its_bitmap() {
    let redefined = |name: &str| {
        redefinition(&disks(), &checkpoint(name), NODES)
            .map(|checkpoint| flat(&checkpoint.to_xml()))
    };
    assert_eq!(
        redefined("C1").unwrap(),
        "<domaincheckpoint><name>C1</name><disks><disk name=\"vda\" checkpoint=\"bitmap\"/></disks>\
         <creationTime>1767323045</creationTime></domaincheckpoint>"
    );
    // A bitmap that is inconsistent on one disk is used on the other.
    assert!(redefined("c2").unwrap().contains("<disk name=\"vdb\""));
    assert!(!redefined("c2").unwrap().contains("vda"));
    let refusal = redefined("c1").unwrap_err();
    assert!(refusal.is_checkpoint_invalid(), "{refusal}");
}

#[test]
fn what_cannot_be_read_does_not_make_a_checkpoint_invalid() {
    for (checkpoint, nodes) in [
        (checkpoint("C1"), "{}"),
        (checkpoint("C1"), "no JSON"),
        (checkpoint(""), NODES),
        (
            BackupCheckpoint {
                creation_time: Some("then".into()),
                ..checkpoint("C1")
            },
            NODES,
        ),
    ] {
        let refusal = redefinition(&disks(), &checkpoint, nodes).unwrap_err();
        assert!(!refusal.is_checkpoint_invalid(), "{refusal}");
    }
}
