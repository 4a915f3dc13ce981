//! The user's images whose file was removed or replaced while their VM runs: what the VM's directory
//! has of them, and their return when it goes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::registry::VmDir;
use super::start_args::SuperviseArgs;
use api::pod_paths::PodPaths;

/// The names that are tried for an image, if other files have them.
const MAX_NAMES: usize = 100;

/// Gives the images of which a VM's directory has the last link a name beside the user's again, as
/// the directory is about to go. Returns notes for the user, or the image that has to stay.
pub fn give_back(dir: &VmDir) -> Result<Vec<String>, PathBuf> {
    let files = SuperviseArgs::load(dir).map(|args| args.files);
    let mut notes = Vec::new();
    for (volume, file) in files.unwrap_or_default() {
        let Some(link) = last_link(dir, &volume) else {
            continue;
        };
        let place = link_beside(&link, &file).ok_or(link)?;
        let place = place.display();
        notes.push(format!(
            "the image of volume {volume}, which was removed or replaced, is {place}"
        ));
    }
    Ok(notes)
}

/// The VM's link to a volume's image, if there is no other one. In a directory that stays it is kept.
pub fn last_link(dir: &VmDir, volume: &str) -> Option<PathBuf> {
    let is_last = |image: &fs::DirEntry| {
        let metadata = image.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.nlink() == 1)
    };
    let mut images = entries(dir, volume).filter(|_| dir.is_temporary());
    images.find(is_last).map(|image| image.path())
}

/// Whether the image is on another file system than the VM's directory.
pub fn has_symbolic_link(dir: &VmDir, volume: &str) -> bool {
    let is_link = |image: fs::DirEntry| image.metadata().is_ok_and(|it| it.is_symlink());
    entries(dir, volume).any(is_link)
}

fn entries(dir: &VmDir, volume: &str) -> impl Iterator<Item = fs::DirEntry> {
    let mount = dir.path(&PodPaths::default().claim_dir(volume));
    fs::read_dir(mount).into_iter().flatten().flatten()
}

/// Links the image as the user's file, or beside it if another file is there.
fn link_beside(image: &Path, file: &str) -> Option<PathBuf> {
    let guests = PathBuf::from(format!("{file}.guest"));
    let others = (2..MAX_NAMES).map(|number| format!("{file}.guest{number}").into());
    let mut places = [PathBuf::from(file), guests].into_iter().chain(others);
    places.find_map(|place| match fs::hard_link(image, &place) {
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

    #[test]
    fn an_image_of_which_the_vm_has_the_last_link_comes_back() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("data.img");
        let vm = |number: usize| {
            let dir = VmDir::at(home.path().join(format!("vm{number}")));
            let claim = dir.path(&PodPaths::default().claim_image("data"));
            fs::create_dir_all(claim.parent().unwrap()).unwrap();
            fs::write(dir.path(TEMPORARY), "").unwrap();
            fs::write(&file, number.to_string()).unwrap();
            fs::hard_link(&file, &claim).unwrap();
            let args = SuperviseArgs {
                files: BTreeMap::from([("data".to_owned(), file.display().to_string())]),
                ..SuperviseArgs::default()
            };
            args.store(&dir).unwrap();
            dir
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
        let claim = dir.path(&PodPaths::default().claim_image("data"));
        assert_eq!(fs::read_to_string(claim).unwrap(), "5");
    }
}
