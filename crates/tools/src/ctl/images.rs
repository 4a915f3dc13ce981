//! What a cluster's node would have put into the pod: the images of the VM's volumes, and a VMI
//! without what only a cluster has.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::CtlError;
use super::manifest::Manifest;
use super::session::Session;
use api::pod_paths::PodPaths;

/// Where distributions of this kind keep the UEFI images.
pub const OVMF_PATH: &str = "/usr/share/OVMF";

/// Takes out of the VMI what needs a cluster, and says so.
pub fn adapt_to_laptop(manifest: &mut Manifest) -> Vec<String> {
    let mut notes = Vec::new();
    let devices = &mut manifest.value_mut()["spec"]["domain"]["devices"];
    if !devices.is_object() {
        *devices = json!({});
    }
    let has_interfaces = devices["interfaces"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    devices["autoattachPodInterface"] = json!(false);
    if has_interfaces {
        devices["interfaces"] = json!([]);
        manifest.value_mut()["spec"]["networks"] = json!([]);
        notes.push(
            "its network interfaces are left out: a tap device is made by a cluster's node agent"
                .into(),
        );
    }
    notes
}

/// Puts the image of each volume where the launcher expects it.
///
/// # Errors
/// If `--disk` names no volume, or a volume has no image.
pub fn place(manifest: &Manifest, session: &Session, disks: &[String]) -> Result<(), CtlError> {
    let given = parse_disks(manifest, disks)?;
    for (index, (name, volume)) in manifest.volumes().enumerate() {
        let image = given
            .iter()
            .find(|(volume, _)| *volume == name)
            .map(|(_, file)| file.as_path());
        if let Some(destination) = destination(session, index, name, volume) {
            put(name, volume, image, &destination)?;
        } else if image.is_some() {
            return Err(CtlError::Run(format!(
                "--disk {name}: this volume is made by the launcher itself; only container disks, claims and data volumes take an image"
            )));
        }
    }
    Ok(())
}

fn parse_disks<'a>(
    manifest: &Manifest,
    disks: &'a [String],
) -> Result<Vec<(&'a str, PathBuf)>, CtlError> {
    disks
        .iter()
        .map(|disk| {
            let (name, file) = disk
                .split_once('=')
                .ok_or_else(|| CtlError::Run(format!("--disk {disk}: NAME=FILE is expected")))?;
            if manifest.volumes().any(|(volume, _)| volume == name) {
                return Ok((name, PathBuf::from(file)));
            }
            let names: Vec<&str> = manifest.volumes().map(|(volume, _)| volume).collect();
            Err(CtlError::Run(format!(
                "--disk {disk}: the VMI has no volume {name:?}; it has {}",
                names.join(", ")
            )))
        })
        .collect()
}

/// Where the node agent would have mounted the volume; nothing for volumes that the launcher makes.
fn destination(session: &Session, index: usize, name: &str, volume: &Value) -> Option<PathBuf> {
    if volume["containerDisk"].is_object() {
        return Some(session.path(&PodPaths::default().container_disk(index)));
    }
    let claim = ["persistentVolumeClaim", "dataVolume", "ephemeral"]
        .iter()
        .any(|kind| volume[*kind].is_object());
    claim.then(|| session.path(&PodPaths::default().claim_image(name)))
}

fn put(
    name: &str,
    volume: &Value,
    image: Option<&Path>,
    destination: &Path,
) -> Result<(), CtlError> {
    let Some(image) = image else {
        if destination.exists() {
            return Ok(());
        }
        let what = volume["containerDisk"]["image"].as_str().map_or_else(
            || "a claim".to_owned(),
            |image| format!("the container disk {image}"),
        );
        return Err(CtlError::Run(format!(
            "volume {name:?} is {what}, which only a cluster can provide; give its image with --disk {name}=FILE"
        )));
    };
    second_name(image, destination, volume["containerDisk"].is_object())
}

/// Gives an image another name, so that a claim's image keeps what the guest writes; a link by path would be refused by
/// the launcher, as a claim's is. Where that cannot be, one that is only read may be copied.
///
/// # Errors
/// If it is no image, or there is no way.
pub fn second_name(image: &Path, place: &Path, may_copy: bool) -> Result<(), CtlError> {
    let file = image
        .canonicalize()
        .map_err(CtlError::file("find", image))?;
    let metadata = file.metadata().map_err(CtlError::file("look at", image))?;
    let refused = |why: &str| Err(CtlError::Run(format!("{}: {why}", image.display())));
    if !metadata.is_file() {
        return refused("no regular file; an image file is expected");
    }
    if metadata.len() == 0 {
        return refused("the file is empty; truncate -s 1G makes it a blank disk of that size");
    }
    if !may_copy && is_qcow2(&file).map_err(CtlError::file("read", image))? {
        return refused(
            "it is a qcow2 image, and a claim's is raw: the guest would see the qcow2 header; qemu-img convert -O raw makes one",
        );
    }
    if let Some(directory) = place.parent() {
        fs::create_dir_all(directory).map_err(CtlError::file("make", directory))?;
    }
    let _ = fs::remove_file(place);
    match fs::hard_link(&file, place) {
        Err(_) if may_copy => fs::copy(&file, place)
            .map(drop)
            .map_err(CtlError::file("copy", image)),
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => refused(&format!(
            "it is on another file system than the VM's directory {}; copy it there, or start the VM with a --root on its file system",
            place.parent().unwrap_or(place).display()
        )),
        // The kernel's fs.protected_hardlinks.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused(
            "the guest is to write to it, but it is another user's; copy it, or become its owner",
        ),
        linked => linked.map_err(CtlError::file("link", image)),
    }
}

fn is_qcow2(file: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    fs::File::open(file)?.take(4).read_to_end(&mut head)?;
    Ok(head == b"QFI\xfb")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn manifest() -> Manifest {
        Manifest::parse(
            "kind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  domain: {memory: {guest: 64Mi}}\n  volumes:\n  - {name: empty, emptyDisk: {capacity: 1Mi}}\n  - {name: root, containerDisk: {image: x}}\n  - {name: data, persistentVolumeClaim: {claimName: data}}\n",
        )
        .unwrap()
    }

    #[test]
    fn images_are_placed_by_kind_and_index() {
        let (root, image) = (
            tempfile::tempdir().unwrap(),
            tempfile::NamedTempFile::new().unwrap(),
        );
        image.as_file().set_len(512).unwrap();
        let session = Session::at(root.path().to_owned());
        let file = image.path().display();
        place(
            &manifest(),
            &session,
            &[format!("root={file}"), format!("data={file}")],
        )
        .unwrap();
        assert!(
            session
                .path("/var/run/kubevirt/container-disks/disk_1.img")
                .exists()
        );
        assert!(
            session
                .path("/var/run/kubevirt-private/vmi-disks/data/disk.img")
                .exists()
        );
    }

    #[test]
    fn a_volume_without_an_image_says_how_to_give_one() {
        let root = tempfile::tempdir().unwrap();
        let error = place(&manifest(), &Session::at(root.path().to_owned()), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--disk root=FILE"), "{error}");
    }

    #[test]
    fn a_disk_that_is_no_volume_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let session = Session::at(root.path().to_owned());
        let error = place(&manifest(), &session, &["rot=x".into()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no volume \"rot\"; it has empty, root, data"),
            "{error}"
        );
        let error = place(&manifest(), &session, &["empty=/dev/null".into()])
            .unwrap_err()
            .to_string();
        assert!(error.contains("made by the launcher itself"), "{error}");
    }

    #[test]
    fn what_is_no_image_is_refused_for_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, place) = (dir.path().join("empty"), dir.path().join("place"));
        fs::write(&empty, "").unwrap();
        let refused = |file: &Path| second_name(file, &place, true).unwrap_err().to_string();
        assert!(refused(&empty).contains("is empty"));
        let qcow2 = dir.path().join("qcow2");
        fs::write(&qcow2, b"QFI\xfb\0\0\0\x03").unwrap();
        assert!(
            second_name(&qcow2, &place, false)
                .unwrap_err()
                .to_string()
                .contains("qemu-img convert -O raw")
        );
        assert!(!place.exists());
        second_name(&qcow2, &place, true).unwrap();
        fs::remove_file(&place).unwrap();
        assert!(refused(dir.path()).contains("no regular file"));
        assert!(refused(Path::new("/dev/zero")).contains("no regular file"));
        assert!(refused(&dir.path().join("none")).starts_with("cannot find"));
        assert!(!place.exists());
    }

    #[test]
    fn network_interfaces_need_a_cluster() {
        let mut with = manifest();
        with.value_mut()["spec"]["domain"]["devices"]["interfaces"] =
            json!([{"name": "default", "masquerade": {}}]);
        assert_eq!(adapt_to_laptop(&mut with).len(), 1);
        assert_eq!(
            with.value()["spec"]["domain"]["devices"]["interfaces"],
            json!([])
        );
        assert!(adapt_to_laptop(&mut manifest()).is_empty());
    }
}
