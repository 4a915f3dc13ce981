//! The directories of the pod.

use super::*;

#[test]
fn a_launcher_that_is_not_root_leaves_roots_directories_alone() {
    // In the image /var/lib/libvirt/qemu is root's, with mode 0750: uid 107 may not enter it.
    let dir = tempfile::tempdir().unwrap();
    directories(
        &LauncherFlags {
            root: Root::new(dir.path()),
            run_as_nonroot: true,
            ..LauncherFlags::default()
        },
        "uid-1",
    )
    .unwrap();
    assert!(!dir.path().join("var/lib").exists());
    let log = "var/run/kubevirt-private/uid-1/virt-serial0-log";
    assert!(!dir.path().join(log).exists());
}

#[test]
fn directories_have_the_modes_that_others_rely_on() {
    let pod = Pod::new();
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    directories(&pod.flags, "uid-1").unwrap();
    for (path, mode, is_qemus) in [
        ("var/run/kubevirt-private/uid-1", 0o755, true),
        ("var/run/kubevirt-private/config-map-disks", 0o750, true),
        (
            "var/run/kubevirt-private/downwardmetrics-channel",
            0o750,
            true,
        ),
        ("var/run/kubevirt/container-disks", 0o750, false),
        ("var/run/kubevirt/hotplug-disks", 0o755, false),
        (
            "var/run/kubevirt-ephemeral-disks/cloud-init-data",
            0o755,
            false,
        ),
        ("var/run/kubevirt-ephemeral-disks/disk-data", 0o755, false),
    ] {
        let metadata = fs::metadata(pod.path(path)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{path}");
        if is_qemus && rustix::process::geteuid().is_root() {
            assert_eq!((metadata.uid(), metadata.gid()), (107, 107), "{path}");
        }
    }
    assert!(pod.path("var/lib/libvirt/qemu/nvram").is_dir());
    // virt-tail runs as user 107 and follows it.
    let log = pod.path("var/run/kubevirt-private/uid-1/virt-serial0-log");
    let metadata = fs::metadata(&log).unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!((metadata.uid(), metadata.gid()), (107, 107));
    }
    fs::write(&log, "boot").unwrap();
    directories(&pod.flags, "uid-1").unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "boot");
    assert!(
        directories(&pod.flags, "../etc")
            .unwrap_err()
            .to_string()
            .contains("cannot be a file name")
    );
}

#[test]
fn cve_2026_7374_a_link_instead_of_the_consoles_log() {
    for target in ["/elsewhere", "../../../../elsewhere"] {
        let pod = Pod::new();
        let other = pod.write("elsewhere", b"theirs");
        let log = "var/run/kubevirt-private/uid-2/virt-serial0-log";
        pod.link(target, log);
        assert!(directories(&pod.flags, "uid-2").is_err());
        assert_eq!(fs::read(other).unwrap(), b"theirs");
        // Nor is one made where the link leads.
        fs::remove_file(pod.path("elsewhere")).unwrap();
        assert!(directories(&pod.flags, "uid-2").is_err());
        assert!(!pod.path("elsewhere").exists());
    }
}

#[test]
fn the_directory_of_hotplugged_volumes_reaches_conversion_and_plan() {
    let mut pod = Pod::new();
    pod.flags.hotplug_disk_dir = "/hotplugged/".to_owned();
    let image = pod.write("/hotplugged/data.img", &[0; 512]);
    let vmi: Vmi = serde_json::from_str(
        r#"{"metadata":{"name":"web","namespace":"shop"},
            "spec":{"domain":{"devices":{"disks":[{"name":"data","disk":{"bus":"scsi"}}]}},
                    "volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"c","hotpluggable":true}}]},
            "status":{"volumeStatus":[{"name":"data","phase":"Ready","hotplugVolume":{}}]}}"#,
    )
    .unwrap();
    pod.flags.allow_emulation = true;
    let ctx = pod.collect(&vmi).unwrap();
    let wanted = convert::domain(&vmi, &ctx).unwrap();
    assert_eq!(wanted.devices.disks[0].source.file, image.to_str().unwrap());
    let live = domain::DomainSpec::default();
    let plan = convert::plan::disks(&live, &wanted, ctx.paths().hotplug_disk_dir);
    assert_eq!(plan.attach.len(), 1);
}
