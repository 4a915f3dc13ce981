//! The directory of `run --root` that a VM has left by a migration: what the VM leaves when it ends
//! elsewhere returns there, for the next run.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::registry::VmDir;
use super::start_args::SuperviseArgs;
use crate::files::FileError;
use api::pod_paths::{
    EMPTY_DISK_DIR, SESSION_NVRAM_DIR, SESSION_SWTPM_DIR, SYSTEM_NVRAM_DIR, SYSTEM_SWTPM_DIR,
};

/// What a VM leaves that only its launcher has, and the place in a directory of `--root`: other
/// disks are the same file for all launchers.
const KEPT: [(&str, &str); 5] = [
    (EMPTY_DISK_DIR, EMPTY_DISK_DIR),
    (SYSTEM_NVRAM_DIR, SYSTEM_NVRAM_DIR),
    (SESSION_NVRAM_DIR, SESSION_NVRAM_DIR),
    (SYSTEM_SWTPM_DIR, EMBEDDED_SWTPM_DIR),
    (SESSION_SWTPM_DIR, EMBEDDED_SWTPM_DIR),
];
/// State of the TPMs of libvirt's driver in the launcher. A VM arrives at a daemon.
const EMBEDDED_SWTPM_DIR: &str = "/lib/swtpm";

/// The directory of `--root` to which the disks of the VM in `dir` return when it ends.
pub fn of(dir: &VmDir) -> Option<PathBuf> {
    let args = SuperviseArgs::load(dir).ok()?;
    match dir.is_temporary() {
        true => args.home,
        false => dir.root().canonicalize().ok(),
    }
}

/// The VM has moved from one launcher to another, and returns its disks to `home` from there.
///
/// # Errors
/// This cannot be stored.
pub fn pass_on(home: Option<PathBuf>, from: &VmDir, to: &VmDir) -> Result<(), FileError> {
    // A launcher that was started by hand has no supervisor, which would do it.
    if let Ok(args) = SuperviseArgs::load(to) {
        SuperviseArgs { home, ..args }.store(to)?;
    }
    if from.is_temporary()
        && let Ok(args) = SuperviseArgs::load(from)
    {
        let home = None;
        // It may just be removed.
        let _ = SuperviseArgs { home, ..args }.store(from);
    }
    Ok(())
}

/// Moves the empty disks, the firmware's variables and the TPM's state of an ended VM over the
/// older ones in the directory of `--root` that it has left. Does nothing without such a directory.
///
/// # Errors
/// A file cannot be moved: it stays in `dir`.
pub fn give_back(dir: &VmDir) -> Result<(), FileError> {
    let home = of(dir).filter(|home| dir.is_temporary() && home.is_dir());
    let Some(home) = home.map(VmDir::at) else {
        return Ok(());
    };
    let mut kept = KEPT.iter();
    kept.try_for_each(|(from, to)| move_all(&dir.path(from), &home.path(to)))
}

/// Moves the files of a directory, and of those in it.
fn move_all(from: &Path, to: &Path) -> Result<(), FileError> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    fs::create_dir_all(to).map_err(FileError::on("make", to))?;
    for entry in entries.flatten() {
        let (file, place) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().is_ok_and(|it| it.is_dir()) {
            true => move_all(&file, &place)?,
            false => move_file(&file, &place).map_err(FileError::on("write", &place))?,
        }
    }
    Ok(())
}

/// Replaces a file as a whole, also by one of another file system.
fn move_file(file: &Path, place: &Path) -> io::Result<()> {
    match fs::rename(file, place) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        moved => return moved,
    }
    let copy = place.with_added_extension("new");
    let copied = fs::copy(file, &copy).and_then(|_| fs::rename(&copy, place));
    copied.inspect_err(|_| drop(fs::remove_file(&copy)))?;
    fs::remove_file(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    use super::super::registry::TEMPORARY;
    use super::super::vm_dir;

    /// A directory of `run --root`, with what an earlier run has left.
    fn root(path: &Path) -> VmDir {
        let dir = VmDir::at(path.to_owned());
        write(&dir, &disk(), "before");
        SuperviseArgs::default().store(&dir).unwrap();
        dir
    }

    /// The directory of a VM that has come from `source`.
    fn migrated(path: &Path, source: &VmDir) -> VmDir {
        let dir = VmDir::at(path.to_owned());
        write(&dir, TEMPORARY, "");
        SuperviseArgs::default().store(&dir).unwrap();
        pass_on(of(source), source, &dir).unwrap();
        dir
    }

    fn disk() -> String {
        format!("{EMPTY_DISK_DIR}/scratch.qcow2")
    }

    fn write(dir: &VmDir, file: &str, text: &str) {
        let file = dir.path(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn read(dir: &VmDir, file: &str) -> Option<String> {
        fs::read_to_string(dir.path(file)).ok()
    }

    #[test]
    fn what_a_migrated_vm_leaves_returns_to_the_directory_of_root() {
        let here = tempfile::tempdir().unwrap();
        // May be another file system.
        let there = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = root(&here.path().join("root"));
        let first = migrated(&here.path().join("first"), &root);
        let second = migrated(&there.path().join("second"), &first);
        let variables = format!("{SYSTEM_NVRAM_DIR}/a_VARS.fd");
        let state = "uuid/tpm2/tpm2-00.permall";
        let [state, state_at_home] =
            [SYSTEM_SWTPM_DIR, EMBEDDED_SWTPM_DIR].map(|path| format!("{path}/{state}"));
        for dir in [&second, &first] {
            for file in [&disk(), &variables, &state] {
                write(dir, file, &dir.root().display().to_string());
            }
            vm_dir::remove(dir, &[]);
            assert!(!dir.root().exists());
            // The first one's are out of date, even if it ends later.
            for file in [&disk(), &variables, &state_at_home] {
                let text = read(&root, file).unwrap();
                assert_eq!(text, second.root().display().to_string());
            }
        }
    }

    #[test]
    fn a_disk_that_cannot_return_stays() {
        let here = tempfile::tempdir().unwrap();
        let root = root(&here.path().join("root"));
        let vm = migrated(&here.path().join("vm"), &root);
        write(&vm, &disk(), "after");
        // Not even root can replace a directory by a file.
        fs::remove_file(root.path(&disk())).unwrap();
        fs::create_dir_all(root.path(&disk())).unwrap();
        vm_dir::remove(&vm, &[]);
        assert_eq!(read(&vm, &disk()).unwrap(), "after");
        // Who removes the directory does not want its disks.
        fs::remove_dir_all(root.root()).unwrap();
        vm_dir::remove(&vm, &[]);
        assert!(!vm.root().exists() && !root.root().exists());
    }
}
