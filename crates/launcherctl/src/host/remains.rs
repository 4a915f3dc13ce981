//! What remains of a VM whose supervisor was killed: its launcher, QEMU and other processes that
//! name its directory; its files and its name.

use std::fs::Metadata;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid};
use tokio::time::timeout;

use super::console_hub::{CONSOLE_SOCKET, NEW_OUTPUT_SOCKET};
use super::failure::{self, Failure};
use super::registry::{self, CONTROL_SOCKET, RegistryError, TEMPORARY, VmDir};
use super::{home, last_images, network, vm_dir};
use crate::files::FileError;
use crate::json::text_at;
use crate::reports::notify_server::notify_socket;
use api::pod_paths::PodPaths;
use os::process::Process;

/// Between SIGTERM, on which QEMU normally exits at once, and SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Ends the processes. Returns true if there were any. QEMU goes before the launcher, which would
/// not replace it.
pub async fn terminate(root: &Path) -> bool {
    let found = terminate_once(root).await;
    // The launcher may have replaced a daemon before it ended itself.
    terminate_once(root).await;
    found
}

async fn terminate_once(root: &Path) -> bool {
    let found = find(root);
    for process in &found {
        let _ = process.signal(Signal::TERM);
    }
    for process in &found {
        if timeout(STOP_GRACE, process.ended()).await.is_err() {
            let _ = process.signal(Signal::KILL);
            // A process that waits for a hanging disk does not exit.
            let _ = timeout(STOP_GRACE, process.ended()).await;
        }
    }
    !found.is_empty()
}

/// PID of the QEMU with the VM's guest, with or without a launcher.
pub fn guest(root: &Path) -> Option<i32> {
    let has_guest = |process: &Process| guest_name(&process.arguments().ok()?);
    let mut found = find(root).into_iter();
    found.find(|it| has_guest(it).is_some()).map(|it| it.pid())
}

/// PID and guest's name of a QEMU that has the file open.
pub fn guest_with_file(file: &Metadata) -> Option<(i32, String)> {
    let mut found = os::procfs::with_open_file(file).into_iter();
    found.find_map(|pid| {
        let guest = guest_name(&os::procfs::arguments(pid).ok()?)?;
        Some((pid.as_raw_nonzero().get(), guest))
    })
}

/// PID of a stopped QEMU that has, or gets by a migration, the guest of this name, except `own`.
pub fn stopped_target(guest: &str, own: Option<i32>) -> Option<i32> {
    let is_target = |pid: &i32| {
        let arguments = Pid::from_raw(*pid).and_then(|pid| os::procfs::arguments(pid).ok());
        let name = arguments.and_then(|arguments| guest_name(&arguments));
        Some(*pid) != own && name.as_deref() == Some(guest) && os::procfs::is_stopped(*pid)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.find(is_target)
}

/// PID of a daemon of libvirt's whose process is stopped.
pub fn stopped_libvirt(root: &Path) -> Option<i32> {
    let is_daemon = |process: &Process| {
        let arguments = process.arguments().unwrap_or_default();
        is_program(&arguments, &["libvirtd", "virtqemud", "virtlogd"])
    };
    let mut stopped = find(root).into_iter();
    stopped
        .find(|process| is_daemon(process) && os::procfs::is_stopped(process.pid()))
        .map(|process| process.pid())
}

/// The name of a QEMU's guest; `None` for other programs, and a QEMU that reads capabilities.
fn guest_name(arguments: &[String]) -> Option<String> {
    let mut names = arguments.iter().filter_map(|it| it.strip_prefix("guest="));
    let name = names.next()?.split(',').next()?;
    is_program(arguments, &["qemu"]).then(|| name.to_owned())
}

/// What a failed or lost VM has left under its name. It is kept until the next VM of that name is
/// about to start, so that a refused start loses nothing.
#[derive(Debug)]
pub struct Earlier {
    name: String,
    dir: VmDir,
}

impl Earlier {
    /// Finds what has this name.
    ///
    /// # Errors
    /// A VM of this name runs, is starting or ending, or its guest still runs.
    pub fn find(name: &str) -> Result<Option<Self>, RegistryError> {
        let Ok(dir) = registry::find(name) else {
            return Ok(None);
        };
        let has_failed = Failure::load(&dir).is_some() && !dir.is_running();
        if !has_failed {
            if dir.is_running() || dir.is_supervised() {
                return Err(RegistryError::name_taken(name, &dir));
            }
            if let Some(pid) = guest(dir.root()) {
                return Err(RegistryError::GuestRuns(name.to_owned(), pid));
            }
            // Without a log its launcher was not started yet: another `run` places its images.
            if !dir.log_file().exists() {
                return Ok(None);
            }
        }
        Ok(Some(Self {
            name: name.to_owned(),
            dir,
        }))
    }

    /// Moves its disks to the directory of `--root` that it has left by a migration, if it has.
    /// Returns notes on the user's images.
    ///
    /// # Errors
    /// One cannot be moved.
    pub fn give_back(&self) -> Result<Vec<String>, FileError> {
        home::give_back(&self.dir)?;
        Ok(image_notes(&self.dir))
    }

    /// Ends its processes and removes its files, as the VM in `next` is about to start. Keeps the
    /// files in `next`.
    pub async fn remove(self, next: &VmDir) {
        terminate(self.dir.root()).await;
        if self.dir.is_same(next) {
            let _ = std::fs::remove_file(next.path(TEMPORARY));
            remove_sockets(next);
            self.dir.remove_link();
        } else {
            forget(&self.name, &self.dir);
        }
    }

    /// Restores its name, as the VM in `next` is not started. Without a reason it has left only
    /// files in `next`.
    pub fn restore(self, next: &VmDir) {
        if Failure::load(&self.dir).is_some() || !self.dir.is_same(next) {
            // The error of the VM that is not started matters more than one here.
            let _ = registry::add(&self.name, &self.dir);
        }
    }
}

/// What has become of the user's images, as a VM that has failed or is lost is about to be removed.
pub fn image_notes(dir: &VmDir) -> Vec<String> {
    match Failure::load(dir) {
        Some(failure) => failure.notes,
        None => {
            let notes = last_images::give_back(dir).unwrap_or_default();
            [notes, last_images::lost(dir)].concat()
        }
    }
}

/// Removes an ended VM: its directory if temporary, else the copies of secrets in it, and then its
/// name.
pub fn forget(name: &str, dir: &VmDir) {
    if dir.is_temporary() {
        vm_dir::remove(dir, &[]);
    } else {
        remove_sockets(dir);
        vm_dir::remove_secrets(dir);
        vm_dir::remove_overlays(dir);
        vm_dir::remove_plugged_links(dir);
        failure::remove_reason(dir);
    }
    registry::remove(name, dir);
}

/// Removes an ended VM's sockets, and its UID's directory with the guest's sockets, from a
/// directory of `--root`, which stays.
pub fn remove_sockets(dir: &VmDir) {
    let uid = match Failure::load(dir) {
        Some(failure) => failure.uid,
        None => text_at(&dir.load_vmi().unwrap_or_default(), "/metadata/uid").to_owned(),
    };
    let notify = notify_socket();
    let sockets = [CONTROL_SOCKET, CONSOLE_SOCKET, NEW_OUTPUT_SOCKET, &notify];
    for socket in sockets {
        let _ = std::fs::remove_file(dir.path(socket));
    }
    let _ = std::fs::remove_file(network::sidecar::socket(dir));
    let log = dir.path(&PodPaths::default().serial_log(&uid));
    // A VMI's UID may be any text, such as a path.
    if let (Some(name), Some(own)) = (Path::new(&uid).file_name(), log.parent())
        && name == uid.as_str()
    {
        let _ = std::fs::remove_dir_all(own);
    }
}

/// Its processes, by the beginnings of their programs' names.
const PROGRAMS: [&str; 6] = [
    "virt-launcher",
    "qemu",
    "passt",
    "libvirtd",
    "virtqemud",
    "virtlogd",
];

/// The processes with an argument that names the directory, or a path or option below it.
fn find(root: &Path) -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Pid::from_raw(pid).filter(|pid| *pid != getpid())
    });
    let root = root.display().to_string();
    let is_of_vm = |process: &Process| {
        let arguments = process.arguments().unwrap_or_default();
        is_program(&arguments, &PROGRAMS) && arguments.iter().any(|it| names(it, &root))
    };
    let processes = pids.filter_map(|pid| Process::open(pid).ok());
    processes.filter(is_of_vm).collect()
}

/// Whether the program's name begins with one of these.
fn is_program(arguments: &[String], names: &[&str]) -> bool {
    let program = arguments.first().map(Path::new).and_then(Path::file_name);
    let program = program.and_then(|name| name.to_str());
    program.is_some_and(|program| names.iter().any(|name| program.starts_with(name)))
}

/// Whether the argument contains the directory's path, and not only as a part of a longer path.
fn names(argument: &str, root: &str) -> bool {
    argument.match_indices(root).any(|(at, _)| {
        let before = argument.get(..at).unwrap_or_default();
        let after = argument.get(at.saturating_add(root.len())..);
        (before.is_empty() || before.ends_with(['=', ',', ':', '"']))
            && after.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ',', '"']))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn another_vms_directory_is_not_this_ones() {
        assert!(names("/tmp/vm-1", "/tmp/vm-1"));
        assert!(names("socket,path=/tmp/vm-1/run/x", "/tmp/vm-1"));
        assert!(names("unix:/tmp/vm-1/run/x", "/tmp/vm-1"));
        assert!(names(r#"{"filename":"/tmp/vm-1/disk.img"}"#, "/tmp/vm-1"));
        assert!(!names("/tmp/vm-12/run", "/tmp/vm-1"));
        assert!(!names("/data/tmp/vm-1/run", "/tmp/vm-1"));
        assert!(!names("path=/data/tmp/vm-1", "/tmp/vm-1"));
    }

    #[test]
    fn only_the_vms_own_programs_are_ended() {
        let is_own = |line: &str| {
            let arguments = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
            is_program(&arguments, &PROGRAMS)
        };
        assert!(is_own("/usr/bin/virt-launcher --root /tmp/vm-1"));
        assert!(is_own("/usr/bin/qemu-system-x86_64"));
        // A launcher that migrates has them.
        assert!(is_own("/usr/sbin/libvirtd -f /tmp/vm-1/x.conf"));
        assert!(is_own("/usr/sbin/virtlogd -p /tmp/vm-1/x.pid"));
        assert!(!is_own("less /tmp/vm-1/launcher.log"));
    }

    #[tokio::test]
    async fn a_guest_without_a_launcher_is_found_by_its_directory() {
        use std::os::unix::process::CommandExt;
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(guest(dir.path()), None);
        let start = |name: &str| {
            // Stands for QEMU.
            std::process::Command::new("tail")
                .arg0("qemu-system-x86_64")
                .args(["-f", "/dev/null", name])
                .arg(dir.path().join("log"))
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut children = [start("capabilities"), start("guest=default_web,x=on")];
        let wanted = i32::try_from(children[1].id()).unwrap();
        let mut found = None;
        // Waits until it is QEMU: before, it is a copy of this process.
        while found.is_none() {
            found = guest(dir.path());
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, Some(wanted));
        assert_eq!(guest(dir.path()), None);
    }

    #[test]
    fn the_sockets_of_a_vm_go_and_its_claims_stay() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().join("vm"));
        let of_uid = |uid: &str| dir.path(&PodPaths::default().serial_log(uid));
        let (own, other) = (of_uid("u"), of_uid("other"));
        let claim = dir.path("/var/run/kubevirt-private/vmi-disks/data/disk.img");
        let sockets = [
            dir.path(CONTROL_SOCKET),
            dir.path(&notify_socket()),
            network::sidecar::socket(&dir),
        ];
        for file in sockets.iter().chain([&own, &other, &claim]) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        // A UID cannot lead out of the directory.
        for (uid, is_left) in [("", true), ("..", true), ("u/../other", true), ("u", false)] {
            dir.store_vmi(&serde_json::json!({"metadata": {"uid": uid}}))
                .unwrap();
            remove_sockets(&dir);
            assert_eq!(own.parent().unwrap().exists(), is_left, "{uid}");
            assert!(other.exists() && claim.exists(), "{uid}");
        }
        assert!(sockets.iter().all(|socket| !socket.exists()));
    }
}
