//! The images of the VM's volumes, put where virt-handler would have mounted them.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::ctl::files::FileError;
use crate::ctl::json::{is_object_at, text_at};
use crate::ctl::manifest::Manifest;
use crate::ctl::registry::VmDir;
use api::pod_paths::PodPaths;

/// Why an image cannot be given to a VM.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// `--disk` is not NAME=FILE.
    #[error("--disk {0}: expected NAME=FILE")]
    Argument(String),
    /// `--disk` names no volume of the VMI.
    #[error("--disk {argument}: the VMI has no volume {name:?}; it has {names}")]
    NoVolume {
        /// The argument.
        argument: String,
        /// The name in it.
        name: String,
        /// The names of the VMI's volumes.
        names: String,
    },
    /// `--disk` names a volume that takes no image.
    #[error(
        "--disk {0}: this volume is made by the launcher itself; only container disks, claims and data volumes take an image"
    )]
    MadeByLauncher(String),
    /// A volume that only a cluster can provide has no image.
    #[error(
        "volume {name:?} is {what}, which only a cluster can provide; give its image with --disk {name}=FILE"
    )]
    Missing {
        /// The volume.
        name: String,
        /// Its kind.
        what: String,
    },
    /// It is a directory, a device, ….
    #[error("{0}: not a regular file; an image file is expected")]
    NotAFile(String),
    /// It has no bytes.
    #[error("{0}: the file is empty; truncate -s 1G makes it a blank disk of that size")]
    Empty(String),
    /// A claim's image is raw.
    #[error(
        "{0}: it is a qcow2 image, and a claim's is raw: the guest would see the qcow2 header; qemu-img convert -O raw makes one"
    )]
    Qcow2(String),
    /// A hard link cannot cross file systems.
    #[error(
        "{image}: it is on another file system than the VM's directory {directory}; copy it there, or start the VM with a --root on its file system"
    )]
    OtherFileSystem {
        /// The image.
        image: String,
        /// Where the link would be.
        directory: String,
    },
    /// The kernel's `fs.protected_hardlinks`.
    #[error(
        "{0}: the guest writes to it, but it belongs to another user; copy it, or become its owner"
    )]
    OtherUser(String),
}

/// Puts the image of each volume where the launcher expects it.
///
/// # Errors
/// If `--disk` names no volume, or a volume has no image.
pub fn place(manifest: &Manifest, dir: &VmDir, disks: &[String]) -> Result<(), ImageError> {
    let given = parse_disks(manifest, disks)?;
    for (index, (name, volume)) in manifest.volumes().enumerate() {
        let image = given
            .iter()
            .find(|(volume, _)| *volume == name)
            .map(|(_, file)| file.as_path());
        if let Some(destination) = destination(dir, index, name, volume) {
            put(name, volume, image, &destination)?;
        } else if image.is_some() {
            return Err(ImageError::MadeByLauncher(name.to_owned()));
        }
    }
    Ok(())
}

fn parse_disks<'a>(
    manifest: &Manifest,
    disks: &'a [String],
) -> Result<Vec<(&'a str, PathBuf)>, ImageError> {
    disks
        .iter()
        .map(|disk| {
            let (name, file) = disk
                .split_once('=')
                .ok_or_else(|| ImageError::Argument(disk.clone()))?;
            if manifest.volumes().any(|(volume, _)| volume == name) {
                return Ok((name, PathBuf::from(file)));
            }
            let names: Vec<&str> = manifest.volumes().map(|(volume, _)| volume).collect();
            Err(ImageError::NoVolume {
                argument: disk.clone(),
                name: name.to_owned(),
                names: names.join(", "),
            })
        })
        .collect()
}

/// Where virt-handler would have mounted the volume; nothing for volumes that the launcher makes.
fn destination(dir: &VmDir, index: usize, name: &str, volume: &Value) -> Option<PathBuf> {
    if is_object_at(volume, "/containerDisk") {
        return Some(dir.path(&PodPaths::default().container_disk(index)));
    }
    let claim = ["/persistentVolumeClaim", "/dataVolume", "/ephemeral"]
        .iter()
        .any(|kind| is_object_at(volume, kind));
    claim.then(|| dir.path(&PodPaths::default().claim_image(name)))
}

fn put(
    name: &str,
    volume: &Value,
    image: Option<&Path>,
    destination: &Path,
) -> Result<(), ImageError> {
    let Some(image) = image else {
        if destination.exists() {
            return Ok(());
        }
        let what = match text_at(volume, "/containerDisk/image") {
            "" => "a claim".to_owned(),
            image => format!("the container disk {image}"),
        };
        return Err(ImageError::Missing {
            name: name.to_owned(),
            what,
        });
    };
    hard_link_image(image, destination, is_object_at(volume, "/containerDisk"))
}

/// Makes a hard link to an image, so that what the guest writes to a claim is in the user's file: the launcher refuses
/// symbolic links there. Where a hard link is impossible, an image that is only read may be copied.
///
/// # Errors
/// If it is not an image, or cannot be linked.
pub fn hard_link_image(image: &Path, link: &Path, may_copy: bool) -> Result<(), ImageError> {
    let file = image.canonicalize().map_err(FileError::on("find", image))?;
    let metadata = file.metadata().map_err(FileError::on("stat", image))?;
    let name = image.display().to_string();
    if !metadata.is_file() {
        return Err(ImageError::NotAFile(name));
    }
    if metadata.len() == 0 {
        return Err(ImageError::Empty(name));
    }
    if !may_copy && is_qcow2(&file).map_err(FileError::on("read", image))? {
        return Err(ImageError::Qcow2(name));
    }
    if let Some(directory) = link.parent() {
        fs::create_dir_all(directory).map_err(FileError::on("make", directory))?;
    }
    let _ = fs::remove_file(link);
    match fs::hard_link(&file, link) {
        Err(_) if may_copy => fs::copy(&file, link)
            .map(drop)
            .map_err(|error| FileError::on("copy", image)(error).into()),
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            Err(ImageError::OtherFileSystem {
                image: name,
                directory: link.parent().unwrap_or(link).display().to_string(),
            })
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(ImageError::OtherUser(name))
        }
        linked => Ok(linked.map_err(FileError::on("link", image))?),
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
        let dir = VmDir::at(root.path().to_owned());
        let file = image.path().display();
        place(
            &manifest(),
            &dir,
            &[format!("root={file}"), format!("data={file}")],
        )
        .unwrap();
        assert!(
            dir.path("/var/run/kubevirt/container-disks/disk_1.img")
                .exists()
        );
        assert!(
            dir.path("/var/run/kubevirt-private/vmi-disks/data/disk.img")
                .exists()
        );
    }

    #[test]
    fn a_volume_without_an_image_says_how_to_give_one() {
        let root = tempfile::tempdir().unwrap();
        let error = place(&manifest(), &VmDir::at(root.path().to_owned()), &[])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--disk root=FILE"), "{error}");
    }

    #[test]
    fn a_disk_that_names_no_volume_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let error = place(&manifest(), &dir, &["rot=x".into()])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("no volume \"rot\"; it has empty, root, data"),
            "{error}"
        );
        let error = place(&manifest(), &dir, &["empty=/dev/null".into()])
            .unwrap_err()
            .to_string();
        assert!(error.contains("made by the launcher itself"), "{error}");
    }

    #[test]
    fn what_is_not_an_image_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, place) = (dir.path().join("empty"), dir.path().join("place"));
        fs::write(&empty, "").unwrap();
        let refused = |file: &Path| hard_link_image(file, &place, true).unwrap_err().to_string();
        assert!(refused(&empty).contains("is empty"));
        let qcow2 = dir.path().join("qcow2");
        fs::write(&qcow2, b"QFI\xfb\0\0\0\x03").unwrap();
        assert!(
            hard_link_image(&qcow2, &place, false)
                .unwrap_err()
                .to_string()
                .contains("qemu-img convert -O raw")
        );
        assert!(!place.exists());
        hard_link_image(&qcow2, &place, true).unwrap();
        fs::remove_file(&place).unwrap();
        assert!(refused(dir.path()).contains("not a regular file"));
        assert!(refused(Path::new("/dev/zero")).contains("not a regular file"));
        assert!(refused(&dir.path().join("none")).starts_with("cannot find"));
        assert!(!place.exists());
    }
}
