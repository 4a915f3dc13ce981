//! Claims that are block devices, with loop devices where the machine lets us have them.

use super::*;
use domain::DomainSpec;

const SIZE: u64 = 8 << 20;

/// A loop device under a name in the pod's `/dev`.
struct Device {
    number: String,
    _image: tempfile::NamedTempFile,
}

impl Device {
    /// `None`, with a message, where there are no loop devices for us.
    fn at(pod: &Pod, path: &str) -> Option<Self> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(SIZE).unwrap();
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(image.path())
            .output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            eprintln!("skipped: no loop device to be had");
            return None;
        };
        let device = Self {
            number: String::from_utf8(output.stdout).unwrap().trim().to_owned(),
            _image: image,
        };
        let number = rustix::fs::stat(device.number.as_str()).unwrap().st_rdev;
        let path = pod.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        if rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::BlockDevice,
            mode,
            number,
        )
        .is_err()
            || fs::File::open(&path).is_err()
        {
            eprintln!("skipped: no device nodes to be had");
            return None;
        }
        Some(device)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.number]).status();
    }
}

#[test]
fn a_block_claim_is_found_and_its_block_sizes_too() {
    let pod = Pod::new();
    let Some(_device) = Device::at(&pod, "dev/data") else {
        return;
    };
    let claim = with_volume(r#"{"name":"data","persistentVolumeClaim":{"claimName":"c"}}"#)
        .replace(
            r#""disk":{}"#,
            r#""disk":{},"blockSize":{"matchVolume":{}}"#,
        );
    let ctx = pod.collect(&serde_json::from_str(&claim).unwrap()).unwrap();
    assert!(ctx.is_block_pvc["data"]);
    let probe = &ctx.block_device_probes[pod.path("dev/data").to_str().unwrap()];
    assert_eq!((probe.logical, probe.physical), (512, 512));
    pod.prepare(&claim).unwrap();
}

#[test]
fn an_ephemeral_volume_over_a_device_has_its_size() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let Some(_device) = Device::at(&pod, "dev/data") else {
        return;
    };
    pod.prepare(&with_volume(
        r#"{"name":"data","ephemeral":{"persistentVolumeClaim":{"claimName":"c"}}}"#,
    ))
    .unwrap();
    let overlay = info(&pod.overlay("data"));
    assert_eq!(overlay["virtual-size"], SIZE);
    assert_eq!(
        overlay["backing-filename"],
        pod.path("dev/data").to_str().unwrap()
    );
}

#[test]
fn a_hotplugged_device_is_ready_as_soon_as_it_is_there() {
    let pod = Pod::new();
    let path = pod.path("var/run/kubevirt/hotplug-disks/data");
    let xml = format!(
        r#"<domain><devices><disk type="block"><source dev="{}"/><target dev="sda"/></disk></devices></domain>"#,
        path.display()
    );
    let domain = DomainSpec::from_xml(&xml).unwrap();
    assert!(!disk_ready(&pod.flags, &domain.devices.disks[0]));
    let Some(_device) = Device::at(&pod, "var/run/kubevirt/hotplug-disks/data") else {
        return;
    };
    assert!(disk_ready(&pod.flags, &domain.devices.disks[0]));
    assert!(
        disk_modes(&pod.flags, &domain)
            .direct_io_exceptions
            .is_empty()
    );
    assert_eq!(
        max_size(&pod.flags, &domain.devices.disks[0]).unwrap(),
        Some(SIZE)
    );
    let vmi = with_volume(r#"{"name":"data","dataVolume":{"name":"d"}}"#).replace(
        "\"spec\"",
        r#""status":{"volumeStatus":[{"name":"data","hotplugVolume":{}}]},"spec""#,
    );
    assert!(
        pod.collect(&serde_json::from_str(&vmi).unwrap())
            .unwrap()
            .is_block_dv["data"]
    );
}
