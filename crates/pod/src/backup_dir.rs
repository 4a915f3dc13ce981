//! Where a backup's files are: `<target>/<VM>/<backup>`. The target is a volume, and whoever fills
//! the volume may have put links in it.

use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use super::ownership::give_to_qemu;
use super::safe_path::{Dir, optional};
use super::{PodError, Root};

/// The directory of one backup. It has files and no directories.
#[derive(Debug)]
pub struct BackupDir {
    vm: Dir,
    name: String,
}

impl BackupDir {
    /// Makes the directory `name` for a backup of the VM `vm` below `target`, a path of the pod
    /// which must be there. Removes what an earlier attempt has left in it. Below a root of the
    /// launcher's own, the target may be a link.
    ///
    /// # Errors
    /// The target is not there, or something in it is in the way.
    // D-backup-3 (docs/differences.md).
    pub fn make(root: &Root, target: &str, vm: &str, name: &str) -> Result<Self, PodError> {
        let target = Dir::of_pod_or_linked(root, target)?;
        let vm = target.sub_made(vm)?;
        give_to_qemu(vm.as_fd(), vm.path())?;
        let dir = Self {
            vm,
            name: name.to_owned(),
        };
        dir.remove()?;
        let made = dir.vm.sub_made(name)?;
        give_to_qemu(made.as_fd(), made.path())?;
        Ok(dir)
    }

    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.vm.path().join(&self.name)
    }

    /// Removes the directory with its files, if it is there.
    ///
    /// # Errors
    /// The directory has an entry that cannot be removed, such as another directory.
    pub fn remove(&self) -> Result<(), PodError> {
        let Some(dir) = optional(self.vm.sub(&self.name))? else {
            return Ok(());
        };
        for file in dir.entries()? {
            match unlinkat(&dir, &file, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(PodError::io("remove", dir.path().join(&file))(e)),
            }
        }
        match unlinkat(&self.vm, self.name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(PodError::io("remove", dir.path())(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn pod() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("target")).unwrap();
        let root = Root::of_user(dir.path());
        (dir, root)
    }

    #[test]
    fn a_directory_is_made_anew_and_removed_with_its_files() {
        let (pod, root) = pod();
        let path = pod.path().join("target/vm/B-1");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("left.qcow2"), "x").unwrap();
        let dir = BackupDir::make(&root, "/target", "vm", "B-1").unwrap();
        assert_eq!(dir.path(), path);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        fs::write(path.join("new.qcow2"), "x").unwrap();
        dir.remove().unwrap();
        assert!(!path.exists() && path.parent().unwrap().exists());
        dir.remove().unwrap();
    }

    #[test]
    fn a_target_that_is_not_there_is_not_made() {
        let (pod, root) = pod();
        let error = BackupDir::make(&root, "/absent", "vm", "b").unwrap_err();
        assert!(error.is_not_found(), "{error}");
        assert!(!pod.path().join("absent").exists());
    }

    #[test]
    fn a_target_outside_the_root_is_a_link() {
        let (pod, root) = pod();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), pod.path().join("link")).unwrap();
        let dir = BackupDir::make(&root, "/link", "vm", "b").unwrap();
        assert_eq!(dir.path(), outside.path().join("vm/b"));
        assert!(dir.path().is_dir());
        // In a pod it counts as a path of the pod.
        let pod_link = pod.path().join("in-pod");
        std::os::unix::fs::symlink("/nonexistent", &pod_link).unwrap();
        let path = pod_link.to_string_lossy();
        BackupDir::make(&Root::default(), &path, "vm", "b").unwrap_err();
    }

    #[test]
    fn links_in_the_target_are_not_followed() {
        let (pod, root) = pod();
        fs::create_dir(pod.path().join("elsewhere")).unwrap();
        fs::create_dir(pod.path().join("elsewhere/b")).unwrap();
        fs::write(pod.path().join("elsewhere/b/precious"), "x").unwrap();
        std::os::unix::fs::symlink("../elsewhere", pod.path().join("target/vm")).unwrap();
        BackupDir::make(&root, "/target", "vm", "b").unwrap_err();
        fs::create_dir(pod.path().join("target/vm2")).unwrap();
        std::os::unix::fs::symlink("../../elsewhere/b", pod.path().join("target/vm2/b")).unwrap();
        BackupDir::make(&root, "/target", "vm2", "b").unwrap_err();
        assert!(pod.path().join("elsewhere/b/precious").exists());
    }

    #[test]
    fn a_foreign_directory_in_it_stays() {
        let (pod, root) = pod();
        let inside = pod.path().join("target/vm/b/lost+found");
        fs::create_dir_all(&inside).unwrap();
        BackupDir::make(&root, "/target", "vm", "b").unwrap_err();
        assert!(inside.exists());
    }
}
