//! The images of disks are prepared; the helper programs confirm the result.

use super::*;
use domain::DomainSpec;

pub const MIB: u64 = 1 << 20;
pub const CONTAINER_DISK: &str = r#"{"name":"root","containerDisk":{"image":"registry/disk:1"}}"#;
pub const EMPTY_DISK: &str = r#"{"name":"scratch","emptyDisk":{"capacity":"10000000"}}"#;
pub const EPHEMERAL: &str =
    r#"{"name":"data","ephemeral":{"persistentVolumeClaim":{"claimName":"c"}}}"#;

#[test]
fn a_container_disk_gets_an_overlay_of_its_size() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let image = pod.container_disk();
    let before = fs::read(&image).unwrap();
    pod.prepare(&with_volume(CONTAINER_DISK)).unwrap();
    let overlay = info(&pod.overlay("root"));
    assert_eq!(overlay["virtual-size"], 32 * MIB);
    assert_eq!(overlay["backing-filename"], image.to_str().unwrap());
    assert_eq!(overlay["backing-filename-format"], "qcow2");
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn an_image_volume_is_linked_to_where_the_domain_expects_it() {
    let Some(mut pod) = Pod::with(QEMU) else {
        return;
    };
    pod.flags.image_volume = true;
    let image = pod.write(
        "var/run/kubevirt-image-volume/disk_0/disk/x.raw",
        &[7; 4096],
    );
    for _ in 0..2 {
        pod.prepare(&with_volume(CONTAINER_DISK)).unwrap();
        assert_eq!(
            fs::read_link(pod.path("var/run/kubevirt/container-disks/disk_0.img")).unwrap(),
            image.canonicalize().unwrap()
        );
    }
    let overlay = info(&pod.overlay("root"));
    assert_eq!(overlay["virtual-size"], 4096);
    assert_eq!(overlay["backing-filename-format"], "raw");
}

#[test]
fn an_image_that_qemu_cannot_read_is_refused_with_its_reason() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let image = pod.container_disk();
    let mut bytes = fs::read(&image).unwrap();
    // The table of clusters (l1_table_offset) far behind the end of the image, and not aligned.
    bytes[40..48].copy_from_slice(&0x7fff_ffff_0001_u64.to_be_bytes());
    fs::write(&image, bytes).unwrap();
    let error = pod.refusal(&with_volume(CONTAINER_DISK));
    assert!(
        error.starts_with("volume \"root\": ")
            && error.contains("disk_0.img: QEMU cannot use it as qcow2: "),
        "{error}"
    );
    assert!(!pod.overlay("root").exists());
}

#[test]
fn an_image_that_takes_too_much_memory_to_inspect_is_refused() {
    let Some(mut pod) = Pod::with(QEMU) else {
        return;
    };
    pod.flags.disk_memory_limit = 8 << 20;
    pod.container_disk();
    assert!(
        pod.refusal(&with_volume(CONTAINER_DISK))
            .contains("QEMU cannot use it as qcow2")
    );
}

#[test]
fn an_ephemeral_volume_leaves_its_claim_as_it_is() {
    let Some(pod) = Pod::with(&["qemu-img", "qemu-io"]) else {
        return;
    };
    // What looks like qcow2 inside the claim stays raw: nothing in it is interpreted.
    let mut content = vec![0; MIB as usize];
    content[..4].copy_from_slice(b"QFI\xfb");
    let claim = pod.write("var/run/kubevirt-private/vmi-disks/data/disk.img", &content);
    pod.prepare(&with_volume(EPHEMERAL)).unwrap();
    let overlay = pod.overlay("data");
    let about = info(&overlay);
    assert_eq!(
        (&about["virtual-size"], &about["backing-filename-format"]),
        (&serde_json::json!(MIB), &serde_json::json!("raw"))
    );
    qemu_io("write -P 42 0 64k", &overlay);
    assert_eq!(fs::read(&claim).unwrap(), content);
}

#[test]
fn an_empty_disk_is_rounded_down_to_mebibytes() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    pod.prepare(&with_volume(EMPTY_DISK)).unwrap();
    let about = info(&pod.path("var/run/libvirt/empty-disks/scratch.qcow2"));
    assert_eq!(
        (&about["format"], &about["virtual-size"]),
        (&serde_json::json!("qcow2"), &serde_json::json!(9 * MIB))
    );
    let tiny = with_volume(r#"{"name":"scratch","emptyDisk":{"capacity":"1000Ki"}}"#);
    assert!(pod.refusal(&tiny).contains("\"1000Ki\" is less than 1Mi"));
    let odd = with_volume(r#"{"name":"scratch","emptyDisk":{"capacity":"much"}}"#);
    assert!(pod.refusal(&odd).contains("emptyDisk.capacity"));
}

#[test]
fn a_host_disk_is_made_where_the_vmi_says_so() {
    let pod = Pod::new();
    let disk = |kind: &str, capacity: &str| {
        with_volume(&format!(
            r#"{{"name":"h","hostDisk":{{"path":"/data/vm.img","type":"{kind}","capacity":"{capacity}"}}}}"#
        ))
    };
    let error = pod.refusal(&disk("DiskOrCreate", "1Mi"));
    assert!(
        error.contains("the host disk \"/data/vm.img\" is not at")
            && error.contains("mounted there"),
        "{error}"
    );
    let image = pod.path("var/run/kubevirt-private/vmi-disks/h/vm.img");
    fs::create_dir_all(image.parent().unwrap()).unwrap();
    assert!(pod.prepare(&disk("Disk", "1Mi")).is_err());
    assert!(
        pod.refusal(&disk("DiskOrCreate", "1Ei"))
            .contains("does not have the 1152921504606846976 bytes that")
    );
    pod.prepare(&disk("DiskOrCreate", "2.5Mi")).unwrap();
    assert_eq!(fs::metadata(&image).unwrap().len(), 2 * MIB);
    fs::write(&image, "data").unwrap();
    pod.prepare(&disk("DiskOrCreate", "2.5Mi")).unwrap();
    assert_eq!(fs::read(&image).unwrap(), b"data", "what is there stays");
}

#[test]
fn a_claim_that_is_not_attached_is_named() {
    let pod = Pod::new();
    let claim = r#"{"name":"data","persistentVolumeClaim":{"claimName":"c"}}"#;
    let error = pod.refusal(&with_volume(claim));
    assert!(
        error.contains("disk \"data\": volume \"data\" is a claim, but neither /"),
        "{error}"
    );
    assert!(
        error.ends_with("exists; is the claim attached to this pod?"),
        "{error}"
    );
    let without_disk = format!(r#"{{"spec":{{"volumes":[{claim}]}}}}"#);
    pod.prepare(&without_disk).unwrap();
    let hotplugged = with_volume(claim).replace(
        "\"spec\"",
        r#""status":{"volumeStatus":[{"name":"data","hotplugVolume":{}}]},"spec""#,
    );
    pod.prepare(&hotplugged).unwrap();
}

#[test]
fn kernel_boot_artifacts_are_linked() {
    let mut pod = Pod::new();
    pod.flags.image_volume = true;
    let vmi = r#"{"spec":{"domain":{"firmware":{"kernelBoot":{"container":{"image":"i","kernelPath":"/boot/vmlinuz","initrdPath":"/boot/initrd"}}}}}}"#;
    let kernel = pod.write("var/run/kubevirt-kernel-boot/boot/vmlinuz", b"kernel");
    let error = pod.refusal(vmi);
    assert!(
        error.contains("no \"/boot/initrd\" of the kernel boot container \"i\""),
        "{error}"
    );
    pod.write("var/run/kubevirt-kernel-boot/boot/initrd", b"initrd");
    pod.prepare(vmi).unwrap();
    assert_eq!(
        fs::read_link(pod.path("var/run/kubevirt/container-disks/kernel-boot/vmlinuz")).unwrap(),
        kernel.canonicalize().unwrap()
    );
}

#[test]
fn an_image_grows_with_its_claim() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let image = pod.write("var/run/kubevirt-private/vmi-disks/data/disk.img", &[]);
    fs::File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(4 * MIB)
        .unwrap();
    let vmi = |capacity: &str| {
        let claim = format!(
            r#"{{"capacity":{{"storage":"{capacity}"}},"requests":{{"storage":"20Mi"}},"filesystemOverhead":"0.1"}}"#
        );
        with_volume(r#"{"name":"data","persistentVolumeClaim":{"claimName":"c"}}"#)
            .replace("\"spec\"", &format!(r#""status":{{"volumeStatus":[{{"name":"data","persistentVolumeClaimInfo":{claim}}}]}},"spec""#))
    };
    pod.prepare(&vmi("10Mi")).unwrap();
    assert_eq!(info(&image)["virtual-size"], 9 * MIB);
    pod.prepare(&vmi("5Mi")).unwrap();
    assert_eq!(info(&image)["virtual-size"], 9 * MIB, "it never shrinks");
    pod.prepare(&vmi("100Mi")).unwrap();
    assert_eq!(
        info(&image)["virtual-size"],
        18 * MIB,
        "not more than was asked for"
    );
}

#[test]
fn a_running_disk_may_grow_to_the_size_of_its_claim_and_file_system() {
    let pod = Pod::new();
    let image = pod.write(
        "var/run/kubevirt-private/vmi-disks/data/disk.img",
        &[1; 4096],
    );
    let size_of = |notes: &str| {
        let xml = format!(
            "<domain><devices><disk type='file'><source file='{}'/>{notes}</disk></devices></domain>",
            image.display()
        );
        max_size(
            &pod.flags,
            &DomainSpec::from_xml(&xml).unwrap().devices.disks[0],
        )
        .unwrap()
    };
    let sized = |capacity: u64| {
        size_of(&format!(
            "<capacity>{capacity}</capacity><filesystemOverhead>0.1</filesystemOverhead>"
        ))
    };
    assert_eq!(sized(10 * MIB), Some(9 * MIB));
    assert_eq!(sized(MIB), None, "less than the smallest disk");
    let all = sized(1 << 60).unwrap();
    assert!(all < 1 << 60, "no more than the file system has, but {all}");
    assert_eq!(
        size_of("<capacity>10485760</capacity>"),
        None,
        "without the file system's part nothing is known"
    );
    assert_eq!(
        size_of("<capacity>10485760</capacity><filesystemOverhead>2</filesystemOverhead>"),
        None
    );
    assert_eq!(
        size_of("<filesystemOverhead>0.1</filesystemOverhead>"),
        None
    );
}
