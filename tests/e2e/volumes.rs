//! Every kind of volume, as the guest sees it: it reads what is on images, and writes to its disks.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Guest, LoopDevice, Pod, User, Vmi, in_container, in_pod};

const MIB: usize = 1 << 20;
/// What is on the images that no guest may change.
const UNTOUCHED: u8 = 0x5a;

/// Volumes that become ISO images: name, source, where the pod has its files, a file, its text,
/// label of the image.
fn isos() -> [(
    &'static str,
    Value,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
); 5] {
    [
        (
            "map",
            json!({"configMap": {"name": "m", "volumeLabel": "MAP"}}),
            "config-map/map",
            "key",
            "from a ConfigMap",
            "MAP",
        ),
        (
            "secret",
            json!({"secret": {"secretName": "s", "volumeLabel": "SECRET"}}),
            "secret/secret",
            "password",
            "from a Secret",
            "SECRET",
        ),
        (
            "fields",
            json!({"downwardAPI": {"volumeLabel": "FIELDS"}}),
            "downwardapi/fields",
            "labels",
            "app=\"x\"",
            "FIELDS",
        ),
        (
            "account",
            json!({"serviceAccount": {"serviceAccountName": "a"}}),
            "",
            "token",
            "the account's token",
            "cfgdata",
        ),
        (
            "answers",
            json!({"sysprep": {"configMap": {"name": "w"}}}),
            "sysprep/answers",
            "Unattend.xml",
            "<unattend/>",
            "unattendCD",
        ),
    ]
}

fn put(pod: &Pod, path: &str, content: &[u8]) -> PathBuf {
    let path = pod.path(path);
    std::fs::write(&path, content).unwrap();
    path
}

fn with(source: Value, name: &str) -> Value {
    let mut volume = source;
    volume["name"] = json!(name);
    volume
}

/// A disk whose serial is its name.
fn disk(name: &str, bus: &str) -> Value {
    json!({"name": name, "serial": name, "disk": {"bus": bus}})
}

/// Writes the disk's name all over the first half MiB of it, and reads it again from the medium.
async fn write(guest: &mut Guest, name: &str) {
    let line = guest
        .run("disks")
        .await
        .lines()
        .find(|line| line.contains(&format!(" {name} ")))
        .map(str::to_owned);
    let device = line
        .unwrap_or_else(|| panic!("the guest has no disk {name}"))
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    guest
        .run(&format!(
            "yes {name} | head -c 524288 | dd of=/dev/{device} conv=fsync 2>/dev/null"
        ))
        .await;
    let read = guest
        .run(&format!(
            "echo 3 >/proc/sys/vm/drop_caches; head -c 524288 /dev/{device} | grep -cx {name}"
        ))
        .await;
    let lines = 524_288 / (name.len() + 1);
    assert_eq!(read, lines.to_string(), "{name} on {device}");
}

fn begins_with_name(image: &Path, name: &str) {
    let content = std::fs::read(image).unwrap();
    assert!(
        content.starts_with(format!("{name}\n{name}\n").as_bytes()),
        "{name}: the guest's data are not on {}",
        image.display()
    );
}

#[test]
fn the_guest_reads_images_and_writes_disks_and_no_backing_image_changes() {
    in_pod(reads_and_writes_volumes());
}

/// Again as root: QEMU's user differs from the launcher's, so images and devices change their
/// owner.
#[test]
fn the_guest_reads_images_in_a_pod_of_roots() {
    in_container(User::Root, reads_and_writes_volumes());
}

async fn reads_and_writes_volumes() {
    let mut pod = Pod::new();
    // First, for a container disk goes by its place among the volumes.
    let mut vmi = Vmi::new("volumes").with_image(&pod).volume(
        with(
            json!({"containerDisk": {"image": "example/image"}}),
            "image",
        ),
        disk("image", "scsi"),
    );
    let image = pod.container_disk(1);
    std::fs::write(&image, vec![UNTOUCHED; 4 * MIB]).unwrap();

    for (name, source, place, file, text, _) in isos() {
        let place = if place.is_empty() {
            "/var/run/secrets/kubernetes.io/serviceaccount".to_owned()
        } else {
            format!("/var/run/kubevirt-private/{place}")
        };
        put(
            &pod,
            &format!("{place}/{file}"),
            format!("{text}\n").as_bytes(),
        );
        let drive = if name == "map" {
            json!({"name": name, "cdrom": {"bus": "sata"}})
        } else {
            disk(name, "virtio")
        };
        vmi = vmi.volume(with(source, name), drive);
    }
    let claims = "/var/run/kubevirt-private/vmi-disks";
    let claim = put(&pod, &format!("{claims}/claim/disk.img"), &[0; 4 * MIB]);
    let below = put(
        &pod,
        &format!("{claims}/ephemeral/disk.img"),
        &[UNTOUCHED; 4 * MIB],
    );
    pod.path(&format!("{claims}/host/x"));
    let device = LoopDevice::at(&pod.path("/dev/device"), 4 * MIB as u64);
    let seed = json!({"cloudInitConfigDrive": {"userData": "#cloud-config\n# made for the test\n", "networkData": "{\"links\":[]}"}});
    vmi = vmi
        .volume(with(seed, "seed"), json!({"name": "seed", "cdrom": {"bus": "sata"}}))
        .volume(with(json!({"emptyDisk": {"capacity": "8Mi"}}), "empty"), disk("empty", "virtio"))
        .volume(
            with(json!({"hostDisk": {"path": "/data/host.img", "type": "DiskOrCreate", "capacity": "4Mi"}}), "host"),
            disk("host", "virtio"),
        )
        .volume(with(json!({"persistentVolumeClaim": {"claimName": "c"}}), "claim"), disk("claim", "virtio"))
        .volume(with(json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "e"}}}), "ephemeral"), disk("ephemeral", "virtio"));
    if device.is_some() {
        vmi = vmi.volume(
            with(
                json!({"persistentVolumeClaim": {"claimName": "d"}}),
                "device",
            ),
            disk("device", "virtio"),
        );
    }
    pod.start(&vmi, &[]).await;
    let mut guest = pod.boot(&vmi).await;

    for (name, _, _, file, text, label) in isos() {
        let read = format!(
            "mount -t iso9660 -o ro $(findfs LABEL={label}) /mnt && cat /mnt/{file}; umount /mnt"
        );
        assert_eq!(guest.run(&read).await, text, "{name}");
    }
    assert!(
        guest
            .run("seed user-data")
            .await
            .contains("# made for the test")
    );
    assert_eq!(guest.run("seed network_data.json").await, "{\"links\":[]}");
    assert!(guest.run("seed meta-data").await.contains("instance_id"));

    for name in ["empty", "host", "claim", "ephemeral", "image"] {
        write(&mut guest, name).await;
    }
    begins_with_name(&claim, "claim");
    begins_with_name(&pod.path(&format!("{claims}/host/host.img")), "host");
    if let Some(device) = &device {
        write(&mut guest, "device").await;
        begins_with_name(device.image(), "device");
    }
    for backing in [&image, &below] {
        let content = std::fs::read(backing).unwrap();
        assert!(
            content.len() == 4 * MIB && content.iter().all(|&byte| byte == UNTOUCHED),
            "{} has changed",
            backing.display()
        );
    }
}

#[test]
fn a_no_cloud_seed_reaches_the_guest() {
    in_pod(async {
        let mut pod = Pod::new();
        let secrets =
            json!({"secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"}});
        let seed = json!({"cloudInitNoCloud": secrets});
        // Both keys of each secret are mounts; for the one that is not there the kubelet makes a
        // directory.
        let key = |name: &str| pod.path(&format!("/var/run/kubevirt-private/secret/seed/{name}"));
        for missing in ["userdata", "networkdata"] {
            std::fs::create_dir(key(missing)).unwrap();
        }
        let user_data = "#cloud-config\n# made for the test\n";
        std::fs::write(key("userData"), user_data).unwrap();
        std::fs::write(key("networkData"), "version: 2\n").unwrap();
        let vmi = Vmi::new("seed").with_image(&pod).volume(
            with(seed, "seed"),
            json!({"name": "seed", "cdrom": {"bus": "sata"}}),
        );
        pod.start(&vmi, &[]).await;
        let mut guest = pod.boot(&vmi).await;
        assert!(
            guest
                .run("seed user-data")
                .await
                .contains("# made for the test")
        );
        assert!(
            guest
                .run("seed network-config")
                .await
                .contains("version: 2")
        );
        assert!(guest.run("seed meta-data").await.contains("instance-id"));
    });
}
