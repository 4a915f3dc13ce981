//! Puts the images of the VM's volumes where virt-handler would have mounted them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::data_volumes;
use super::image_content::{Accepts, BLOCK_BYTES, check_content};
use super::vm_dir::VmDir;
use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{FileError, absolute};
use crate::json::{copy_at, is_object_at, list_at, text_at};
use crate::manifest::cluster_only::{KERNEL_BOOT, KERNEL_BOOT_NAME, boot_files};
use crate::manifest::config_data::NamedPath;
use crate::manifest::drives::is_drive;
use crate::manifest::{Manifest, is_hotpluggable};
use crate::similar::known_names;
use api::pod_paths::{CLAIM_DIR, CONTAINER_DISK_DIR, KERNEL_BOOT_DIR, PodPaths, file_name};

/// Puts the image of each volume where the launcher expects it, with notes for the user. Returns
/// all problems: `--disk` options that name no volume, and volumes without an image.
pub fn place(
    manifest: &Manifest,
    dir: &VmDir,
    disks: &[NamedPath],
    note: impl Fn(&str),
) -> Vec<CtlError> {
    let (mut given, mut errors) = (BTreeMap::new(), Vec::new());
    for disk in disks {
        let NamedPath { name, path } = disk;
        match check_disk(manifest, disk) {
            Ok(()) => drop(given.insert(name.as_str(), path.as_path())),
            Err(error) => errors.push(error.into()),
        }
    }
    let data_volume = |volume| data_volumes::find(manifest.others(), volume);
    let makes_file = |volume| makes_host_disk(volume) || data_volume(volume).is_some();
    let mut volumes: Vec<_> = manifest.volumes().enumerate().collect();
    // An error of another volume comes before a copy that may be large.
    volumes.sort_by_key(|(_, (_, volume))| makes_file(volume));
    for (index, (name, volume)) in volumes {
        let image = given.get(name).copied();
        if image.is_some() && makes_file(volume) && !errors.is_empty() {
            continue;
        }
        let destination = destination(dir, index, name, volume);
        let data_volume = data_volume(volume);
        let placed = match (destination, data_volume, image) {
            (Some(claim), Some(data_volume), _) => {
                let placed = data_volumes::place(name, data_volume, image, &claim);
                placed.map(|text| text.iter().for_each(|text| note(text)))
            }
            (Some(destination), None, Some(image)) => make_host_disk(volume, image).and_then(|()| {
                if !is_only_read(volume) {
                    check_has_no_data(&destination)?;
                }
                let accepts = match is_object_at(volume, "/containerDisk") {
                    true => Accepts::RawOrQcow2,
                    false => Accepts::Raw,
                };
                give_image(image, &destination, accepts, true)
            })
            .map_err(|error| error.in_option(format!("--disk {name}={}", image.display()))),
            (Some(destination), None, None) if !destination.exists() => {
                Err(missing(name, volume).into())
            }
            (None, _, Some(_)) => Err(text_error!(
                "--disk {name}: this volume is made by the launcher itself; only container disks, claims, data volumes and host disks take an image"
            ).into()),
            (_, _, None) => Ok(()),
        };
        errors.extend(placed.err());
    }
    let tree = given.get(KERNEL_BOOT_NAME).copied();
    errors.extend(place_kernel_boot(manifest, dir, tree).err());
    errors
}

/// Puts kernel and initrd of a kernel boot container where virt-handler would have put them, from
/// its image's tree or a directory of the files.
fn place_kernel_boot(
    manifest: &Manifest,
    dir: &VmDir,
    tree: Option<&Path>,
) -> Result<(), CtlError> {
    let kernel_boot = dir.path(CONTAINER_DISK_DIR).join(KERNEL_BOOT_DIR);
    for path in boot_files(manifest.value()) {
        let link = kernel_boot.join(file_name(&path));
        if let Some(tree) = tree {
            let in_tree = tree.join(path.trim_start_matches('/'));
            let file = if in_tree.exists() {
                in_tree
            } else {
                tree.join(file_name(&path))
            };
            link_image(&file, &link, true).map_err(|error| {
                error.in_option(format!("--disk {KERNEL_BOOT_NAME}={}", tree.display()))
            })?;
        } else if !link.exists() {
            fail!(
                "only a cluster has the kernel boot container {}; give its files with --disk {KERNEL_BOOT_NAME}=DIR, a directory with {} (podman cp gets them out)",
                text_at(manifest.value(), &format!("{KERNEL_BOOT}/image")),
                boot_files(manifest.value()).join(" and ")
            );
        }
    }
    Ok(())
}

/// Checks that the VMI has the volume of an option.
fn check_disk(manifest: &Manifest, disk: &NamedPath) -> Result<(), TextError> {
    let name = disk.name.as_str();
    let mut names: Vec<&str> = manifest.volumes().map(|(volume, _)| volume).collect();
    if !boot_files(manifest.value()).is_empty() {
        names.push(KERNEL_BOOT_NAME);
    }
    if names.contains(&name) {
        return Ok(());
    }
    if is_drive(manifest.value(), name) {
        fail!(
            "--disk {name}: it is an empty CD-ROM drive; launcherctl addvolume {name} --file FILE puts a medium into it while the guest runs"
        );
    }
    let names = known_names(name, names);
    fail!("--disk {name}: the VMI has no volume {name:?}; it has {names}");
}

/// Whether each VM has an overlay of the volume's image.
fn is_only_read(volume: &Value) -> bool {
    let mut kinds = ["/containerDisk", "/ephemeral"].iter();
    kinds.any(|kind| is_object_at(volume, kind))
}

/// Refuses to replace the last link to an image, which an earlier VM has left in a directory of
/// `--root`.
pub fn check_has_no_data(link: &Path) -> Result<(), TextError> {
    let metadata = link.symlink_metadata();
    if metadata.is_ok_and(|it| it.is_file() && it.nlink() == 1) {
        fail!(
            "{} has the only copy of what an earlier guest wrote to this volume; move it away to use another image (run without --disk for the volume uses it)",
            absolute(link).display()
        );
    }
    Ok(())
}

/// Where virt-handler would have mounted the volume; `None` for volumes that the launcher makes.
pub fn destination(dir: &VmDir, index: usize, name: &str, volume: &Value) -> Option<PathBuf> {
    if is_object_at(volume, "/containerDisk") {
        return Some(dir.path(&PodPaths::default().container_disk(index)));
    }
    let host_disk = file_name(text_at(volume, "/hostDisk/path"));
    // The launcher refuses the others.
    if !matches!(host_disk, "" | "." | "..") {
        return Some(dir.path(&format!("{CLAIM_DIR}/{name}/{host_disk}")));
    }
    let kinds = ["/persistentVolumeClaim", "/dataVolume", "/ephemeral"];
    let is_claim = kinds.iter().any(|kind| is_object_at(volume, kind));
    let paths = PodPaths::default();
    is_claim.then(|| match is_hotpluggable(volume) {
        true => dir.path(&paths.hotplug_image(name)),
        false => dir.path(&paths.claim_image(name)),
    })
}

/// Why a volume needs an image, and where to get it: `run` pulls nothing from an image registry.
fn missing(name: &str, volume: &Value) -> TextError {
    let (what, hint) = match text_at(volume, "/containerDisk/image") {
        "" if is_object_at(volume, "/hostDisk") => (
            format!("the host disk {}", text_at(volume, "/hostDisk/path")),
            match makes_host_disk(volume) {
                true => "a raw file, which is made with the VMI's capacity if it is missing",
                false => "a raw file",
            },
        ),
        "" if is_object_at(volume, "/dataVolume") => (
            "a DataVolume".to_owned(),
            "a raw file with what its source would import (truncate -s 10G FILE makes a blank one)",
        ),
        "" => (
            "a claim".to_owned(),
            "a raw file (truncate -s 10G FILE makes a blank one)",
        ),
        image => (
            format!("the container disk {image}"),
            "the file in the image's /disk (podman cp gets it out)",
        ),
    };
    text_error!(
        "volume {name:?} is {what}, which only a cluster can provide; give its image with --disk {name}=FILE, {hint}"
    )
}

fn makes_host_disk(volume: &Value) -> bool {
    text_at(volume, "/hostDisk/type") == "DiskOrCreate"
}

/// The volumes whose images have a size that QEMU refuses where it has to write them past the page
/// cache, for an error's end.
pub fn odd_sizes(vmi: &Value, dir: &VmDir) -> String {
    let mut found = String::new();
    for (index, volume) in list_at(vmi, "/spec/volumes").iter().enumerate() {
        let name = text_at(volume, "/name");
        let image = destination(dir, index, name, volume).filter(|_| !is_only_read(volume));
        let image = image.and_then(|image| image.canonicalize().ok());
        let Some((bytes, file)) = image.and_then(|it| Some((it.metadata().ok()?.len(), it))) else {
            continue;
        };
        if !bytes.is_multiple_of(BLOCK_BYTES) {
            let file = file.display();
            let _ = write!(
                found,
                "; volume {name} has {bytes} bytes: truncate -s %{BLOCK_BYTES} {file} rounds them up"
            );
        }
    }
    found
}

/// Makes the user's file if it is missing and the VMI says `DiskOrCreate`.
fn make_host_disk(volume: &Value, image: &Path) -> Result<(), CtlError> {
    if !makes_host_disk(volume) || image.exists() {
        return Ok(());
    }
    let Some(bytes) = data_volumes::whole_mebibytes(&copy_at(volume, "/hostDisk/capacity")) else {
        fail!("hostDisk.capacity is missing, not a size, or less than 1Mi; e.g. 10Gi");
    };
    let file = fs::File::create_new(image).map_err(FileError::on("make", image))?;
    Ok(file.set_len(bytes).map_err(FileError::on("size", image))?)
}

/// Checks a user's image and links it for the VM, as [`link_image`] does.
///
/// # Errors
/// It is not an image, or cannot be linked.
pub fn give_image(
    image: &Path,
    link: &Path,
    accepts: Accepts,
    is_of_run: bool,
) -> Result<(), CtlError> {
    check_content(image, accepts)?;
    link_image(image, link, is_of_run)
}

/// Makes a link to an image, so that the guest's writes to a claim are in the user's file. Does not
/// check the content: a running VM's image has whatever its guest wrote.
///
/// # Errors
/// It cannot be linked.
pub fn link_image(image: &Path, link: &Path, is_of_run: bool) -> Result<(), CtlError> {
    let file = image.canonicalize().map_err(FileError::on("find", image))?;
    if link.canonicalize().is_ok_and(|there| there == file) {
        return Ok(());
    }
    let directory = link.parent().unwrap_or(link);
    fs::create_dir_all(directory).map_err(FileError::on("make", directory))?;
    let _ = fs::remove_file(link);
    let linked = match is_of_run {
        true => symlink(&file, link),
        // In a pod a link may not lead out of it.
        false => fs::hard_link(&file, link),
    };
    Ok(linked.map_err(FileError::on("link", image))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        Manifest::parse(
            "kind: VirtualMachineInstance\nmetadata: {name: a}\nspec:\n  domain: {memory: {guest: 64Mi}}\n  volumes:\n  - {name: empty, emptyDisk: {capacity: 1Mi}}\n  - {name: root, containerDisk: {image: x}}\n  - {name: data, persistentVolumeClaim: {claimName: data}}\n",
        )
        .unwrap()
    }

    #[test]
    fn images_are_placed_by_kind_and_index() {
        let (root, images) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = VmDir::at(root.path().to_owned());
        let disks = ["root", "data"].map(|name| {
            let image = images.path().join(name);
            fs::write(&image, [0; 512]).unwrap();
            format!("{name}={}", image.display()).parse().unwrap()
        });
        assert!(place(&manifest(), &dir, &disks, |_| {}).is_empty());
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
    fn an_image_that_is_nowhere_else_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let (dir, first, second) = (
            VmDir::at(root.path().join("vm")),
            root.path().join("first"),
            root.path().join("second"),
        );
        fs::write(root.path().join("root"), [0; 512]).unwrap();
        fs::write(&first, [1; 512]).unwrap();
        fs::write(&second, [2; 512]).unwrap();
        let placed = |data: &Path| {
            let root = format!("root={}", root.path().join("root").display());
            let disks = [root, format!("data={}", data.display())];
            let disks = disks.map(|disk| disk.parse().unwrap());
            let errors = place(&manifest(), &dir, &disks, |_| {});
            errors.iter().map(CtlError::chain).collect::<String>()
        };
        assert_eq!(placed(&first), "");
        assert_eq!(placed(&second), "");
        let claim = dir.path(&PodPaths::default().claim_image("data"));
        fs::rename(&second, &claim).unwrap();
        let error = placed(&first);
        assert!(error.contains("data/disk.img has the only copy"), "{error}");
        assert!(placed(&claim).contains("has the only copy"));
        assert_eq!(fs::read(&claim).unwrap(), [2; 512]);
    }

    #[test]
    fn a_volume_without_an_image_says_how_to_give_one() {
        let root = tempfile::tempdir().unwrap();
        let errors = place(&manifest(), &VmDir::at(root.path().to_owned()), &[], |_| {});
        assert_eq!(errors.len(), 2, "{errors:?}");
        for (error, option) in errors.iter().zip(["--disk root=FILE", "--disk data=FILE"]) {
            assert!(error.to_string().contains(option), "{error}");
        }
    }

    #[test]
    fn a_host_disk_is_made_at_the_path_that_the_user_gives_if_the_vmi_says_so() {
        let root = tempfile::tempdir().unwrap();
        let (dir, file) = (
            VmDir::at(root.path().join("vm")),
            root.path().join("new.img"),
        );
        let placed = |kind: &str, disks: &[NamedPath]| {
            let manifest = format!(
                "kind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec:\n  domain: {{memory: {{guest: 64Mi}}}}\n  volumes:\n  - {{name: data, hostDisk: {{path: /var/data/disk.img, type: {kind}, capacity: 1Mi}}}}\n"
            );
            let errors = place(&Manifest::parse(&manifest).unwrap(), &dir, disks, |_| {});
            let errors: Vec<String> = errors.iter().map(CtlError::chain).collect();
            errors.join("\n")
        };
        let given = [format!("data={}", file.display()).parse().unwrap()];
        assert!(placed("Disk", &given).contains("No such file"));
        let missing = placed("DiskOrCreate", &[]);
        for part in [
            "the host disk /var/data/disk.img",
            "--disk data=FILE",
            "made with",
        ] {
            assert!(missing.contains(part), "{missing}");
        }
        assert_eq!(placed("DiskOrCreate", &given), "");
        let linked = dir.path(&format!("{CLAIM_DIR}/data/disk.img"));
        let (file, linked) = (file.metadata().unwrap(), linked.metadata().unwrap());
        assert_eq!((file.len(), file.ino()), (1 << 20, linked.ino()));
    }

    #[test]
    fn a_disk_that_names_no_volume_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let refused = |disk: &str| place(&manifest(), &dir, &[disk.parse().unwrap()], |_| {});
        let error = refused("rot=x")[0].to_string();
        assert!(
            error.contains("no volume \"rot\"; it has empty, root, data"),
            "{error}"
        );
        let error = refused("empty=/dev/null")[0].to_string();
        assert!(error.contains("made by the launcher itself"), "{error}");
    }

    #[test]
    fn what_is_not_an_image_is_not_linked() {
        let dir = tempfile::tempdir().unwrap();
        let (image, place) = (dir.path().join("image"), dir.path().join("place"));
        fs::write(&image, [&b"QFI\xfb\0\0\0\x03"[..], &[0; 512]].concat()).unwrap();
        let refused = give_image(&image, &place, Accepts::Raw, true).unwrap_err();
        assert!(refused.to_string().contains("qemu-img convert -O raw"));
        assert!(!place.exists());
        give_image(&image, &place, Accepts::RawOrQcow2, true).unwrap();
        assert!(place.exists());
        // As a guest may have left its own.
        link_image(&image, &place, true).unwrap();
    }

    #[test]
    fn an_image_is_linked_by_its_path() {
        let root = tempfile::tempdir().unwrap();
        let [image, claim, next] = ["image", "a/claim", "next"].map(|it| root.path().join(it));
        fs::write(&image, [1; 1024]).unwrap();
        link_image(&image, &claim, true).unwrap();
        assert_eq!(fs::read_link(&claim).unwrap(), image);
        // As a migration does with the launcher's own link.
        link_image(&claim, &next, true).unwrap();
        assert_eq!(fs::read_link(&next).unwrap(), image);
    }
}
