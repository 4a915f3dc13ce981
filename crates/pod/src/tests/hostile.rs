//! Attacks through data of users: claims, images, paths in the VMI. SECURITY.md has the CVEs that
//! they are like.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

const CLAIM: &str = r#"{"name":"data","persistentVolumeClaim":{"claimName":"c"}}"#;
const DATA_DIR: &str = "var/run/kubevirt-private/vmi-disks/data";
const IMAGE: &str = "var/run/kubevirt/container-disks/disk_0.img";
const CONTAINER_DISK: &str = r#"{"name":"root","containerDisk":{"image":"registry/disk:1"}}"#;

/// A pod with a secret that nobody may get at.
fn pod() -> Pod {
    let pod = Pod::new();
    pod.write("etc/shadow", &[b's'; 4096]);
    pod
}

fn refusal(pod: &Pod, volume: &str) -> String {
    let before = pod.files();
    let error = pod.refusal(&with_volume(volume));
    let after: BTreeMap<_, _> = pod.files();
    assert_eq!(
        after.get(&pod.path("etc/shadow")),
        before.get(&pod.path("etc/shadow")),
        "the secret was touched"
    );
    assert!(
        after
            .keys()
            .all(|path| !path.to_string_lossy().ends_with(".qcow2")),
        "an image was made of it"
    );
    error
}

#[test]
// D-disk-12 (docs/differences.md).
fn cve_2025_64433_a_link_instead_of_a_claims_image() {
    for target in ["/etc/shadow", "../../../../../etc/shadow", "loop"] {
        let pod = pod();
        pod.link(target, &format!("{DATA_DIR}/disk.img"));
        pod.link("disk.img", &format!("{DATA_DIR}/loop"));
        let ephemeral =
            r#"{"name":"data","ephemeral":{"persistentVolumeClaim":{"claimName":"c"}}}"#;
        for volume in [CLAIM, ephemeral] {
            let error = refusal(&pod, volume);
            assert!(
                error.contains("disk.img is reached through a symbolic link"),
                "{target}: {error}"
            );
        }
    }
}

#[test]
fn a_claims_image_may_be_outside_the_users_own_root() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(&outside, [b'd'; 4096]).unwrap();
    let mut pod = pod();
    pod.link(
        &outside.path().display().to_string(),
        &format!("{DATA_DIR}/disk.img"),
    );
    assert!(refusal(&pod, CLAIM).contains("is reached through a symbolic link"));
    pod.flags.root = Root::of_user(pod.dir.path());
    pod.prepare(&with_volume(CLAIM)).unwrap();
}

#[test]
fn a_link_instead_of_a_volumes_directory() {
    let pod = pod();
    pod.write("elsewhere/disk.img", &[0; 512]);
    pod.link("/elsewhere", DATA_DIR);
    assert!(refusal(&pod, CLAIM).contains("is reached through a symbolic link"));
}

#[test]
fn what_is_no_data_is_never_opened() {
    let pod = pod();
    let image = pod.path(&format!("{DATA_DIR}/disk.img"));
    fs::create_dir_all(&image).unwrap();
    assert!(refusal(&pod, CLAIM).contains("is a directory"));
    fs::remove_dir(&image).unwrap();
    // Opening a pipe would wait for a writer for ever.
    rustix::fs::mkfifoat(rustix::fs::CWD, &image, rustix::fs::Mode::RUSR).unwrap();
    assert!(refusal(&pod, CLAIM).contains("is a pipe"));
    fs::remove_file(&image).unwrap();
    std::os::unix::net::UnixListener::bind(&image).unwrap();
    assert!(refusal(&pod, CLAIM).contains("is a socket"));
}

#[test]
fn cve_2022_1798_a_container_disks_path_that_leads_out() {
    let mut pod = pod();
    pod.flags.image_volume = true;
    let mount = "var/run/kubevirt-image-volume/disk_0";
    pod.write(&format!("{mount}/disk/ok.raw"), &[0; 512]);
    pod.link("/etc/shadow", &format!("{mount}/absolute"));
    pod.link("../../../../etc", &format!("{mount}/up"));
    for path in [
        "/absolute",
        "/up/shadow",
        "../../../../etc/shadow",
        "/../../../../etc/shadow",
        "/disk/../../../../../etc/shadow",
    ] {
        let volume =
            format!(r#"{{"name":"root","containerDisk":{{"image":"i","path":"{path}"}}}}"#);
        assert!(
            refusal(&pod, &volume).contains("in the container disk \"i\""),
            "{path}"
        );
    }
    let kernel = |path: &str| {
        format!(
            r#"{{"spec":{{"domain":{{"firmware":{{"kernelBoot":{{"container":{{"image":"i","kernelPath":"{path}"}}}}}}}}}}}}"#
        )
    };
    pod.write("var/run/kubevirt-kernel-boot/boot/vmlinuz", b"kernel");
    for path in ["../../../etc/shadow", "/boot/../../../../etc/shadow", ".."] {
        let error = pod.refusal(&kernel(path));
        assert!(
            error.contains("of the kernel boot container") || error.contains("is a directory"),
            "{path}: {error}"
        );
    }
}

#[test]
fn a_link_instead_of_the_only_image_of_an_image_volume() {
    let mut pod = pod();
    pod.flags.image_volume = true;
    pod.link(
        "/etc/shadow",
        "var/run/kubevirt-image-volume/disk_0/disk/image.raw",
    );
    assert!(pod.prepare(&with_volume(CONTAINER_DISK)).is_err());
    assert!(!pod.path(IMAGE).exists());
}

#[test]
fn cve_2025_64324_a_host_disk_whose_path_leads_out() {
    let disk = |path: &str| {
        format!(
            r#"{{"name":"data","hostDisk":{{"path":"{path}","type":"DiskOrCreate","capacity":"1Mi"}}}}"#
        )
    };
    for path in ["", "/", "/data/..", "..", "/data/."] {
        let pod = pod();
        fs::create_dir_all(pod.path(DATA_DIR)).unwrap();
        assert!(
            refusal(&pod, &disk(path)).contains("does not name a file"),
            "{path:?}"
        );
    }
    let pod = pod();
    pod.link("/etc/shadow", &format!("{DATA_DIR}/vm.img"));
    assert!(refusal(&pod, &disk("/data/vm.img")).contains("is reached through a symbolic link"));
    // A link to nothing must not be made into a file somewhere else.
    pod.link("../../../../../planted", &format!("{DATA_DIR}/new.img"));
    assert!(refusal(&pod, &disk("/data/new.img")).contains("is reached through a symbolic link"));
    assert!(!pod.path("planted").exists());
    // Nor a half-made one that was linked away.
    pod.link(
        "../../../../../etc/shadow",
        &format!("{DATA_DIR}/other.img.staging"),
    );
    pod.prepare(&with_volume(&disk("/data/other.img"))).unwrap();
    assert_eq!(fs::read(pod.path("etc/shadow")).unwrap(), [b's'; 4096]);
}

#[test]
// D-disk-11 (docs/differences.md).
fn an_image_that_refers_to_other_files_is_refused() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let shadow = pod.write("etc/shadow", &[b's'; 4096]);
    let image = pod.write(IMAGE, &[]);
    let (image, shadow) = (image.to_str().unwrap(), shadow.to_str().unwrap());
    for backing in [
        shadow,
        "../../../../etc/shadow",
        "json:{\"driver\":\"file\",\"filename\":\"/etc/shadow\"}",
        "nbd://host/export",
        "",
    ] {
        if backing.is_empty() {
            let own = pod.path("own.raw");
            let options = format!("data_file={},data_file_raw=on", own.display());
            run(&format!(
                "qemu-img create -q -f qcow2 -o {options} {image} 1M"
            ));
            assert!(refusal_of_image(&pod).contains("keeps its data in another file"));
        } else {
            run(&format!(
                "qemu-img create -q -f qcow2 -u -b {backing} -F raw {image} 1M"
            ));
            let error = refusal_of_image(&pod);
            assert!(
                error.contains("it has the backing file") && error.contains("qemu-img rebase"),
                "{backing}: {error}"
            );
        }
        fs::remove_file(image).unwrap();
    }
}

fn refusal_of_image(pod: &Pod) -> String {
    pod.refusal(&with_volume(CONTAINER_DISK))
}

#[test]
fn an_image_with_extents_elsewhere_is_refused_before_anything_opens_it() {
    let pod = pod();
    pod.write(
        IMAGE,
        b"# Disk DescriptorFile\nversion=1\nRW 8 FLAT \"/etc/shadow\" 0\n",
    );
    assert!(refusal_of_image(&pod).contains("its format is vmdk; convert it to qcow2 or raw"));
}

#[test]
// D-disk-22 (docs/differences.md).
fn a_claim_that_pretends_to_have_a_backing_file_is_grown_as_what_it_is() {
    let Some(pod) = Pod::with(QEMU) else {
        return;
    };
    let shadow = pod.write("etc/shadow", &[b's'; 4096]);
    let image = pod.write(&format!("{DATA_DIR}/disk.img"), &[]);
    run(&format!(
        "qemu-img create -q -f qcow2 -u -b {} -F raw {} 1M",
        shadow.display(),
        image.display()
    ));
    let before = fs::read(&image).unwrap();
    let status = r#""status":{"volumeStatus":[{"name":"data","persistentVolumeClaimInfo":
        {"capacity":{"storage":"20Mi"},"requests":{"storage":"20Mi"},"filesystemOverhead":"0"}}]},"spec""#;
    pod.prepare(&with_volume(CLAIM).replace("\"spec\"", status))
        .unwrap();
    let after = fs::read(&image).unwrap();
    assert!(after.starts_with(&before));
    assert_eq!(after.len(), 20 << 20);
    assert!(after.iter().skip(before.len()).all(|byte| *byte == 0));
}

#[test]
fn names_of_the_vmi_cannot_leave_their_directories() {
    let pod = pod();
    let ignition = |name: &str, namespace: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","annotations":{{"kubevirt.io/ignitiondata":"x"}}}}}}"#
        )
    };
    for vmi in [
        ignition("../../x", "n"),
        ignition("x", "../.."),
        ignition("", "n"),
    ] {
        assert!(pod.refusal(&vmi).contains("cannot be a file name"), "{vmi}");
    }
}

#[test]
fn links_of_the_pod_itself_are_followed_below_the_root() {
    // The image has /var/run -> ../run; an absolute link must stay below the root, too.
    for target in ["../run", "/run"] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("var")).unwrap();
        fs::create_dir_all(dir.path().join("run")).unwrap();
        std::os::unix::fs::symlink(target, dir.path().join("var/run")).unwrap();
        let flags = LauncherFlags {
            root: Root::new(dir.path()),
            ..LauncherFlags::default()
        };
        directories(&flags, "uid-1").unwrap();
        assert!(
            dir.path().join("run/kubevirt-private/uid-1").is_dir(),
            "{target}"
        );
    }
}

/// Another pod that has the same volume may replace the file between any two looks at it.
#[test]
fn a_file_that_is_replaced_all_the_time_leads_nowhere_else() {
    let pod = pod();
    let shadow = pod.path("etc/shadow");
    fs::set_permissions(&shadow, fs::Permissions::from_mode(0o600)).unwrap();
    let image = pod.write(&format!("{DATA_DIR}/disk.img"), &[b'd'; 4096]);
    let (file, link, pipe) = (image.clone(), "/etc/shadow", image.with_extension("pipe"));
    let (ended, mut outcomes) = (AtomicBool::new(false), BTreeSet::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let new = file.with_extension("new");
            while !ended.load(Ordering::Relaxed) {
                std::os::unix::fs::symlink(link, &new).unwrap();
                fs::rename(&new, &file).unwrap();
                rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
                fs::rename(&pipe, &file).unwrap();
                fs::write(&new, [b'd'; 4096]).unwrap();
                fs::rename(&new, &file).unwrap();
            }
        });
        for round in 0..20_000 {
            outcomes.insert(match pod.prepare(&with_volume(CLAIM)) {
                Ok(()) => "prepared".to_owned(),
                Err(e) if e.contains("is reached through a symbolic link") => "link".to_owned(),
                Err(e) if e.contains("is a pipe") => "pipe".to_owned(),
                Err(e) => e,
            });
            if round >= 400 && outcomes.len() >= 3 {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(
        outcomes.iter().eq(["link", "pipe", "prepared"]),
        "{outcomes:?}"
    );
    assert_eq!(fs::read(&shadow).unwrap(), [b's'; 4096]);
    assert_eq!(fs::metadata(&shadow).unwrap().mode() & 0o7777, 0o600);
}
