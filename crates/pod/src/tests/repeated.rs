//! A start that is repeated: after an interruption, or with a new launcher.

use super::images::{CONTAINER_DISK, EMPTY_DISK, EPHEMERAL, MIB};
use super::*;

const TOOLS: &[&str] = &["qemu-img", "xorrisofs"];

/// One of each kind that is made.
fn everything(pod: &Pod) -> String {
    pod.container_disk();
    pod.write(
        "var/run/kubevirt-private/vmi-disks/data/disk.img",
        &[1; 4096],
    );
    pod.write("var/run/kubevirt-private/config-map/map/key", b"value");
    let volumes = [
        CONTAINER_DISK,
        EPHEMERAL,
        EMPTY_DISK,
        r#"{"name":"ci","cloudInitNoCloud":{"userData":"x"}}"#,
        r#"{"name":"map","configMap":{"name":"m"}}"#,
        r#"{"name":"metrics","downwardMetrics":{}}"#,
    ]
    .join(",");
    let disks = ["root", "data", "scratch", "ci", "map", "metrics"]
        .map(|name| format!(r#"{{"name":"{name}"}}"#))
        .join(",");
    let metadata =
        r#"{"name":"web","namespace":"shop","annotations":{"kubevirt.io/ignitiondata":"{}"}}"#;
    format!(
        r#"{{"metadata":{metadata},"spec":{{"domain":{{"devices":{{"disks":[{disks}]}}}},"volumes":[{volumes}]}}}}"#
    )
}

#[test]
// D-disk-14 (docs/differences.md).
fn a_second_time_changes_nothing() {
    let Some(pod) = Pod::with(TOOLS) else { return };
    let vmi = everything(&pod);
    pod.prepare(&vmi).unwrap();
    let first = pod.files();
    assert!(
        first
            .keys()
            .all(|path| !path.to_string_lossy().ends_with(".staging"))
    );
    // Another second, so that a new date would show.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    pod.prepare(&vmi).unwrap();
    let second = pod.files();
    for (path, state) in &first {
        assert!(
            second.get(path) == Some(state),
            "{} was changed",
            path.display()
        );
    }
    assert_eq!(first.len(), second.len());
}

#[test]
fn what_an_interruption_has_left_is_repaired() {
    let Some(pod) = Pod::with(TOOLS) else { return };
    let vmi = everything(&pod);
    let ephemeral = "var/run/kubevirt-ephemeral-disks";
    // Killed while writing beside; and a launcher that wrote in place was killed before the header.
    let left = [
        pod.write(
            &format!("{ephemeral}/disk-data/root/disk.qcow2.staging"),
            b"half",
        ),
        pod.write("var/run/libvirt/empty-disks/scratch.qcow2.staging", b"half"),
        pod.write(
            "var/run/kubevirt-private/config-map-disks/map.iso.staging",
            b"half",
        ),
        pod.write(
            &format!("{ephemeral}/cloud-init-data/shop/web/data/user-data"),
            b"half",
        ),
        pod.write(
            &format!("{ephemeral}/cloud-init-data/shop/web/noCloud.iso.staging"),
            b"half",
        ),
    ];
    pod.write("var/run/libvirt/empty-disks/scratch.qcow2", b"");
    pod.write(
        "var/run/kubevirt-private/downwardapi-disks/vhostmd0",
        b"mvbd",
    );
    pod.prepare(&vmi).unwrap();
    for path in left {
        assert!(!path.exists(), "{} is still there", path.display());
    }
    assert_eq!(
        info(&pod.path("var/run/libvirt/empty-disks/scratch.qcow2"))["virtual-size"],
        9 * MIB
    );
    assert_eq!(
        fs::metadata(pod.path("var/run/kubevirt-private/downwardapi-disks/vhostmd0"))
            .unwrap()
            .len(),
        262_144
    );
}

/// What an image may be changed to: the bytes at an offset of the qcow2 header.
const HOSTILE: [(&str, usize, &[u8]); 5] = [
    // l1_size: 16 GiB of table.
    ("a huge L1 table", 36, &[0x7f, 0xff, 0xff, 0xff]),
    // nb_snapshots: one more than QEMU takes.
    ("snapshots", 60, &[0, 1, 0, 1]),
    ("AES", 32, &[0, 0, 0, 1]),
    ("LUKS without its header", 32, &[0, 0, 0, 2]),
    ("an oversized header", 100, &[0x7f, 0xff, 0xff, 0xf8]),
];

#[test]
// D-disk-11 (docs/differences.md).
fn what_is_kept_is_checked_again_and_stays() {
    let Some(pod) = Pod::with(TOOLS) else { return };
    let vmi = everything(&pod);
    pod.prepare(&vmi).unwrap();
    for path in [
        "var/run/kubevirt/container-disks/disk_0.img",
        "var/run/kubevirt-ephemeral-disks/disk-data/root/disk.qcow2",
        "var/run/kubevirt-ephemeral-disks/disk-data/data/disk.qcow2",
        "var/run/libvirt/empty-disks/scratch.qcow2",
    ] {
        let file = pod.path(path);
        let good = fs::read(&file).unwrap();
        for (what, at, bytes) in HOSTILE {
            let mut bad = good.clone();
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            fs::write(&file, &bad).unwrap();
            let error = pod.prepare(&vmi).expect_err(&format!("{path}: {what}"));
            assert!(
                error.contains(&file.display().to_string()),
                "{what}: {error}"
            );
            assert!(fs::read(&file).unwrap() == bad, "{path}: {what}");
        }
        fs::write(&file, &good).unwrap();
        pod.prepare(&vmi).unwrap();
    }
}

#[test]
fn an_empty_disk_that_has_got_a_backing_file_is_refused() {
    let Some(pod) = Pod::with(TOOLS) else { return };
    let vmi = everything(&pod);
    pod.prepare(&vmi).unwrap();
    let disk = pod.path("var/run/libvirt/empty-disks/scratch.qcow2");
    run(&format!(
        "qemu-img rebase -u -f qcow2 -b /etc/shadow -F raw {}",
        disk.display()
    ));
    let error = pod.refusal(&vmi);
    assert!(error.contains("has the backing file"), "{error}");
}

#[test]
fn what_the_guest_has_written_survives_a_restart_of_the_launcher() {
    let Some(pod) = Pod::with(&["qemu-img", "qemu-io", "xorrisofs"]) else {
        return;
    };
    let vmi = everything(&pod);
    pod.prepare(&vmi).unwrap();
    let disks = [
        "var/run/libvirt/empty-disks/scratch.qcow2",
        "var/run/kubevirt-ephemeral-disks/disk-data/root/disk.qcow2",
    ];
    for disk in disks {
        qemu_io("write -P 42 0 64k", &pod.path(disk));
    }
    pod.prepare(&vmi).unwrap();
    for disk in disks {
        let read = qemu_io("read -P 42 0 64k", &pod.path(disk));
        assert!(!read.contains("failed"), "{disk}: {read}");
    }
}
