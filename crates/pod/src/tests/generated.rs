//! Files that the launcher generates of the VMI: ISO images for cloud-init, ConfigMaps and the
//! like, and others.

use super::*;

/// Files in an ISO image with their contents, and its label.
fn iso(path: &Path) -> (String, BTreeMap<String, Vec<u8>>) {
    let out = tempfile::tempdir().unwrap();
    let tree = out.path().join("tree");
    let (image, to) = (path.display(), tree.display());
    let output = run(&format!(
        "xorriso -indev {image} -osirrox on -pvd_info -extract / {to}"
    ));
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
    let file = files.get(name);
    let file = file.unwrap_or_else(|| panic!("no {name} in {files:?}"));
    String::from_utf8(file.clone()).unwrap()
}

/// The cloud-init data's ISO image: its label and files.
fn cloud_init_iso(pod: &Pod, name: &str) -> (String, BTreeMap<String, Vec<u8>>) {
    let directory = "var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web";
    iso(&pod.path(&format!("{directory}/{name}.iso")))
}

const ISO: &[&str] = &["xorrisofs", "xorriso"];

#[test]
fn cloud_init_is_what_the_guest_expects() {
    let Some(pod) = Pod::with(ISO) else { return };
    let source = r##"{"userData":"#cloud-config\n","networkData":"version: 2"}"##;
    let volume = |kind: &str| with_volume(&format!(r#"{{"name":"ci","{kind}":{source}}}"#));
    pod.prepare(&volume("cloudInitNoCloud")).unwrap();
    let (label, files) = cloud_init_iso(&pod, "noCloud");
    assert_eq!(label, "cidata");
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        ["/meta-data", "/network-config", "/user-data"]
    );
    for (name, expected) in [
        ("/user-data", "#cloud-config\n"),
        ("/network-config", "version: 2"),
        (
            "/meta-data",
            r#"{"instance-id":"web.shop","local-hostname":"web"}"#,
        ),
    ] {
        assert_eq!(text(&files, name), expected);
    }

    pod.prepare(&volume("cloudInitConfigDrive")).unwrap();
    let (label, files) = cloud_init_iso(&pod, "configdrive");
    assert_eq!(label, "config-2");
    assert_eq!(
        files.keys().collect::<Vec<_>>(),
        [
            "/openstack/latest/meta_data.json",
            "/openstack/latest/network_data.json",
            "/openstack/latest/user_data"
        ]
    );
    let data = pod.path("var/run/kubevirt-ephemeral-disks/cloud-init-data/shop/web/data");
    assert!(!data.exists(), "secrets do not stay behind");
}

#[test]
fn compressed_user_data_reaches_the_guest_as_it_is() {
    let Some(pod) = Pod::with(ISO) else { return };
    pod.prepare(&with_volume(
        r#"{"name":"ci","cloudInitNoCloud":{"userDataBase64":"H4sIAAA="}}"#,
    ))
    .unwrap();
    let (_, files) = cloud_init_iso(&pod, "noCloud");
    assert_eq!(files["/user-data"], b"\x1f\x8b\x08\0\0");
}

#[test]
fn a_sidecar_may_change_the_data_source() {
    let Some(pod) = Pod::with(ISO) else { return };
    let vmi = serde_json::from_str(&with_volume(
        r#"{"name":"ci","cloudInitNoCloud":{"userData":"x"}}"#,
    ))
    .unwrap();
    let data = CloudInitData {
        data_source: DataSource::ConfigDrive,
        ..cloud_init(&pod.flags, &vmi).unwrap().unwrap()
    };
    write_cloud_init(&pod.flags, &vmi, &data).unwrap();
    let (_, files) = cloud_init_iso(&pod, "configdrive");
    assert!(
        text(&files, "/openstack/latest/meta_data.json").contains(r#""instance_id":"web.shop""#)
    );
    let nothing = CloudInitData {
        user_data: "".into(),
        ..data
    };
    assert!(
        os::logging::chain(&write_cloud_init(&pod.flags, &vmi, &nothing).unwrap_err())
            .contains("UserData or NetworkData is required")
    );
}

#[test]
fn device_metadata_is_on_the_config_drive() {
    let Some(pod) = Pod::with(ISO) else { return };
    let vmi = serde_json::from_str(&with_volume(
        r#"{"name":"ci","cloudInitConfigDrive":{"userData":"x"}}"#,
    ))
    .unwrap();
    let mut data = cloud_init(&pod.flags, &vmi).unwrap().unwrap();
    data.devices_data = Some(vec![DeviceData {
        r#type: "nic".into(),
        tags: vec!["t".into()],
        ..DeviceData::default()
    }]);
    write_cloud_init(&pod.flags, &vmi, &data).unwrap();
    let (_, files) = cloud_init_iso(&pod, "configdrive");
    assert!(
        text(&files, "/openstack/latest/meta_data.json")
            .contains(r#""devices":[{"type":"nic","bus":"","address":"","tags":["t"]}]"#)
    );
}

#[test]
fn config_volumes_are_iso_images_with_their_labels() {
    let Some(pod) = Pod::with(ISO) else { return };
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
    let Some(pod) = Pod::with(ISO) else { return };
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
    let error = pod.refusal(&with_volume(&long));
    assert!(
        error.contains("): xorriso : FAILURE : -volid: Text too long (33 > 32)"),
        "{error}"
    );
}

#[test]
fn sysprep_needs_an_answer_file() {
    let pod = Pod::new();
    let sysprep = with_volume(r#"{"name":"v","sysprep":{"secret":{"name":"s"}}}"#);
    assert!(
        pod.refusal(&sysprep)
            .contains("is the volume mounted in this pod?")
    );
    pod.write("var/run/kubevirt-private/sysprep/v/other.xml", b"");
    assert!(
        pod.refusal(&sysprep)
            .contains("should contain autounattend.xml or unattend.xml")
    );
}

#[test]
fn ignition_data_are_a_file() {
    let pod = Pod::new();
    pod.prepare(r#"{"metadata":{"name":"web","namespace":"shop","annotations":{"kubevirt.io/ignitiondata":"{}"}}}"#).unwrap();
    assert_eq!(
        fs::read(pod.path("var/run/kubevirt-ephemeral-disks/ignition-data/shop/web/data.ign"))
            .unwrap(),
        b"{}"
    );
}

#[test]
fn downward_metrics_have_a_disk_without_metrics() {
    let pod = Pod::new();
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
fn on_a_migration_target_iso_images_are_empty_and_as_large_as_the_source() {
    let pod = Pod::new();
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
    let data = cloud_init(&pod.flags, &with_sizes).unwrap();
    prepare_migration_target(&pod.flags, &with_sizes, &Context::default(), data.as_ref()).unwrap();
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
        &prepare_migration_target(&pod.flags, &vmi("{}"), &Context::default(), None).unwrap_err(),
    );
    assert!(
        error.contains("failed to find the status of volume v"),
        "{error}"
    );
}
