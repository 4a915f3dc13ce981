//! Every kind of volume is prepared, and the result is what the helper programs say it is.

use super::*;
use domain::DomainSpec;

const MIB: u64 = 1 << 20;
const CONTAINER_DISK: &str = r#"{"name":"root","containerDisk":{"image":"registry/disk:1"}}"#;
const EMPTY_DISK: &str = r#"{"name":"scratch","emptyDisk":{"capacity":"10000000"}}"#;
const EPHEMERAL: &str =
    r#"{"name":"data","ephemeral":{"persistentVolumeClaim":{"claimName":"c"}}}"#;

/// Files in an ISO image with their contents, and its label.
fn iso(path: &Path) -> (String, BTreeMap<String, Vec<u8>>) {
    let out = tempfile::tempdir().unwrap();
    let tree = out.path().join("tree");
    let arguments = [
        "-indev",
        path.to_str().unwrap(),
        "-osirrox",
        "on",
        "-pvd_info",
        "-extract",
        "/",
        tree.to_str().unwrap(),
    ];
    let output = run("xorriso", &arguments);
    let label = output
        .lines()
        .find_map(|line| line.strip_prefix("Volume Id    : "))
        .unwrap_or_else(|| panic!("no label in {output}"))
        .to_owned();
    let mut files = BTreeMap::new();
    if tree.exists() {
        walk(&tree, &mut |file| {
            files.insert(
                format!("/{}", file.strip_prefix(&tree).unwrap().display()),
                fs::read(file).unwrap(),
            );
        });
    }
    (label, files)
}

fn text(files: &BTreeMap<String, Vec<u8>>, name: &str) -> String {
    String::from_utf8(
        files
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {files:?}"))
            .clone(),
    )
    .unwrap()
}

const ISO_TOOLS: [&str; 2] = ["xorrisofs", "xorriso"];

#[test]
fn a_container_disk_gets_an_overlay_of_its_size() {
    let Some(pod) = Pod::with(&["qemu-img"]) else {
        return;
    };
    let image = pod.write("var/run/kubevirt/container-disks/disk_0.img", &[]);
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            image.to_str().unwrap(),
            "32M",
        ],
    );
    let before = fs::read(&image).unwrap();
    pod.prepare(&with_volume(CONTAINER_DISK)).unwrap();
    let overlay = info(&pod.path("var/run/kubevirt-ephemeral-disks/disk-data/root/disk.qcow2"));
    assert_eq!(overlay["virtual-size"], 32 * MIB);
    assert_eq!(overlay["backing-filename"], image.to_str().unwrap());
    assert_eq!(overlay["backing-filename-format"], "qcow2");
    assert_eq!(fs::read(&image).unwrap(), before);
}

#[test]
fn an_image_volume_is_linked_to_where_the_domain_expects_it() {
    let Some(mut pod) = Pod::with(&["qemu-img"]) else {
        return;
    };
    pod.cfg.image_volume = true;
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
    let overlay = info(&pod.path("var/run/kubevirt-ephemeral-disks/disk-data/root/disk.qcow2"));
    assert_eq!(overlay["virtual-size"], 4096);
    assert_eq!(overlay["backing-filename-format"], "raw");
}

#[test]
fn an_image_that_qemu_cannot_read_is_refused_with_its_reason() {
    let Some(pod) = Pod::with(&["qemu-img"]) else {
        return;
    };
    let image = pod.write("var/run/kubevirt/container-disks/disk_0.img", &[]);
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            image.to_str().unwrap(),
            "32M",
        ],
    );
    let mut bytes = fs::read(&image).unwrap();
    // The table of clusters (l1_table_offset) far behind the end of the image, and not aligned.
    bytes[40..48].copy_from_slice(&0x7fff_ffff_0001_u64.to_be_bytes());
    fs::write(&image, bytes).unwrap();
    let error = pod.prepare(&with_volume(CONTAINER_DISK)).unwrap_err();
    assert!(
        error.starts_with("volume \"root\": ")
            && error.contains("disk_0.img: QEMU cannot use it as qcow2: "),
        "{error}"
    );
    assert!(
        !pod.path("var/run/kubevirt-ephemeral-disks/disk-data/root/disk.qcow2")
            .exists()
    );
}

#[test]
fn an_image_that_takes_too_much_memory_to_inspect_is_refused() {
    let Some(mut pod) = Pod::with(&["qemu-img"]) else {
        return;
    };
    pod.cfg.disk_memory_limit = 8 << 20;
    let image = pod.write("var/run/kubevirt/container-disks/disk_0.img", &[]);
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            image.to_str().unwrap(),
            "32M",
        ],
    );
    assert!(
        pod.prepare(&with_volume(CONTAINER_DISK))
            .unwrap_err()
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
    let overlay = pod.path("var/run/kubevirt-ephemeral-disks/disk-data/data/disk.qcow2");
    let about = info(&overlay);
    assert_eq!(
        (&about["virtual-size"], &about["backing-filename-format"]),
        (&serde_json::json!(MIB), &serde_json::json!("raw"))
    );
    run(
        "qemu-io",
        &["-c", "write -P 42 0 64k", overlay.to_str().unwrap()],
    );
    assert_eq!(fs::read(&claim).unwrap(), content);
}

#[test]
fn an_empty_disk_is_rounded_down_to_mebibytes() {
    let Some(pod) = Pod::with(&["qemu-img"]) else {
        return;
    };
    pod.prepare(&with_volume(EMPTY_DISK)).unwrap();
    let about = info(&pod.path("var/run/libvirt/empty-disks/scratch.qcow2"));
    assert_eq!(
        (&about["format"], &about["virtual-size"]),
        (&serde_json::json!("qcow2"), &serde_json::json!(9 * MIB))
    );
    let tiny = with_volume(r#"{"name":"scratch","emptyDisk":{"capacity":"1000Ki"}}"#);
    assert!(
        pod.prepare(&tiny)
            .unwrap_err()
            .contains("\"1000Ki\" is less than 1Mi")
    );
    let odd = with_volume(r#"{"name":"scratch","emptyDisk":{"capacity":"much"}}"#);
    assert!(
        pod.prepare(&odd)
            .unwrap_err()
            .contains("emptyDisk.capacity")
    );
}

#[test]
fn a_host_disk_is_made_where_the_vmi_says_so() {
    let Some(pod) = Pod::with(&[]) else { return };
    let disk = |kind: &str, capacity: &str| {
        with_volume(&format!(
            r#"{{"name":"h","hostDisk":{{"path":"/data/vm.img","type":"{kind}","capacity":"{capacity}"}}}}"#
        ))
    };
    let error = pod.prepare(&disk("DiskOrCreate", "1Mi")).unwrap_err();
    assert!(
        error.contains("the host disk \"/data/vm.img\" is not at")
            && error.contains("mounted there"),
        "{error}"
    );
    let image = pod.path("var/run/kubevirt-private/vmi-disks/h/vm.img");
    fs::create_dir_all(image.parent().unwrap()).unwrap();
    assert!(pod.prepare(&disk("Disk", "1Mi")).is_err());
    assert!(
        pod.prepare(&disk("DiskOrCreate", "1Ei"))
            .unwrap_err()
            .contains("bytes left, but")
    );
    pod.prepare(&disk("DiskOrCreate", "2.5Mi")).unwrap();
    assert_eq!(fs::metadata(&image).unwrap().len(), 2 * MIB);
    fs::write(&image, "data").unwrap();
    pod.prepare(&disk("DiskOrCreate", "2.5Mi")).unwrap();
    assert_eq!(fs::read(&image).unwrap(), b"data", "what is there stays");
}

#[test]
fn a_claim_that_is_not_attached_is_named() {
    let Some(pod) = Pod::with(&[]) else { return };
    let claim = r#"{"name":"data","persistentVolumeClaim":{"claimName":"c"}}"#;
    let error = pod.prepare(&with_volume(claim)).unwrap_err();
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
fn cloud_init_is_what_the_guest_expects() {
    let Some(pod) = Pod::with(&ISO_TOOLS) else {
        return;
    };
    let source = r##"{"userData":"#cloud-config\n","networkData":"version: 2"}"##;
    pod.prepare(&with_volume(&format!(
        r#"{{"name":"ci","cloudInitNoCloud":{source}}}"#
    )))
    .unwrap();
    let (label, files) =
        iso(&pod.path("var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web/noCloud.iso"));
    assert_eq!(label, "cidata");
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        ["/meta-data", "/network-config", "/user-data"]
    );
    assert_eq!(
        (
            text(&files, "/user-data").as_str(),
            text(&files, "/network-config").as_str()
        ),
        ("#cloud-config\n", "version: 2")
    );
    assert_eq!(
        text(&files, "/meta-data"),
        r#"{"instance-id":"web.shop","local-hostname":"web"}"#
    );

    pod.prepare(&with_volume(&format!(
        r#"{{"name":"ci","cloudInitConfigDrive":{source}}}"#
    )))
    .unwrap();
    let dir = pod.path("var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web");
    let (label, files) = iso(&dir.join("configdrive.iso"));
    assert_eq!(label, "config-2");
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        [
            "/openstack/latest/meta_data.json",
            "/openstack/latest/network_data.json",
            "/openstack/latest/user_data"
        ]
    );
    assert!(!dir.join("data").exists(), "secrets do not stay behind");
}

#[test]
fn compressed_user_data_reaches_the_guest_as_it_is() {
    let Some(pod) = Pod::with(&ISO_TOOLS) else {
        return;
    };
    pod.prepare(&with_volume(
        r#"{"name":"ci","cloudInitNoCloud":{"userDataBase64":"H4sIAAA="}}"#,
    ))
    .unwrap();
    let (_, files) =
        iso(&pod.path("var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web/noCloud.iso"));
    assert_eq!(files["/user-data"], b"\x1f\x8b\x08\0\0");
}

#[test]
fn a_sidecar_may_change_the_data_source() {
    let Some(pod) = Pod::with(&ISO_TOOLS) else {
        return;
    };
    let vmi = serde_json::from_str(&with_volume(
        r#"{"name":"ci","cloudInitNoCloud":{"userData":"x"}}"#,
    ))
    .unwrap();
    let data = CloudInitData {
        data_source: DataSource::ConfigDrive,
        ..cloud_init(&pod.cfg, &vmi).unwrap().unwrap()
    };
    write_cloud_init(&pod.cfg, &vmi, &data).unwrap();
    let (_, files) =
        iso(&pod.path("var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web/configdrive.iso"));
    assert!(
        text(&files, "/openstack/latest/meta_data.json").contains(r#""instance_id":"web.shop""#)
    );
    let nothing = CloudInitData {
        user_data: "".into(),
        ..data
    };
    assert!(
        os::logging::chain(&write_cloud_init(&pod.cfg, &vmi, &nothing).unwrap_err())
            .contains("UserData or NetworkData is required")
    );
}

#[test]
fn device_metadata_is_on_the_config_drive() {
    let Some(pod) = Pod::with(&ISO_TOOLS) else {
        return;
    };
    let vmi = serde_json::from_str(&with_volume(
        r#"{"name":"ci","cloudInitConfigDrive":{"userData":"x"}}"#,
    ))
    .unwrap();
    let mut data = cloud_init(&pod.cfg, &vmi).unwrap().unwrap();
    data.devices_data = Some(vec![DeviceData {
        r#type: "nic".into(),
        tags: vec!["t".into()],
        ..DeviceData::default()
    }]);
    write_cloud_init(&pod.cfg, &vmi, &data).unwrap();
    let (_, files) =
        iso(&pod.path("var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web/configdrive.iso"));
    assert!(
        text(&files, "/openstack/latest/meta_data.json")
            .contains(r#""devices":[{"type":"nic","bus":"","address":"","tags":["t"]}]"#)
    );
}

#[test]
fn config_volumes_are_iso_images_with_their_labels() {
    let Some(pod) = Pod::with(&ISO_TOOLS) else {
        return;
    };
    let private = "var/run/kubevirt-private";
    // As the kubelet lays a ConfigMap out.
    pod.write(&format!("{private}/config-map/v/..2026/key=1"), b"map");
    pod.link("..2026", &format!("{private}/config-map/v/..data"));
    pod.link("..data/key=1", &format!("{private}/config-map/v/key=1"));
    pod.write(&format!("{private}/secret/v/password"), b"secret");
    pod.write(&format!("{private}/downwardapi/v/labels"), b"fields");
    pod.write(
        "var/run/secrets/kubernetes.io/serviceaccount/token",
        b"account",
    );
    pod.write(&format!("{private}/sysprep/v/AutoUnattend.xml"), b"answers");
    for (source, image, label, file, content) in [
        (
            r#""configMap":{"name":"m","volumeLabel":"L1"}"#,
            "config-map-disks/v.iso",
            "L1",
            "/key=1",
            "map",
        ),
        (
            r#""secret":{"secretName":"s"}"#,
            "secret-disks/v.iso",
            "cfgdata",
            "/password",
            "secret",
        ),
        (
            r#""downwardAPI":{"volumeLabel":"L3"}"#,
            "downwardapi-disks/v.iso",
            "L3",
            "/labels",
            "fields",
        ),
        (
            r#""serviceAccount":{"serviceAccountName":"a"}"#,
            "service-account-disk/service-account.iso",
            "cfgdata",
            "/token",
            "account",
        ),
        (
            r#""sysprep":{"configMap":{"name":"m"}}"#,
            "sysprep-disks/v.iso",
            "unattendCD",
            "/AutoUnattend.xml",
            "answers",
        ),
    ] {
        pod.prepare(&with_volume(&format!(r#"{{"name":"v",{source}}}"#)))
            .unwrap();
        let (found_label, files) = iso(&pod.path(&format!("{private}/{image}")));
        assert_eq!(found_label, label, "{image}");
        assert_eq!(text(&files, file), content, "{image}");
    }
}

#[test]
// D-disk-19 (docs/differences.md).
fn a_key_like_an_option_is_a_file_and_a_label_that_is_too_long_is_told() {
    let Some(pod) = Pod::with(&ISO_TOOLS) else {
        return;
    };
    for key in ["-volid", "-a", "--help", "a"] {
        pod.write(
            &format!("var/run/kubevirt-private/config-map/v/{key}"),
            key.as_bytes(),
        );
    }
    pod.prepare(&with_volume(r#"{"name":"v","configMap":{"name":"m"}}"#))
        .unwrap();
    let (label, files) = iso(&pod.path("var/run/kubevirt-private/config-map-disks/v.iso"));
    assert_eq!(label, "cfgdata");
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        ["/--help", "/-a", "/-volid", "/a"]
    );
    let long = format!(
        r#"{{"name":"v","configMap":{{"name":"m","volumeLabel":"{}"}}}}"#,
        "L".repeat(33)
    );
    let error = pod.prepare(&with_volume(&long)).unwrap_err();
    assert!(
        error.contains("): xorriso : FAILURE : -volid: Text too long (33 > 32)"),
        "{error}"
    );
}

#[test]
fn sysprep_needs_an_answer_file() {
    let Some(pod) = Pod::with(&[]) else { return };
    let sysprep = with_volume(r#"{"name":"v","sysprep":{"secret":{"name":"s"}}}"#);
    assert!(
        pod.prepare(&sysprep)
            .unwrap_err()
            .contains("is the volume mounted in this pod?")
    );
    pod.write("var/run/kubevirt-private/sysprep/v/other.xml", b"");
    assert!(
        pod.prepare(&sysprep)
            .unwrap_err()
            .contains("should contain autounattend.xml or unattend.xml")
    );
}

#[test]
fn ignition_data_are_a_file() {
    let Some(pod) = Pod::with(&[]) else { return };
    pod.prepare(r#"{"metadata":{"name":"web","namespace":"shop","annotations":{"kubevirt.io/ignitiondata":"{}"}}}"#).unwrap();
    assert_eq!(
        fs::read(pod.path("var/run/kubevirt-ephemeral-disks/ignition-data/shop/web/data.ign"))
            .unwrap(),
        b"{}"
    );
}

#[test]
fn downward_metrics_have_a_disk_without_metrics() {
    let Some(pod) = Pod::with(&[]) else { return };
    pod.prepare(&with_volume(r#"{"name":"m","downwardMetrics":{}}"#))
        .unwrap();
    let disk = fs::read(pod.path("var/run/kubevirt-private/downwardapi-disks/vhostmd0")).unwrap();
    assert_eq!(disk.len(), 262_144);
    let length = u32::from_be_bytes(disk[12..16].try_into().unwrap()) as usize;
    let sum: u32 = disk[16..16 + length]
        .iter()
        .map(|byte| u32::from(*byte))
        .sum();
    assert_eq!(
        (
            &disk[..8],
            u32::from_be_bytes(disk[8..12].try_into().unwrap())
        ),
        (&b"mvbd\0\0\0\0"[..], sum)
    );
    assert!(disk[16..].starts_with(b"<metrics></metrics>\n"));
}

#[test]
fn kernel_boot_artifacts_are_linked() {
    let Some(mut pod) = Pod::with(&[]) else {
        return;
    };
    pod.cfg.image_volume = true;
    let vmi = r#"{"spec":{"domain":{"firmware":{"kernelBoot":{"container":{"image":"i","kernelPath":"/boot/vmlinuz","initrdPath":"/boot/initrd"}}}}}}"#;
    let kernel = pod.write("var/run/kubevirt-kernel-boot/boot/vmlinuz", b"kernel");
    let error = pod.prepare(vmi).unwrap_err();
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
fn on_a_migration_target_iso_images_are_empty_and_as_large_as_the_source() {
    let Some(pod) = Pod::with(&[]) else { return };
    let map = r#"{"name":"v","configMap":{"name":"m"}},{"name":"ci","cloudInitNoCloud":{"userData":"x"}}"#;
    let vmi = |status: &str| -> Vmi {
        let disks = r#"{"devices":{"disks":[{"name":"v"},{"name":"ci"}]}}"#;
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop"}},"spec":{{"domain":{disks},"volumes":[{map}]}},"status":{status}}}"#
        );
        serde_json::from_str(&json).unwrap()
    };
    let with_sizes =
        vmi(r#"{"volumeStatus":[{"name":"v","size":4096},{"name":"ci","size":2048}]}"#);
    let data = cloud_init(&pod.cfg, &with_sizes).unwrap();
    prepare_migration_target(&pod.cfg, &with_sizes, &Context::default(), data.as_ref()).unwrap();
    for (path, size) in [
        ("var/run/kubevirt-private/config-map-disks/v.iso", 4096),
        (
            "var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web/noCloud.iso",
            2048,
        ),
    ] {
        assert_eq!(fs::read(pod.path(path)).unwrap(), vec![0; size], "{path}");
    }
    let error = os::logging::chain(
        &prepare_migration_target(&pod.cfg, &vmi("{}"), &Context::default(), None).unwrap_err(),
    );
    assert!(
        error.contains("failed to find the status of volume v"),
        "{error}"
    );
}

#[test]
fn an_image_grows_with_its_claim() {
    let Some(pod) = Pod::with(&["qemu-img"]) else {
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
    let Some(pod) = Pod::with(&[]) else { return };
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
            &pod.cfg,
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

/// One of each kind that is made.
fn everything(pod: &Pod) -> String {
    let image = pod.write("var/run/kubevirt/container-disks/disk_0.img", &[]);
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            image.to_str().unwrap(),
            "32M",
        ],
    );
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
    let Some(pod) = Pod::with(&["qemu-img", "xorrisofs"]) else {
        return;
    };
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
    let Some(pod) = Pod::with(&["qemu-img", "xorrisofs"]) else {
        return;
    };
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
        run(
            "qemu-io",
            &["-c", "write -P 42 0 64k", pod.path(disk).to_str().unwrap()],
        );
    }
    pod.prepare(&vmi).unwrap();
    for disk in disks {
        assert!(
            !run(
                "qemu-io",
                &["-c", "read -P 42 0 64k", pod.path(disk).to_str().unwrap()]
            )
            .contains("failed"),
            "{disk}"
        );
    }
}

#[test]
fn a_launcher_that_is_not_root_leaves_roots_directories_alone() {
    // In the image /var/lib/libvirt/qemu is root's, with mode 0750: uid 107 may not enter it.
    let dir = tempfile::tempdir().unwrap();
    directories(
        &Config {
            root: Root::new(dir.path()),
            run_as_nonroot: true,
            ..Config::default()
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
    let Some(pod) = Pod::with(&[]) else { return };
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    directories(&pod.cfg, "uid-1").unwrap();
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
    directories(&pod.cfg, "uid-1").unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "boot");
    assert!(
        directories(&pod.cfg, "../etc")
            .unwrap_err()
            .to_string()
            .contains("cannot be a file name")
    );
}

#[test]
fn the_directory_of_hotplugged_volumes_reaches_conversion_and_plan() {
    let Some(mut pod) = Pod::with(&[]) else {
        return;
    };
    pod.cfg.hotplug_disk_dir = "/hotplugged/".to_owned();
    let image = pod.write("/hotplugged/data.img", &[0; 512]);
    let vmi: Vmi = serde_json::from_str(
        r#"{"metadata":{"name":"web","namespace":"shop"},
            "spec":{"domain":{"devices":{"disks":[{"name":"data","disk":{"bus":"scsi"}}]}},
                    "volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"c","hotpluggable":true}}]},
            "status":{"volumeStatus":[{"name":"data","phase":"Ready","hotplugVolume":{}}]}}"#,
    )
    .unwrap();
    pod.cfg.allow_emulation = true;
    let ctx = pod.collect(&vmi).unwrap();
    let wanted = convert::domain(&vmi, &ctx).unwrap();
    assert_eq!(wanted.devices.disks[0].source.file, image.to_str().unwrap());
    let live = domain::DomainSpec::default();
    let plan = convert::plan::disks(&live, &wanted, ctx.paths().hotplug_disk_dir);
    assert_eq!(plan.attach.len(), 1);
}
