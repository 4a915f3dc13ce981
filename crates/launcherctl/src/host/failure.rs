//! What a failed VM leaves: the reason, its launcher's log and the end of its console's log, in its
//! directory and under its name, until it is started again or `stop` removes them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::console_log;
use super::vm_dir::{FAILURE_FILE, TEMPORARY, VmDir};
use crate::json::text_at;
use api::pod_paths::{PodPaths, SESSION_QEMU_LOG_DIR, SYSTEM_QEMU_LOG_DIR};

/// QEMU's logs of libvirt's driver in the launcher.
const QEMU_LOGS: &str = "/log/qemu";
/// How much of the end of the console's log is kept.
const MAX_CONSOLE_LOG_BYTES: u64 = 1 << 20;

/// Why a VM failed, and which VM it was. Its VMI, which may have secrets, is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The error with its causes.
    pub reason: String,
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

impl Failure {
    /// Loads the failure of the VM in `dir`, if it has failed.
    pub fn load(dir: &VmDir) -> Option<Self> {
        dir.load(FAILURE_FILE).ok()
    }
}

/// When the VM failed, in seconds since 1970.
pub fn time(dir: &VmDir) -> Option<i64> {
    Some(dir.path(FAILURE_FILE).metadata().ok()?.mtime())
}

/// The log of the console of the VM with this UID; QEMU's, where no supervisor has served it.
pub fn console_log(dir: &VmDir, uid: &str) -> PathBuf {
    let [own, _] = console_log::files(dir);
    match own.exists() {
        true => own,
        false => dir.path(&PodPaths::default().serial_log(uid)),
    }
}

/// Removes the files for running the VM and leaves `reason`. Returns false if there is nothing to
/// leave, as the launcher has logged nothing.
pub fn leave(dir: &VmDir, vmi: &Value, reason: String) -> bool {
    let has_content = |log: &PathBuf| log.metadata().is_ok_and(|it| it.len() > 0);
    if !logs(dir).iter().any(has_content) {
        return false;
    }
    let of_vmi = |pointer| text_at(vmi, pointer).to_owned();
    let failure = Failure {
        reason,
        name: of_vmi("/metadata/name"),
        namespace: of_vmi("/metadata/namespace"),
        uid: of_vmi("/metadata/uid"),
    };
    let console = os::small_file::tail(&console_log(dir, &failure.uid), MAX_CONSOLE_LOG_BYTES);
    if let Ok(mut console) = console {
        // Only whole lines are printed.
        console.extend((!console.is_empty() && !console.ends_with(b"\n")).then_some(b'\n'));
        let [log, _] = console_log::files(dir);
        let _ = fs::write(log, console);
    }
    if dir.is_temporary() {
        let mut kept = logs(dir);
        kept.extend([dir.path(TEMPORARY), dir.path("/log")]);
        dir.remove(&kept);
    } else {
        dir.remove_secrets();
        dir.remove_plugged_links();
    }
    // The last step: when it is visible, everything is done.
    dir.store(FAILURE_FILE, &failure).is_ok()
}

/// The logs of the launcher, the supervisor, the console, sidecars and QEMU.
pub fn logs(dir: &VmDir) -> Vec<PathBuf> {
    let directories = ["/", QEMU_LOGS, SESSION_QEMU_LOG_DIR, SYSTEM_QEMU_LOG_DIR];
    let entries = directories.map(|path| fs::read_dir(dir.path(path)));
    let entries = entries.into_iter().flatten().flatten().flatten();
    let is_log = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains(".log");
    let logs: BTreeSet<_> = entries.filter(is_log).map(|entry| entry.path()).collect();
    logs.into_iter().collect()
}

/// Removes the failure of an earlier VM in a directory of `--root`.
pub fn clear(dir: &VmDir) {
    remove_reason(dir);
    for log in console_log::files(dir) {
        let _ = fs::remove_file(log);
    }
}

/// Removes the reason, and leaves the logs in a directory that stays.
pub fn remove_reason(dir: &VmDir) {
    let _ = fs::remove_file(dir.path(FAILURE_FILE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_failed_vm_leaves_its_reason_and_log_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().join("vm"));
        fs::create_dir_all(dir.path("/var/run")).unwrap();
        fs::write(dir.path("/var/run/secret"), "s").unwrap();
        fs::write(dir.path(TEMPORARY), "").unwrap();
        fs::write(dir.log_file(), "").unwrap();
        let vmi = json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}});
        let leave = || leave(&dir, &vmi, "it has crashed".to_owned());
        assert!(!leave() && Failure::load(&dir).is_none(), "no log");
        fs::write(dir.log_file(), "{}\n").unwrap();
        let console = dir.path(&PodPaths::default().serial_log("u"));
        fs::create_dir_all(console.parent().unwrap()).unwrap();
        let boot = "boot\r\n".repeat(1 << 18);
        fs::write(&console, boot + "Kernel panic").unwrap();
        assert!(leave());
        let kept = fs::read(console_log(&dir, "u")).unwrap();
        assert!(kept.ends_with(b"boot\r\nKernel panic\n"));
        assert_eq!(
            u64::try_from(kept.len()).unwrap(),
            MAX_CONSOLE_LOG_BYTES + 1
        );
        let failure = Failure::load(&dir).unwrap();
        assert_eq!(
            (&*failure.name, &*failure.reason),
            ("web", "it has crashed")
        );
        assert!(dir.log_file().exists() && dir.is_temporary());
        assert!(!dir.path("/var").exists());
    }

    #[test]
    fn only_logs_are_logs_whatever_the_directory_is_called() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().join("vm.log"));
        for file in [
            "vmi.json",
            "sidecar-0.log",
            "log/qemu/default_web.log",
            "log/x.txt",
        ] {
            fs::create_dir_all(dir.path(file).parent().unwrap()).unwrap();
            fs::write(dir.path(file), "x").unwrap();
        }
        let expected = ["log/qemu/default_web.log", "sidecar-0.log"].map(|file| dir.path(file));
        assert_eq!(logs(&dir), expected);
        fs::write(dir.path(TEMPORARY), "").unwrap();
        assert!(leave(&dir, &json!({}), String::new()));
        assert_eq!(logs(&dir), expected);
        assert!(!dir.path("vmi.json").exists());
    }

    #[test]
    fn secrets_go_from_a_directory_that_stays() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        for path in [
            "var/run/kubevirt-private/secret/a",
            "var/run/kubevirt-private/vmi-disks/claim",
            "var/run/kubevirt-ephemeral-disks/cloud-init-data/default/web",
        ] {
            fs::create_dir_all(dir.path(path)).unwrap();
        }
        fs::write(dir.log_file(), "{}\n").unwrap();
        assert!(leave(&dir, &json!({}), String::new()));
        assert!(!dir.path("var/run/kubevirt-private/secret").exists());
        let cloud_init = "var/run/kubevirt-ephemeral-disks/cloud-init-data";
        assert!(!dir.path(cloud_init).exists());
        assert!(
            dir.path("var/run/kubevirt-private/vmi-disks/claim")
                .exists()
        );
        let logs = console_log::files(&dir);
        logs.iter().for_each(|log| fs::write(log, "boot").unwrap());
        clear(&dir);
        assert!(Failure::load(&dir).is_none() && !logs.iter().any(|log| log.exists()));
    }
}
