//! The directory of a VM of `run`: created, cleaned after a killed launcher, and removed.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::Mode;
use rustix::process::Pid;

use super::registry::{self, RegistryError, START_FILE, VmDir};
use super::{home, last_images};
use crate::error::{CtlError, fail};
use crate::files::{FileError, MAX_FILE_BYTES, MAX_SOCKET_PATH_BYTES, absolute, short_temporary};
use api::pod_paths::{
    CLAIM_DIR, CONFIG_MAP_DIR, CONFIG_MAP_IMAGE_DIR, CONTAINER_DISK_DIR, EMPTY_DISK_DIR,
    MIGRATION_SOCKET_DIR, PodPaths, SECRET_DIR, SECRET_IMAGE_DIR, SESSION_NVRAM_DIR, SYSPREP_DIR,
    SYSPREP_IMAGE_DIR, SYSTEM_NVRAM_DIR, cbt_dir,
};
use os::procfs::command_line;

/// What a launcher makes below its root: the directories of the pod and of libvirt.
const DIRECTORIES: [&str; 6] = ["cache", "etc", "lib", "log", "run", "var"];
/// A UID in Kubernetes' format: the sockets below it have the longest paths.
const ANY_UID: &str = "00000000-0000-0000-0000-000000000000";
/// Has the owner of a directory of `--root`, as `NAMESPACE/NAME`.
const OWNER_FILE: &str = "/owner";
/// Limit of directory names to try.
const MAX_ATTEMPTS: u32 = 1000;

/// Makes a root for the VM `name`, in `root` or in a new directory with a short name, and adds it
/// to the registry. If `root`'s path is too long for the sockets below it, a link with a short path
/// replaces it, which [`registry::remove`] removes. Hold the lock until the VM has a supervisor.
///
/// # Errors
/// The directory cannot be made, or a VM of that name, or in that directory, is running or being
/// started.
pub fn create(name: &str, root: Option<&Path>) -> Result<(VmDir, fs::File), CtlError> {
    // Files of this process and its children are private, whatever the umask was.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let Some(root) = root else {
        let dir = create_temporary()?;
        let lock = lock_for_start(name, &dir)?;
        registry::add(name, &dir).inspect_err(|_| remove(&dir, &[]))?;
        return Ok((dir, lock));
    };
    fs::create_dir_all(root).map_err(FileError::on("make", root))?;
    for directory in DIRECTORIES {
        keep_private(&root.join(directory))?;
    }
    let root = root.canonicalize().map_err(FileError::on("find", root))?;
    check_not_left(&root)?;
    let dir = VmDir::at(root.clone());
    let lock = lock_for_start(name, &dir)?;
    remove_stale_socket(&dir)?;
    let dir = with_short_path(root)?;
    registry::add(name, &dir).inspect_err(|_| dir.remove_link())?;
    Ok((dir, lock))
}

/// Makes the VM the owner of a directory of `--root`, without the links to another VM's images.
///
/// # Errors
/// It has disks of another VM: volumes of the same names would get them.
pub fn take(dir: &VmDir, vm: &str) -> Result<(), CtlError> {
    let file = dir.path(OWNER_FILE);
    let owner = os::small_file::read_text(&file, MAX_FILE_BYTES).unwrap_or_default();
    if !owner.is_empty() && owner != vm {
        if has_disks(dir) {
            fail!(
                "{} has disks of the VM {owner}, which {vm} would get for volumes of the same names; give {vm} a directory of its own",
                absolute(dir.root()).display()
            );
        }
        for images in [CLAIM_DIR, CONTAINER_DISK_DIR] {
            remove_links(&dir.path(images));
        }
    }
    Ok(fs::write(&file, vm).map_err(FileError::on("write", file))?)
}

/// Whether it has an empty disk, or a claim with an image of its own.
fn has_disks(dir: &VmDir) -> bool {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let is_own = |image: &fs::DirEntry| {
        let metadata = image.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.nlink() == 1)
    };
    let mut claims = entries(dir.path(CLAIM_DIR));
    let has_empty = entries(dir.path(EMPTY_DISK_DIR)).next().is_some();
    has_empty || claims.any(|claim| entries(claim.path()).any(|it| is_own(&it)))
}

/// Makes the directory private to this user, including what an earlier run has left in it.
fn keep_private(directory: &Path) -> Result<(), FileError> {
    let private = || fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    let made = fs::create_dir_all(directory).and_then(|()| private());
    made.map_err(FileError::on("make", directory))
}

/// Refuses a directory that a VM has left by a migration: its disks will return there.
fn check_not_left(root: &Path) -> Result<(), CtlError> {
    let is_away = |vm: &VmDir| vm.is_temporary() && vm.is_running();
    let has_left = |vm: &VmDir| is_away(vm) && home::of(vm).as_deref() == Some(root);
    match registry::all()?.iter().find(|(_, vm)| has_left(vm)) {
        Some((other, _)) => fail!(
            "{}: the VM {other} has left it by a migration, and its disks return there when it ends; end it first (launcherctl stop {other})",
            root.display()
        ),
        None => Ok(()),
    }
}

fn lock_for_start(name: &str, dir: &VmDir) -> Result<fs::File, CtlError> {
    let lock = dir.lock_for_start()?;
    lock.ok_or_else(|| RegistryError::name_taken(name, dir).into())
}

/// The directory by its own path, or by a link with a short path if that is too long for the
/// sockets below it, of which those of a migration have the longest paths: QEMU makes and opens
/// them by their full path.
fn with_short_path(root: PathBuf) -> Result<VmDir, CtlError> {
    let sockets = PodPaths::default().shared(MIGRATION_SOCKET_DIR);
    let longest = format!("{sockets}/{ANY_UID}-49152-source.sock").len();
    if root.as_os_str().len().saturating_add(longest) <= MAX_SOCKET_PATH_BYTES {
        return Ok(VmDir::at(root));
    }
    let base = short_temporary(longest.saturating_add("/vm-400000fff".len()));
    make_new(&base, |link| symlink(&root, link))
}

/// Makes a new directory in TMPDIR that is not in a registry yet.
///
/// # Errors
/// It cannot be made.
pub fn create_temporary() -> Result<VmDir, CtlError> {
    // Files of this process and its children are private, whatever the umask was.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let made = make_new(&std::env::temp_dir(), |root| fs::create_dir(root))?;
    let root = made.root().to_owned();
    with_short_path(root).inspect_err(|_| remove(&made, &[]))
}

/// Makes a directory, or a link to one, with a short name that is not taken.
fn make_new(base: &Path, make: impl Fn(&Path) -> io::Result<()>) -> Result<VmDir, CtlError> {
    for attempt in 0..MAX_ATTEMPTS {
        let root = base.join(format!("vm-{:x}{attempt:x}", std::process::id()));
        match make(&root) {
            Ok(()) => return Ok(VmDir::at(root)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(FileError::on("make", root)(error).into()),
        }
    }
    fail!("no free directory name in {}", base.display());
}

/// Removes a killed launcher's socket, which would be mistaken for the next one's.
///
/// # Errors
/// A launcher serves it, or it cannot be removed.
pub fn remove_stale_socket(dir: &VmDir) -> Result<(), CtlError> {
    if dir.is_running() {
        let root = dir.root().display();
        fail!("a launcher is running in {root}; end it first or choose another --root");
    }
    let socket = dir.cmd_socket();
    Ok(os::small_file::remove(&socket).map_err(FileError::on("remove", socket))?)
}

/// Removes what the last run has left, unless its QEMU still runs: the domain's definition, whose
/// end the next launcher would report instead of starting anything; and the overlays that track
/// changed blocks, which miss writes to the images between two runs. The images have all of the
/// data.
pub fn remove_stale_domain(dir: &VmDir, domain: &str) {
    let file = |path: &str| dir.path(&path.replace("DOMAIN", domain));
    let pid = fs::read_to_string(file("run/qemu/DOMAIN.pid")).unwrap_or_default();
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    let qemu = pid.map(command_line).unwrap_or_default();
    // The QEMU of an earlier launcher may know the directory by another path.
    let guest = format!("guest={domain},");
    if qemu.contains(&dir.root().display().to_string()) || qemu.contains(&guest) {
        return;
    }
    for path in [
        "run/qemu/DOMAIN.xml",
        "run/qemu/DOMAIN.pid",
        "etc/qemu/DOMAIN.xml",
    ] {
        let _ = fs::remove_file(file(path));
    }
    let _ = fs::remove_dir_all(dir.path(cbt_dir(false)));
}

/// Removes the directory, and any link to it, except the files `kept` in it; those too if all of
/// them are empty. A directory with a disk that cannot return to its place stays, without the
/// copies of Secrets.
pub fn remove(dir: &VmDir, kept: &[PathBuf]) {
    if home::give_back(dir).is_err() || last_images::give_back(dir).is_err() {
        dir.remove_vmi();
        return remove_copies(dir);
    }
    let has_content = |file: &PathBuf| file.metadata().is_ok_and(|it| it.len() > 0);
    if !kept.iter().any(has_content) {
        let _ = dir.root().canonicalize().and_then(fs::remove_dir_all);
        return dir.remove_link();
    }
    let entries = fs::read_dir(dir.root()).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    for path in paths.filter(|path| !kept.contains(path)) {
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
}

/// Removes the guest's writes to its container disks, which are lost with the VM as in a cluster.
pub fn remove_overlays(dir: &VmDir) {
    let _ = fs::remove_dir_all(dir.path(PodPaths::default().overlay_dir));
}

/// Removes the links to images that were plugged in, as the next run does not have them.
pub fn remove_plugged_links(dir: &VmDir) {
    let any = dir.path(&PodPaths::default().hotplug_image("any"));
    any.parent().into_iter().for_each(remove_links);
}

/// Removes the links to images in the directory and those below it. An image's last link stays.
fn remove_links(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten();
    for entry in entries.flatten() {
        match entry.metadata() {
            Ok(it) if it.is_dir() => remove_links(&entry.path()),
            Ok(it) if it.is_symlink() || it.nlink() > 1 => {
                let _ = fs::remove_file(entry.path());
            }
            _ => {}
        }
    }
}

/// Removes the firmware's variables (NVRAM). libvirt then makes them from the template of the next
/// start, which is another one if `secureBoot` has changed.
pub fn remove_firmware_variables(dir: &VmDir) {
    for path in [SYSTEM_NVRAM_DIR, SESSION_NVRAM_DIR] {
        let _ = fs::remove_dir_all(dir.path(path));
    }
}

/// Removes the copies of ConfigMaps and Secrets, the VMI, which may have passwords for cloud-init,
/// the images made from them, and how the VM was started.
pub fn remove_secrets(dir: &VmDir) {
    dir.remove_vmi();
    let _ = fs::remove_file(dir.path(START_FILE));
    remove_copies(dir);
}

fn remove_copies(dir: &VmDir) {
    let paths = PodPaths::default();
    for path in [
        SECRET_DIR,
        CONFIG_MAP_DIR,
        SYSPREP_DIR,
        SECRET_IMAGE_DIR,
        CONFIG_MAP_IMAGE_DIR,
        SYSPREP_IMAGE_DIR,
        paths.cloud_init_dir,
        paths.ignition_dir,
    ] {
        let _ = fs::remove_dir_all(dir.path(path));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stale_domain_is_removed_once_its_qemu_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        for directory in ["run/qemu", "etc/qemu"] {
            fs::create_dir_all(dir.path().join(directory)).unwrap();
        }
        let definition = dir.path().join("etc/qemu/a_b.xml");
        fs::write(&definition, "").unwrap();
        // Stands for QEMU: its arguments name the directory.
        let mut qemu = std::process::Command::new("tail")
            .arg("-f")
            .arg(&definition)
            .spawn()
            .unwrap();
        fs::write(
            dir.path().join("run/qemu/a_b.pid"),
            format!("{}\n", qemu.id()),
        )
        .unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        while fs::read(format!("/proc/{}/cmdline", qemu.id()))
            .is_ok_and(|words| !words.starts_with(b"tail"))
        {}
        remove_stale_domain(&vm, "a_b");
        assert!(definition.exists());
        qemu.kill().unwrap();
        qemu.wait().unwrap();
        remove_stale_domain(&vm, "a_b");
        assert!(!definition.exists() && !dir.path().join("run/qemu/a_b.pid").exists());
    }

    #[test]
    fn a_directory_with_disks_is_no_other_vms() {
        let root = tempfile::tempdir().unwrap();
        let vm = VmDir::at(root.path().join("vm"));
        fs::create_dir_all(vm.path(EMPTY_DISK_DIR)).unwrap();
        for vms in ["a/one", "a/one", "a/two"] {
            take(&vm, vms).unwrap();
        }
        let claim = vm.path(&PodPaths::default().claim_image("data"));
        fs::create_dir_all(claim.parent().unwrap()).unwrap();
        let image = root.path().join("data.img");
        fs::write(&image, "data").unwrap();
        fs::hard_link(&image, &claim).unwrap();
        take(&vm, "a/two").unwrap();
        assert!(claim.exists());
        // No other VM gets the user's image.
        take(&vm, "a/one").unwrap();
        assert!(!claim.exists() && image.exists());
        fs::rename(&image, &claim).unwrap();
        let refused = take(&vm, "b/one").unwrap_err().to_string();
        assert!(refused.contains("has disks of the VM a/one"), "{refused}");
        take(&vm, "a/one").unwrap();
    }

    #[test]
    fn a_link_to_a_plugged_image_goes_unless_it_is_the_last_one() {
        let root = tempfile::tempdir().unwrap();
        let vm = VmDir::at(root.path().join("vm"));
        let link = |name: &str| vm.path(&PodPaths::default().hotplug_image(name));
        fs::create_dir_all(link("a").parent().unwrap()).unwrap();
        let image = root.path().join("data.img");
        fs::write(&image, "data").unwrap();
        for name in ["a", "b"] {
            fs::hard_link(&image, link(name)).unwrap();
        }
        symlink(&image, link("far")).unwrap();
        fs::remove_file(&image).unwrap();
        remove_plugged_links(&vm);
        let left = ["a", "b", "far"].map(link);
        let mut left = left.iter().filter(|it| it.symlink_metadata().is_ok());
        assert_eq!(fs::read_to_string(left.next().unwrap()).unwrap(), "data");
        assert_eq!(left.next(), None);
    }

    #[test]
    fn a_root_that_is_too_long_for_sockets_gets_a_short_link() {
        let base = tempfile::Builder::new()
            .prefix("a")
            .rand_bytes(1)
            .tempdir_in("/tmp")
            .unwrap();
        let short = base.path().join("short");
        assert_eq!(with_short_path(short.clone()).unwrap().root(), short);
        // Sockets fit, but not those of a migration; and none fits.
        for length in [20, 200] {
            let root = base.path().join("l".repeat(length));
            fs::create_dir(&root).unwrap();
            let dir = with_short_path(root.clone()).unwrap();
            assert!(dir.root().as_os_str().len() <= 20 && dir.root() != root);
            assert_eq!(dir.root().canonicalize().unwrap(), root);
            dir.remove_link();
            assert!(!dir.root().exists() && root.exists());
            let dir = with_short_path(root.clone()).unwrap();
            fs::write(dir.path("file"), "").unwrap();
            remove(&dir, &[]);
            assert!(fs::symlink_metadata(dir.root()).is_err() && !root.exists());
        }
    }
}
