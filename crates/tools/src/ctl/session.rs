//! Which launchers `run` has started on this machine, and what each runs: a directory of its own for
//! each VM, with a link by the VM's name in a registry of the user's.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CtlError, Target};
use api::pod_paths::{COMMAND_SOCKET, PodPaths};
use pod::Root;

/// A UID as Kubernetes makes them: the sockets below it are those with the longest paths.
const ANY_UID: &str = "00000000-0000-0000-0000-000000000000";
/// The most bytes that the kernel takes for a socket's path.
const SOCKET_PATH: usize = 107;
/// The VMI as it was sent last.
const VMI_FILE: &str = "vmi.json";

/// A launcher's directory.
#[derive(Debug, Clone)]
pub struct Session {
    root: PathBuf,
}

impl Session {
    /// A launcher whose root is `root`.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The root as the pod's rooms know it.
    #[must_use]
    pub fn pod_root(&self) -> Root {
        Root::new(&self.root)
    }

    /// Makes a root for the VM `name` and enters it in the registry. The directory is short, for the
    /// sockets below it must fit in 107 bytes.
    ///
    /// # Errors
    /// If the directory cannot be made, or a VM of that name is running.
    pub fn create(name: &str, root: Option<PathBuf>) -> Result<Self, CtlError> {
        if let Some(root) = root {
            has_room_for_sockets(
                &std::path::absolute(&root).map_err(CtlError::file("find", &root))?,
            )?;
            fs::create_dir_all(&root).map_err(CtlError::file("make", &root))?;
            let root = root.canonicalize().map_err(CtlError::file("find", &root))?;
            return Self { root }.cleared()?.register(name);
        }
        let base = std::env::temp_dir();
        for attempt in 0..1000_u32 {
            let root = base.join(format!("vm-{:x}{attempt:x}", std::process::id()));
            has_room_for_sockets(&root)?;
            match fs::DirBuilder::new().mode(0o700).create(&root) {
                Ok(()) => {
                    let made = Self { root };
                    return made
                        .clone()
                        .register(name)
                        .inspect_err(|_| made.remove(None));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(CtlError::file("make", root)(e)),
            }
        }
        Err(CtlError::Run(format!(
            "no free directory name in {}",
            base.display()
        )))
    }

    /// The socket of a launcher that was killed would be taken for the next one's.
    fn cleared(self) -> Result<Self, CtlError> {
        if self.is_running() {
            return Err(CtlError::Run(format!(
                "a launcher is running in {}; end it first or choose another --root",
                self.root.display()
            )));
        }
        match fs::remove_file(self.cmd_socket()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CtlError::file("remove", self.cmd_socket())(error))
            }
            _ => Ok(self),
        }
    }

    /// Forgets the domain of a launcher that was killed, unless its QEMU lives on for the next launcher: that would
    /// report an end of long ago and start nothing.
    pub fn forget_ended(&self, domain: &str) {
        let file = |path: &str| self.root.join(path.replace("DOMAIN", domain));
        let pid = fs::read_to_string(file("run/qemu/DOMAIN.pid")).unwrap_or_default();
        let command =
            fs::read(Path::new("/proc").join(pid.trim()).join("cmdline")).unwrap_or_default();
        let root = self.root.as_os_str().as_bytes();
        let lives = !pid.trim().is_empty() && command.windows(root.len()).any(|part| part == root);
        if !lives {
            for path in [
                "run/qemu/DOMAIN.xml",
                "run/qemu/DOMAIN.pid",
                "etc/qemu/DOMAIN.xml",
            ] {
                let _ = fs::remove_file(file(path));
            }
        }
    }

    fn register(self, name: &str) -> Result<Self, CtlError> {
        let registry = registry()?;
        let link = registry.join(name);
        if let Ok(old) = fs::read_link(&link) {
            if Self::at(old.clone()).is_running() {
                return Err(CtlError::Run(format!(
                    "a VM named {name} is running, in {}; end it first (launcherctl shutdown --name {name}) or give this one another name",
                    old.display()
                )));
            }
            fs::remove_file(&link).map_err(CtlError::file("remove", &link))?;
        }
        std::os::unix::fs::symlink(&self.root, &link).map_err(CtlError::file("make", &link))?;
        Ok(self)
    }

    /// Takes the VM out of the registry; the directory stays.
    pub fn unregister(&self, name: &str) {
        if let Ok(registry) = registry()
            && fs::read_link(registry.join(name)).is_ok_and(|root| root == self.root)
        {
            let _ = fs::remove_file(registry.join(name));
        }
    }

    /// Removes the directory, but keeps `log` if there is something in it.
    pub fn remove(&self, log: Option<&Path>) {
        let Some(log) = log.filter(|log| log.metadata().is_ok_and(|it| it.len() > 0)) else {
            let _ = fs::remove_dir_all(&self.root);
            return;
        };
        for entry in fs::read_dir(&self.root)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path != log)
        {
            let _ = if entry.is_dir() {
                fs::remove_dir_all(entry)
            } else {
                fs::remove_file(entry)
            };
        }
    }

    /// The launcher's root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path of the pod, e.g. `/var/run/kubevirt`, below this root.
    #[must_use]
    pub fn path(&self, pod_path: &str) -> PathBuf {
        self.root.join(pod_path.trim_start_matches('/'))
    }

    /// The cmd socket.
    #[must_use]
    pub fn cmd_socket(&self) -> PathBuf {
        self.path(&PodPaths::default().shared(COMMAND_SOCKET))
    }

    /// Keeps the VMI for later calls.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn store_vmi(&self, vmi: &Value) -> Result<(), CtlError> {
        let (file, beside) = (self.root.join(VMI_FILE), self.root.join("vmi.json.new"));
        fs::write(&beside, vmi.to_string()).map_err(CtlError::file("write", &beside))?;
        fs::rename(&beside, &file).map_err(CtlError::file("write", &file))
    }

    /// The VMI that was sent last.
    ///
    /// # Errors
    /// If there is none.
    pub fn load_vmi(&self) -> Result<Value, CtlError> {
        let file = self.root.join(VMI_FILE);
        let text = fs::read_to_string(&file).map_err(CtlError::file("read", &file))?;
        serde_json::from_str(&text).map_err(|e| CtlError::Manifest {
            file: file.display().to_string(),
            reason: e.to_string(),
        })
    }

    /// Whether something accepts connections on the cmd socket.
    #[must_use]
    pub fn is_running(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.cmd_socket()).is_ok()
    }
}

/// The launcher that the arguments mean, and its cmd socket.
///
/// # Errors
/// If there is none, or more than one.
pub fn resolve(target: &Target) -> Result<(Option<Session>, PathBuf), CtlError> {
    if let Some(socket) = &target.socket {
        return Ok((None, socket.clone()));
    }
    let session = match (&target.root, &target.name) {
        (Some(root), _) => Session::at(root.clone()),
        (None, Some(name)) => named(name)?,
        (None, None) => only_one()?,
    };
    let socket = session.cmd_socket();
    Ok((Some(session), socket))
}

fn named(name: &str) -> Result<Session, CtlError> {
    let link = registry()?.join(name);
    fs::read_link(&link).map(Session::at).map_err(|_| {
        CtlError::Target(format!(
            "no VM named {name} was started here with launcherctl run"
        ))
    })
}

fn only_one() -> Result<Session, CtlError> {
    let running: Vec<(String, Session)> = all()?
        .into_iter()
        .filter(|(_, session)| session.is_running())
        .collect();
    match running.as_slice() {
        [(_, session)] => Ok(session.clone()),
        [] => in_pod().ok_or_else(|| {
            CtlError::Target("no launcher is running here; start one with launcherctl run, or say --root or --socket".into())
        }),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(CtlError::Target(format!("several VMs are running ({}); choose with --name", names.join(", "))))
        }
    }
}

/// Inside a pod the root is `/`.
fn in_pod() -> Option<Session> {
    let session = Session::at("/".into());
    session.cmd_socket().exists().then_some(session)
}

fn all() -> Result<Vec<(String, Session)>, CtlError> {
    let registry = registry()?;
    let entries = fs::read_dir(&registry).map_err(CtlError::file("read", &registry))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().into_string().ok()?,
                Session::at(fs::read_link(entry.path()).ok()?),
            ))
        })
        .collect())
}

/// Told in time: libvirt and QEMU would each refuse some socket or other.
fn has_room_for_sockets(root: &Path) -> Result<(), CtlError> {
    let longest = PodPaths::default().serial_socket(ANY_UID).len();
    let (is, most) = (root.as_os_str().len(), SOCKET_PATH - longest);
    if is <= most {
        return Ok(());
    }
    Err(CtlError::Run(format!(
        "{}: a path of {is} bytes, where {most} leave room for the sockets below it; choose a shorter directory with --root (or TMPDIR)",
        root.display()
    )))
}

/// The user's own directory of links; refused if somebody else made it first.
fn registry() -> Result<PathBuf, CtlError> {
    let user = rustix::process::getuid().as_raw();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        // After su(1) it is still the other user's.
        Some(runtime) if fs::metadata(&runtime).is_ok_and(|it| it.is_dir() && it.uid() == user) => {
            Path::new(&runtime).join("launcherctl")
        }
        _ => std::env::temp_dir().join(format!("launcherctl-{user}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => Ok(directory),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let metadata =
                fs::symlink_metadata(&directory).map_err(CtlError::file("look at", &directory))?;
            if metadata.is_dir() && metadata.uid() == user {
                return Ok(directory);
            }
            Err(CtlError::Run(format!(
                "{} is not a directory of yours; remove it or set XDG_RUNTIME_DIR",
                directory.display()
            )))
        }
        Err(e) => Err(CtlError::file("make", directory)(e)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_domain_is_forgotten_once_its_qemu_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        for place in ["run/qemu", "etc/qemu"] {
            fs::create_dir_all(dir.path().join(place)).unwrap();
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
        let session = Session::at(dir.path().to_owned());
        while fs::read(format!("/proc/{}/cmdline", qemu.id()))
            .is_ok_and(|words| !words.starts_with(b"tail"))
        {}
        session.forget_ended("a_b");
        assert!(definition.exists());
        qemu.kill().unwrap();
        qemu.wait().unwrap();
        session.forget_ended("a_b");
        assert!(!definition.exists() && !dir.path().join("run/qemu/a_b.pid").exists());
    }

    #[test]
    fn a_directory_that_is_too_deep_for_sockets_is_refused_before_it_is_made() {
        let fits = |length: usize| {
            has_room_for_sockets(Path::new(&format!("/{}", "d".repeat(length - 1))))
        };
        assert!(fits(32).is_ok());
        assert!(fits(33).is_err_and(|error| error.to_string().contains("--root")));
    }
}
