//! Cache and I/O modes, and whether a disk can be attached.

use super::*;
use domain::DomainSpec;
use domain::disks::Disk;

fn domain(pod: &Pod, disks: &[&str]) -> DomainSpec {
    let root = pod.dir.path().display().to_string();
    let xml = format!(
        "<domain><devices>{}</devices></domain>",
        disks.concat().replace("ROOT", &root)
    );
    DomainSpec::from_xml(&xml).unwrap()
}

fn file(path: &str) -> String {
    format!(r#"<disk type="file"><source file="ROOT/{path}"/><target dev="vda"/></disk>"#)
}

fn disk(pod: &Pod, xml: &str) -> Disk {
    domain(pod, &[xml]).devices.disks.remove(0)
}

#[test]
// D-disk-15 (docs/differences.md).
fn an_image_that_does_not_exist_yet_is_judged_by_its_directory_and_not_made() {
    let pod = Pod::new();
    let path = "var/run/libvirt/empty-disks/new.qcow2";
    fs::create_dir_all(pod.path(path).parent().unwrap()).unwrap();
    let before = pod.files();
    let there = disk_modes(
        &pod.flags,
        &domain(&pod, &[&file("var/run/libvirt/empty-disks/new.qcow2")]),
    );
    assert_eq!(pod.files(), before);
    pod.write(path, &[0; 4096]);
    // Whatever the file system below the temporary directory can do: both ways say the same.
    assert_eq!(
        there.direct_io_exceptions,
        disk_modes(&pod.flags, &domain(&pod, &[&file(path)])).direct_io_exceptions
    );
}

#[test]
fn what_cannot_be_opened_has_no_direct_io() {
    let pod = Pod::new();
    pod.link("/etc/shadow", "dev-link");
    let missing_device =
        r#"<disk type="block"><source dev="ROOT/dev/none"/><target dev="vda"/></disk>"#;
    let modes = disk_modes(
        &pod.flags,
        &domain(
            &pod,
            &[
                missing_device,
                &file("no/such/dir/x.img"),
                &file("dev-link"),
            ],
        ),
    );
    let name = |path: &str| pod.path(path).to_str().unwrap().into();
    let expected: Vec<String> = vec![
        name("dev/none"),
        name("no/such/dir/x.img"),
        name("dev-link"),
    ];
    assert_eq!(modes.direct_io_exceptions, expected);
    assert!(modes.direct_io);
}

#[test]
fn an_empty_drive_is_passed_over() {
    let pod = Pod::new();
    let modes = disk_modes(
        &pod.flags,
        &domain(
            &pod,
            &[r#"<disk type="block" device="cdrom"><source/><target dev="sda"/></disk>"#],
        ),
    );
    assert!(modes.direct_io_exceptions.is_empty() && modes.preallocated.is_empty());
}

#[test]
fn a_full_image_is_preallocated_and_a_sparse_one_is_not() {
    let pod = Pod::new();
    let full = pod.write("full.img", &[1; 1 << 16]);
    let sparse = pod.write("sparse.img", &[]);
    fs::File::options()
        .write(true)
        .open(&sparse)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let modes = disk_modes(
        &pod.flags,
        &domain(
            &pod,
            &[&file("full.img"), &file("sparse.img"), &file("none.img")],
        ),
    );
    assert_eq!(modes.preallocated, [full.to_str().unwrap()]);
}

#[test]
// D-disk-22 (docs/differences.md).
fn what_a_guest_writes_into_its_raw_disk_does_not_decide_whether_it_is_preallocated() {
    let pod = Pod::new();
    let raw = |name: &str| file(name).replace("<source", "<driver type=\"raw\"/><source");
    for head in [&b"LUKS\xba\xbe"[..], b"\x1f\x8b\x08", b"QFI\xfb\0\0\0\x03"] {
        let mut full = head.to_vec();
        full.resize(1 << 16, 1);
        let full = pod.write("full.img", &full);
        let modes = disk_modes(&pod.flags, &domain(&pod, &[&raw("full.img")]));
        assert_eq!(modes.preallocated, [full.to_str().unwrap()], "{head:?}");
    }
}

#[test]
fn a_cloud_init_image_is_never_found_preallocated() {
    let pod = Pod::new();
    let path = "var/run/kubevirt-ephemeral-disks/cloud-init-data/ns1/vm1/noCloud.iso";
    pod.write(path, &[1; 1 << 16]);
    let modes = disk_modes(&pod.flags, &domain(&pod, &[&file(path)]));
    assert!(modes.preallocated.is_empty());
}

#[test]
fn the_backing_file_counts_as_well() {
    let pod = Pod::new();
    pod.write("overlay.qcow2", &[0; 512]);
    let xml = r#"<disk type="file"><source file="ROOT/overlay.qcow2"/><backingStore type="file"><source file="ROOT/gone/base.img"/></backingStore><target dev="vda"/></disk>"#;
    let modes = disk_modes(&pod.flags, &domain(&pod, &[xml]));
    assert!(
        modes
            .direct_io_exceptions
            .contains(&pod.path("gone/base.img").to_str().unwrap().into())
    );
}

#[test]
// D-disk-13 (docs/differences.md).
fn a_hotplugged_disk_is_ready_when_its_image_is_mounted() {
    let pod = Pod::new();
    let path = "var/run/kubevirt/hotplug-disks/data.img";
    let xml = file(path);
    assert!(!disk_ready(&pod.flags, &disk(&pod, &xml)), "nothing there");
    pod.write(path, b"");
    assert!(
        !disk_ready(&pod.flags, &disk(&pod, &xml)),
        "only the place to mount it on"
    );
    pod.write(path, &[0; 512]);
    assert!(disk_ready(&pod.flags, &disk(&pod, &xml)));
}

#[test]
fn what_must_not_be_opened_is_never_ready() {
    let pod = Pod::new();
    pod.write("etc/shadow", b"secret");
    pod.link("/etc/shadow", "var/run/kubevirt/hotplug-disks/data.img");
    assert!(!disk_ready(
        &pod.flags,
        &disk(&pod, &file("var/run/kubevirt/hotplug-disks/data.img"))
    ));
    fs::create_dir_all(pod.path("var/run/kubevirt/hotplug-disks/dir.img")).unwrap();
    assert!(!disk_ready(
        &pod.flags,
        &disk(&pod, &file("var/run/kubevirt/hotplug-disks/dir.img"))
    ));
    assert!(
        !disk_ready(
            &pod.flags,
            &disk(
                &pod,
                r#"<disk><source file="/etc/hostname"/><target dev="vda"/></disk>"#
            )
        ),
        "not below the root"
    );
}

#[test]
fn an_overlay_that_keeps_track_of_changes_has_its_data_elsewhere() {
    let pod = Pod::new();
    let xml = r#"<disk type="file"><source file="ROOT/overlay.qcow2"><dataStore type="file"><source file="ROOT/data.img"/></dataStore></source><target dev="vda"/></disk>"#;
    pod.write("overlay.qcow2", &[0; 512]);
    assert!(!disk_ready(&pod.flags, &disk(&pod, xml)));
    pod.write("data.img", &[0; 512]);
    assert!(disk_ready(&pod.flags, &disk(&pod, xml)));
}
