//! The directory of a VM that `run` starts: created, cleaned up after a killed launcher, and removed.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::ctl::error::{CtlError, RunError};
use crate::ctl::files::FileError;
use crate::ctl::registry::{self, VmDir};
use api::pod_paths::PodPaths;

/// A UID as Kubernetes makes them: the sockets below it are those with the longest paths.
const ANY_UID: &str = "00000000-0000-0000-0000-000000000000";
/// `sizeof(sun_path)` without its final 0.
const MAX_SOCKET_PATH_BYTES: usize = 107;
/// Names for a directory that are tried.
const MAX_ATTEMPTS: u32 = 1000;

/// Makes a root for the VM `name`, in `root` or in a new directory of a short name, and enters it in the registry.
///
/// # Errors
/// If the directory cannot be made, or a VM of that name is running.
pub fn create(name: &str, root: Option<&Path>) -> Result<VmDir, CtlError> {
    if let Some(root) = root {
        check_socket_path_length(&std::path::absolute(root).map_err(FileError::on("find", root))?)?;
        fs::create_dir_all(root).map_err(FileError::on("make", root))?;
        let dir = VmDir::at(root.canonicalize().map_err(FileError::on("find", root))?);
        remove_stale_socket(&dir)?;
        registry::add(name, &dir)?;
        return Ok(dir);
    }
    let dir = make_directory(&std::env::temp_dir())?;
    registry::add(name, &dir).inspect_err(|_| remove(&dir, None))?;
    Ok(dir)
}

fn make_directory(base: &Path) -> Result<VmDir, CtlError> {
    for attempt in 0..MAX_ATTEMPTS {
        let root = base.join(format!("vm-{:x}{attempt:x}", std::process::id()));
        check_socket_path_length(&root)?;
        match fs::DirBuilder::new().mode(0o700).create(&root) {
            Ok(()) => return Ok(VmDir::at(root)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(FileError::on("make", root)(error).into()),
        }
    }
    Err(RunError::NoFreeName(base.to_owned()).into())
}

/// The socket of a launcher that was killed would be mistaken for the next one's.
fn remove_stale_socket(dir: &VmDir) -> Result<(), CtlError> {
    if dir.is_running() {
        return Err(RunError::RootInUse(dir.root().to_owned()).into());
    }
    let socket = dir.cmd_socket();
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FileError::on("remove", socket)(error).into())
        }
        _ => Ok(()),
    }
}

/// Removes the domain's definition that a killed launcher left, unless its QEMU still runs: the next launcher would
/// report the end of that domain and start nothing.
pub fn remove_stale_domain(dir: &VmDir, domain: &str) {
    let file = |path: &str| dir.path(&path.replace("DOMAIN", domain));
    let pid = fs::read_to_string(file("run/qemu/DOMAIN.pid")).unwrap_or_default();
    let command = fs::read(Path::new("/proc").join(pid.trim()).join("cmdline")).unwrap_or_default();
    let root = dir.root().as_os_str().as_bytes();
    let is_alive = !pid.trim().is_empty() && command.windows(root.len()).any(|part| part == root);
    if is_alive {
        return;
    }
    for path in [
        "run/qemu/DOMAIN.xml",
        "run/qemu/DOMAIN.pid",
        "etc/qemu/DOMAIN.xml",
    ] {
        let _ = fs::remove_file(file(path));
    }
}

/// Removes the directory, except `log` if it is not empty.
pub fn remove(dir: &VmDir, log: Option<&Path>) {
    let Some(log) = log.filter(|log| log.metadata().is_ok_and(|it| it.len() > 0)) else {
        let _ = fs::remove_dir_all(dir.root());
        return;
    };
    let entries = fs::read_dir(dir.root()).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path != log) {
        let _ = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
    }
}

/// Checked before anything is started: otherwise libvirt or QEMU would refuse some socket.
fn check_socket_path_length(root: &Path) -> Result<(), RunError> {
    let longest = PodPaths::default().serial_socket(ANY_UID).len();
    let (length, limit) = (root.as_os_str().len(), MAX_SOCKET_PATH_BYTES - longest);
    if length <= limit {
        return Ok(());
    }
    Err(RunError::RootTooLong {
        root: PathBuf::from(root),
        length,
        limit,
    })
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
    fn a_root_that_is_too_long_for_sockets_is_refused_before_it_is_made() {
        let check = |length: usize| {
            check_socket_path_length(Path::new(&format!("/{}", "d".repeat(length - 1))))
        };
        assert!(check(32).is_ok());
        assert!(check(33).is_err_and(|error| error.to_string().contains("--root")));
    }
}
