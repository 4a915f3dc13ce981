//! What remains of a VM that has ended, failed or was lost: its processes, its files and its name.

use std::fs;
use std::path::Path;

use super::failure::{self, Failure};
use super::processes;
use super::registry::{self, name_taken};
use super::vm_dir::VmDir;
use crate::error::{CtlError, fail};
use api::pod_paths::PodPaths;

/// Ends what a failed or lost VM has left under its name, as another one is about to start.
///
/// # Errors
/// A VM of this name is already running, starting or ending, or its guest still runs.
pub async fn make_way(name: &str) -> Result<(), CtlError> {
    let Ok(dir) = registry::find(name) else {
        return Ok(());
    };
    if dir.is_in_use() && (Failure::load(&dir).is_none() || dir.is_running()) {
        return Err(name_taken(name, &dir).into());
    }
    if let Some(pid) = processes::guest(dir.root()) {
        fail!(
            "{name} has lost its launcher, and its guest still runs (QEMU is process {pid}); launcherctl stop {name} forces it off"
        );
    }
    processes::terminate_all(dir.root()).await;
    forget(&dir);
    Ok(())
}

/// Removes an ended VM: its directory if temporary, else the copies of secrets in it, and then its
/// name.
pub fn forget(dir: &VmDir) {
    if dir.is_temporary() {
        dir.remove(&[]);
    } else {
        // First: it reads the UID from files that go next.
        remove_of_uid(dir);
        dir.remove_secrets();
        dir.remove_overlays();
        dir.remove_plugged_links();
        failure::remove_reason(dir);
    }
    // Last: `stop` takes the missing name for the end.
    registry::remove(dir);
}

/// Removes the directory of an ended VM's UID, which the next VM in a directory of `--root` does
/// not use.
fn remove_of_uid(dir: &VmDir) {
    let uid = dir.uid();
    let log = dir.path(&PodPaths::default().serial_log(&uid));
    // A VMI's UID may be any text, such as a path.
    if let (Some(name), Some(own)) = (Path::new(&uid).file_name(), log.parent())
        && name == uid.as_str()
    {
        let _ = fs::remove_dir_all(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_uid_has_goes_and_its_claims_stay() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().join("vm"));
        let of_uid = |uid: &str| dir.path(&PodPaths::default().serial_log(uid));
        let (own, other) = (of_uid("u"), of_uid("other"));
        let claim = dir.path("/var/run/kubevirt-private/vmi-disks/data/disk.img");
        for file in [&own, &other, &claim] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        // A UID cannot lead out of the directory.
        for (uid, is_left) in [("", true), ("..", true), ("u/../other", true), ("u", false)] {
            dir.store_vmi(&serde_json::json!({"metadata": {"uid": uid}}))
                .unwrap();
            remove_of_uid(&dir);
            assert_eq!(own.parent().unwrap().exists(), is_left, "{uid}");
            assert!(other.exists() && claim.exists(), "{uid}");
        }
    }
}
