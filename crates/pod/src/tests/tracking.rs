//! Overlays that keep track of changes.

use super::*;
use domain::DomainSpec;
use domain::disks::Disk;

const DATA: &str = "var/run/kubevirt-private/vmi-disks/data/disk.img";
const OVERLAY: &str = "var/lib/libvirt/qemu/cbt/data.qcow2";

fn disk(pod: &Pod) -> Disk {
    let (overlay, data) = (pod.path(OVERLAY), pod.path(DATA));
    let source = format!(
        "<source file='{}'><dataStore type='file'><format type='raw'/><source file='{}'/></dataStore></source>",
        overlay.display(),
        data.display()
    );
    let xml = format!(
        "<domain><devices><disk type='file'>{source}<alias name='ua-data'/></disk></devices></domain>"
    );
    DomainSpec::from_xml(&xml).unwrap().devices.disks.remove(0)
}

fn vmi(state: &str, status: &str) -> Vmi {
    let status =
        format!(r#"{{"changedBlockTracking":{{"state":"{state}"}},"volumeStatus":[{status}]}}"#);
    serde_json::from_str(&format!(r#"{{"status":{status}}}"#)).unwrap()
}

#[test]
// D-disk-8 (docs/differences.md).
fn an_overlay_maps_to_its_volume_and_leaves_it_alone() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let content = b"data".repeat(300_000);
    let data = pod.write(DATA, &content);
    track(&pod.flags, &vmi("Initializing", ""), &disk(&pod)).unwrap();
    assert!(
        fs::read(&data).unwrap() == content,
        "the volume's data have changed"
    );
    let overlay = pod.path(OVERLAY);
    let info = info(&overlay);
    assert_eq!(info["virtual-size"], 1_200_128, "whole sectors");
    assert_eq!(
        info["cluster-size"],
        256 << 10,
        "v1.10's; v1.9's are 64 KiB"
    );
    let specific = &info["format-specific"]["data"];
    assert_eq!(
        (&specific["data-file"], &specific["data-file-raw"]),
        (&data.to_str().unwrap().into(), &true.into())
    );
    run(&format!(
        "qemu-img compare -q -f qcow2 -F raw {} {}",
        overlay.display(),
        data.display()
    ));
    let left: Vec<_> = fs::read_dir(overlay.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn one_that_is_there_keeps_its_bitmaps() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let data = pod.write(DATA, &[1; 4096]);
    let overlay = pod.path(OVERLAY);
    fs::create_dir_all(overlay.parent().unwrap()).unwrap();
    // Made by a launcher of v1.9, whose clusters have QEMU's default size.
    run(&format!(
        "qemu-img create -q -f qcow2 -o data_file={},data_file_raw=on {} 4096",
        data.display(),
        overlay.display()
    ));
    run(&format!(
        "qemu-img bitmap --add {} checkpoint",
        overlay.display()
    ));
    for state in ["Initializing", "Enabled"] {
        track(&pod.flags, &vmi(state, ""), &disk(&pod)).unwrap();
        assert_eq!(
            info(&overlay)["format-specific"]["data"]["bitmaps"][0]["name"],
            "checkpoint"
        );
    }
}

#[test]
// D-disk-11 (docs/differences.md).
fn one_that_is_there_is_checked() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    pod.write(DATA, &[1; 4096]);
    track(&pod.flags, &vmi("Initializing", ""), &disk(&pod)).unwrap();
    let overlay = pod.path(OVERLAY);
    let good = fs::read(&overlay).unwrap();
    let refusal = || {
        let error = track(&pod.flags, &vmi("Enabled", ""), &disk(&pod)).unwrap_err();
        os::logging::chain(&error)
    };
    // l1_size: 16 GiB of table.
    let mut bad = good.clone();
    bad[36..40].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    fs::write(&overlay, &bad).unwrap();
    let error = refusal();
    assert!(
        error.contains("data.qcow2: QEMU cannot use it as qcow2"),
        "{error}"
    );
    assert!(fs::read(&overlay).unwrap() == bad, "it stays");
    let create = "qemu-img create -q -u -f qcow2 -b /etc/shadow -F raw";
    run(&format!("{create} {} 4k", overlay.display()));
    assert!(refusal().contains("has the backing file"));
}

#[test]
// D-disk-23 (docs/differences.md).
fn an_overlay_goes_with_its_volume_once_the_guest_has_released_it() {
    let pod = Pod::new();
    let overlay = pod.write(OVERLAY, &[]);
    let other = pod.write("var/lib/libvirt/qemu/cbt/notes", &[]);
    pod.write(DATA, &[1; 4096]);
    let without = vmi("Enabled", "");
    let mut with = vmi("Enabled", "");
    with.spec.volumes = serde_json::from_str(r#"[{"name":"data"}]"#).unwrap();
    untrack_unplugged(&pod.flags, &with, &[]).unwrap();
    untrack_unplugged(&pod.flags, &without, &[disk(&pod)]).unwrap();
    untrack_unplugged(&pod.flags, &vmi("Disabled", ""), &[]).unwrap();
    assert!(overlay.exists());
    untrack_unplugged(&pod.flags, &without, &[]).unwrap();
    assert!(!overlay.exists());
    untrack_unplugged(&pod.flags, &without, &[]).unwrap();
    assert!(pod.path(DATA).exists() && other.exists());
}

#[test]
// D-disk-9 (docs/differences.md).
fn tracking_that_has_begun_does_not_begin_again() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    pod.write(DATA, &[1; 4096]);
    let error =
        os::logging::chain(&track(&pod.flags, &vmi("Enabled", ""), &disk(&pod)).unwrap_err());
    assert!(
        error.starts_with("disk \"data\": ") && error.contains("data.qcow2, which tracks"),
        "{error}"
    );
    let hotplugged = |phase: &str| {
        vmi(
            "Enabled",
            &format!(r#"{{"name":"data","phase":"{phase}","hotplugVolume":{{}}}}"#),
        )
    };
    track(&pod.flags, &hotplugged("Ready"), &disk(&pod)).unwrap_err();
    assert!(!pod.path(OVERLAY).exists());
    track(&pod.flags, &hotplugged("MountedToPod"), &disk(&pod)).unwrap();
    assert!(pod.path(OVERLAY).exists());
}

#[test]
fn a_volume_that_is_not_there_leaves_no_overlay() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let error =
        os::logging::chain(&track(&pod.flags, &vmi("Initializing", ""), &disk(&pod)).unwrap_err());
    assert!(error.contains("vmi-disks/data: No such file"), "{error}");
    assert!(!pod.path(OVERLAY).exists());
    // And a disk without an overlay wants none.
    track(&pod.flags, &vmi("Initializing", ""), &Disk::default()).unwrap();
}
