//! The user's images whose file was removed or replaced while their VM runs: what the VM's
//! directory has of them, and their return when it goes.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::home;
use super::registry::VmDir;
use super::start_args::SuperviseArgs;
use crate::error::{TextError, fail};
use crate::files::absolute;
use api::pod_paths::PodPaths;
use client::problems::{LastOfImage, RemovedImage};
use os::file_id::FileId;
use os::procfs::open_file;

/// The names that are tried for an image, if other files have them.
const MAX_NAMES: usize = 100;
/// How many files of a directory are looked at for one that was renamed.
const MAX_BESIDE: usize = 10_000;

/// Gives the images of which a VM's directory has the last link a name beside the user's again, as
/// the directory is about to go. Returns notes for the user, or the image that has to stay.
pub fn give_back(dir: &VmDir) -> Result<Vec<String>, PathBuf> {
    let args = SuperviseArgs::load(dir).unwrap_or_default();
    let notes = args.files.keys();
    let notes = notes.map(|volume| give_back_volume(dir, &args, volume));
    Ok(notes
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

/// Like [`give_back`], of one volume.
pub fn give_back_volume(
    dir: &VmDir,
    args: &SuperviseArgs,
    volume: &str,
) -> Result<Option<String>, PathBuf> {
    let Some(file) = args.files.get(volume) else {
        return Ok(None);
    };
    // While a peer has a link, it is the peer's to give back.
    let place = match last_link(dir, volume, left(dir)) {
        Some(link) => Some(link_beside(&link, file).ok_or(link)?),
        None if has_lost_its_name(dir, args, volume) => other_name(args, volume),
        None => None,
    };
    Ok(place.map(|place| {
        let place = place.display();
        format!("the image of volume {volume}, which was removed or replaced, is {place}")
    }))
}

/// The images that were removed or replaced. `qemu` is the PID of the VM's QEMU.
pub fn find_removed(dir: &VmDir, qemu: impl Fn() -> Option<i32>) -> Vec<RemovedImage> {
    let args = SuperviseArgs::load(dir).unwrap_or_default();
    let volumes = args.files.keys();
    let removed = volumes.filter_map(|volume| removed_of_volume(dir, &args, volume, &qemu));
    removed.collect()
}

/// Like [`find_removed`], of one volume.
pub fn removed_of_volume(
    dir: &VmDir,
    args: &SuperviseArgs,
    volume: &str,
    qemu: impl Fn() -> Option<i32>,
) -> Option<RemovedImage> {
    let file = args.files.get(volume)?;
    let peer = args.peer.iter().filter_map(|it| it.canonicalize().ok());
    let others: BTreeSet<PathBuf> = left(dir).into_iter().chain(peer).collect();
    let last = if let Some(link) = last_link(dir, volume, others) {
        LastOfImage::Link(absolute(&link))
    } else if let Some(open) = open_without_name(dir, args, volume, qemu) {
        LastOfImage::Open(open)
    } else if has_lost_its_name(dir, args, volume) {
        LastOfImage::OtherName(other_name(args, volume))
    } else {
        return None;
    };
    let skipped = usize::from(matches!(last, LastOfImage::Open(_)));
    let place = places(file)
        .skip(skipped)
        .find(|it| it.symlink_metadata().is_err());
    Some(RemovedImage {
        volume: volume.to_owned(),
        file: file.clone(),
        is_replaced: Path::new(file).exists(),
        place: place.map_or_else(String::new, |it| it.display().to_string()),
        last,
    })
}

/// Refuses to give a VM's images to another launcher if a symbolic link would lead it to another
/// file than QEMU has open, or to none.
///
/// # Errors
/// An image is not at its place.
pub fn check_links(dir: &VmDir, qemu: impl Fn() -> Option<i32>) -> Result<(), TextError> {
    let args = SuperviseArgs::load(dir).unwrap_or_default();
    for (volume, id) in &args.file_ids {
        let leads_elsewhere = |it: PathBuf| it.is_symlink() && FileId::at(&it) != Some(*id);
        if entries(dir, volume).any(leads_elsewhere) {
            let file = args.files.get(volume).map_or("its place", String::as_str);
            let remedy = match removed_of_volume(dir, &args, volume, &qemu) {
                Some(image) if image.is_lost() => {
                    "only QEMU has it, and launcherctl status says how to copy it"
                }
                _ => "move it back there first",
            };
            fail!(
                "the image of volume {volume} is not {file} any more, and another launcher would not find it: {remedy}"
            );
        }
    }
    Ok(())
}

/// The directory of `--root` that the VM has left by a migration, which may have a link of its own.
fn left(dir: &VmDir) -> Option<PathBuf> {
    let left = home::of(dir).filter(|_| dir.is_temporary())?;
    left.canonicalize().ok()
}

/// The VM's link to a volume's image, unless other files than those in `others`, directories of
/// VMs, are links to it.
fn last_link(
    dir: &VmDir,
    volume: &str,
    others: impl IntoIterator<Item = PathBuf>,
) -> Option<PathBuf> {
    let others = others.into_iter().map(VmDir::at);
    let left: Vec<PathBuf> = others.flat_map(|it| entries(&it, volume)).collect();
    let is_last = |image: &PathBuf| {
        let Ok(metadata) = image.symlink_metadata() else {
            return false;
        };
        let is_same = |other: &&PathBuf| FileId::at(other) == Some(FileId::of(&metadata));
        let own = 1 + left.iter().filter(is_same).count() as u64;
        metadata.is_file() && metadata.nlink() == own
    };
    entries(dir, volume).find(is_last)
}

/// The descriptor by which QEMU has a removed image open. The VM's directory has a symbolic link to
/// such an image, as it is on another file system: a hard one would keep it.
fn open_without_name(
    dir: &VmDir,
    args: &SuperviseArgs,
    volume: &str,
    qemu: impl Fn() -> Option<i32>,
) -> Option<PathBuf> {
    let id = args.file_ids.get(volume)?;
    entries(dir, volume).find(|image| image.is_symlink())?;
    let open = open_file(qemu()?, *id)?;
    let has_none = open.metadata().is_ok_and(|it| it.nlink() == 0);
    has_none.then_some(open)
}

/// Whether another file has the name that the user gave. Not for a container disk, whose image is
/// only read.
fn has_lost_its_name(dir: &VmDir, args: &SuperviseArgs, volume: &str) -> bool {
    let there = args
        .files
        .get(volume)
        .and_then(|file| FileId::at(Path::new(file)));
    let has_image = entries(dir, volume).next().is_some();
    has_image
        && there.is_some()
        && args
            .file_ids
            .get(volume)
            .is_some_and(|id| there != Some(*id))
}

/// Finds another name of the image, beside the user's.
fn other_name(args: &SuperviseArgs, volume: &str) -> Option<PathBuf> {
    let id = *args.file_ids.get(volume)?;
    let directory = Path::new(args.files.get(volume)?).parent()?;
    let beside = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names = beside.take(MAX_BESIDE).map(|entry| entry.path());
    names.find(|path| FileId::at(path) == Some(id))
}

/// The VM's images of a volume.
fn entries(dir: &VmDir, volume: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let paths = PodPaths::default();
    let mount = fs::read_dir(dir.path(&paths.claim_dir(volume)));
    let mounted = mount.into_iter().flatten().flatten();
    let plugged_in = dir.path(&paths.hotplug_image(volume));
    let plugged_in = plugged_in.symlink_metadata().is_ok().then_some(plugged_in);
    mounted.map(|entry| entry.path()).chain(plugged_in)
}

/// The images that only QEMU had, now that it has ended; as notes for the user.
pub fn lost(dir: &VmDir) -> Vec<String> {
    let args = SuperviseArgs::load(dir).unwrap_or_default();
    let is_lost = |volume: &String, id: &FileId| {
        let leads_elsewhere = |it: PathBuf| it.is_symlink() && FileId::at(&it) != Some(*id);
        entries(dir, volume).any(leads_elsewhere) && other_name(&args, volume).is_none()
    };
    let ids = args.file_ids.iter();
    let lost = ids.filter(|(volume, id)| is_lost(volume, id));
    let files = lost.filter_map(|(volume, _)| Some((volume, args.files.get(volume)?)));
    let notes = files.map(|(volume, file)| {
        format!(
            "{file} of volume {volume} was removed or moved while the VM ran: if it was removed, it is gone, but for a copy that was made"
        )
    });
    notes.collect()
}

/// The names for an image that is given back: the user's, and those beside it.
fn places(file: &str) -> impl Iterator<Item = PathBuf> {
    let guests = PathBuf::from(format!("{file}.guest"));
    let others = (2..MAX_NAMES).map(move |number| format!("{file}.guest{number}").into());
    [PathBuf::from(file), guests].into_iter().chain(others)
}

/// Links the image as the user's file, or beside it if another file is there.
fn link_beside(image: &Path, file: &str) -> Option<PathBuf> {
    places(file).find_map(|place| match fs::hard_link(image, &place) {
        Ok(()) => Some(Some(place)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
        Err(_) => Some(None),
    })?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::super::registry::TEMPORARY;
    use super::super::vm_dir;

    /// A VM's directory with the image of the volume `data`.
    fn vm(root: PathBuf, file: &Path, place: &str, link: impl Fn(&Path, &Path)) -> VmDir {
        let dir = VmDir::at(root);
        let place = dir.path(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(dir.path(TEMPORARY), "").unwrap();
        link(file, &place);
        let mut args = SuperviseArgs::default();
        args.add_file("data", file);
        args.store(&dir).unwrap();
        dir
    }

    fn hard_link(file: &Path, link: &Path) {
        fs::hard_link(file, link).unwrap();
    }

    #[test]
    fn an_image_that_was_renamed_is_found_until_it_is_lost() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let (file, renamed) = (path("data.img"), path("renamed"));
        fs::write(&file, "data").unwrap();
        let claim = PodPaths::default().claim_image("data");
        // As for an image on another file system.
        let link = |file: &Path, link: &Path| std::os::unix::fs::symlink(file, link).unwrap();
        let dir = vm(path("vm"), &file, &claim, link);
        // This process stands for QEMU.
        let _open = fs::File::open(&file).unwrap();
        let qemu = || i32::try_from(std::process::id()).ok();
        let found = || {
            let found = find_removed(&dir, qemu).pop();
            found.map(|it| (it.last, it.is_replaced))
        };
        assert_eq!(found(), None);
        assert!(check_links(&dir, qemu).is_ok());
        fs::rename(&file, &renamed).unwrap();
        assert_eq!(found(), None, "nobody takes another file for it");
        fs::write(&file, "another").unwrap();
        let refused = || check_links(&dir, qemu).unwrap_err().to_string();
        assert!(refused().ends_with("move it back there first"));
        let other_name = LastOfImage::OtherName(Some(renamed.clone()));
        assert_eq!(found(), Some((other_name, true)));
        assert_eq!(lost(&dir), [""; 0], "it has its new name");
        let notes = give_back(&dir).unwrap();
        assert!(notes[0].ends_with(&format!("is {}", renamed.display())));
        fs::remove_file(&renamed).unwrap();
        for is_replaced in [true, false] {
            let Some((LastOfImage::Open(open), found)) = found() else {
                panic!("{:?}", found());
            };
            assert_eq!(fs::read_to_string(open).unwrap(), "data");
            assert_eq!(found, is_replaced);
            // Unless somebody has copied it.
            assert!(lost(&dir)[0].contains("data.img of volume data was removed"));
            assert!(refused().contains("only QEMU has it"));
            let _ = fs::remove_file(&file);
        }
    }

    #[test]
    fn the_directory_that_a_migrated_vm_has_left_is_nobody_elses() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let file = path("data.img");
        fs::write(&file, "data").unwrap();
        let claim = PodPaths::default().claim_image("data");
        let root = vm(path("root"), &file, &claim, hard_link);
        fs::remove_file(root.path(TEMPORARY)).unwrap();
        let dir = vm(path("vm"), &file, &claim, hard_link);
        super::home::pass_on(super::home::of(&root), &root, &dir).unwrap();
        assert_eq!(find_removed(&dir, || None), []);
        fs::remove_file(&file).unwrap();
        let found = find_removed(&dir, || None);
        assert_eq!(found[0].last, LastOfImage::Link(dir.path(&claim)));
        give_back(&dir).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "data");
    }

    #[test]
    fn the_directory_from_which_a_vm_migrates_is_nobody_elses() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let file = path("data.img");
        fs::write(&file, "data").unwrap();
        let claim = PodPaths::default().claim_image("data");
        let [source, target] =
            ["source", "target"].map(|name| vm(path(name), &file, &claim, hard_link));
        for (dir, other) in [(&source, &target), (&target, &source)] {
            let peer = Some(other.root().to_owned());
            let args = SuperviseArgs::load(dir).unwrap();
            SuperviseArgs { peer, ..args }.store(dir).unwrap();
            assert_eq!(find_removed(dir, || None), []);
        }
        for is_replaced in [false, true] {
            fs::remove_file(&file).unwrap();
            if is_replaced {
                fs::write(&file, "another").unwrap();
            }
            for dir in [&source, &target] {
                let found = find_removed(dir, || None).pop().unwrap();
                assert_eq!(found.last, LastOfImage::Link(dir.path(&claim)));
                // It goes on elsewhere.
                assert_eq!(give_back(dir).unwrap(), [""; 0]);
            }
            let _ = fs::File::create(&file);
        }
    }

    #[test]
    fn an_image_of_which_the_vm_has_the_last_link_comes_back() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("data.img");
        let paths = PodPaths::default();
        let places = [paths.claim_image("data"), paths.hotplug_image("data")];
        let vm = |number: usize| {
            fs::write(&file, number.to_string()).unwrap();
            let root = home.path().join(format!("vm{number}"));
            vm(root, &file, &places[number % 2], hard_link)
        };
        let read = |name: &str| fs::read_to_string(home.path().join(name)).ok();

        let dir = vm(1);
        vm_dir::remove(&dir, &[]);
        assert_eq!(read("data.img").unwrap(), "1");
        assert!(!dir.root().exists() && read("data.img.guest").is_none());

        let dir = vm(2);
        fs::remove_file(&file).unwrap();
        vm_dir::remove(&dir, &[]);
        assert_eq!(read("data.img").unwrap(), "2");

        for (number, place) in [(3, "data.img.guest"), (4, "data.img.guest2")] {
            let dir = vm(number);
            fs::write(home.path().join("new"), "other").unwrap();
            fs::rename(home.path().join("new"), &file).unwrap();
            vm_dir::remove(&dir, &[]);
            assert_eq!(read(place).unwrap(), number.to_string());
            assert_eq!(read("data.img").unwrap(), "other");
        }

        // Where it cannot be linked, it stays.
        let dir = vm(5);
        let args = SuperviseArgs {
            files: BTreeMap::from([("data".to_owned(), "/nonexistent/data.img".to_owned())]),
            ..SuperviseArgs::default()
        };
        args.store(&dir).unwrap();
        fs::remove_file(&file).unwrap();
        dir.store_vmi(&Value::Null).unwrap();
        for _ in 0..2 {
            vm_dir::remove(&dir, &[]);
        }
        assert!(dir.load_vmi().is_err());
        let image = dir.path(&places[5 % 2]);
        assert_eq!(fs::read_to_string(image).unwrap(), "5");
    }
}
