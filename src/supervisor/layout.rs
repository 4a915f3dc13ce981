//! Where libvirt keeps its files, by mode.
//!
//! | | system (root) | session (any other user) | embedded |
//! |---|---|---|---|
//! | `qemu.conf` | `/etc/libvirt` | `/var/run/kubevirt-private/libvirt` | `DIR/etc` |
//! | socket | `/var/run/libvirt` | same | none |
//! | pid file | `/var/run/libvirt/qemu` | `/var/run/libvirt/qemu/run` | `DIR/run/qemu` |
//! | QEMU's log | `/var/log/libvirt/qemu` | `/var/run/kubevirt-private/libvirt/qemu/log` | `DIR/log/qemu` |
//! | TPMs' state | `/var/lib/libvirt/swtpm` | `/var/run/kubevirt-private/libvirt/qemu/swtpm` | `DIR/lib/swtpm` |
//!
//! A session's paths follow from the pod's `XDG_*` variables, which the daemons get from here.

use std::path::{Path, PathBuf};

use api::pod_paths;
use pod::Root;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverMode {
    /// A daemon run by root.
    System,
    /// A daemon run by another user.
    Session,
    /// The driver in this process.
    Embed,
}

/// The paths that follow from root and mode.
#[derive(Debug, Clone)]
pub struct Layout {
    pub root: Root,
    pub mode: DriverMode,
}

impl Layout {
    /// The embedded driver's own root. In a pod it is beside the other private files.
    pub fn embed_root(&self) -> PathBuf {
        if self.root.dir() == Path::new("/") {
            self.root.path(pod_paths::EMBED_DIR)
        } else {
            self.root.dir().into()
        }
    }

    /// The directory of the daemons' sockets.
    pub fn socket_dir(&self) -> PathBuf {
        self.root.path(pod_paths::LIBVIRT_RUN_DIR)
    }

    /// The socket that `virsh` in the pod uses.
    pub fn socket(&self) -> PathBuf {
        self.root.path(pod_paths::VIRTQEMUD_SOCKET)
    }

    /// The URI (`qemu:///system`, `qemu:///session`) over `socket`, or of the embedded driver.
    pub fn uri(&self, socket: &Path) -> String {
        let socket = encoded(socket);
        match self.mode {
            DriverMode::System => format!("qemu+unix:///system?socket={socket}"),
            DriverMode::Session => format!("qemu+unix:///session?socket={socket}"),
            DriverMode::Embed => format!("qemu:///embed?root={}", encoded(&self.embed_root())),
        }
    }

    /// The daemon's configuration file.
    pub fn daemon_conf(&self) -> PathBuf {
        self.root.path(pod_paths::VIRTQEMUD_CONF)
    }

    /// The QEMU driver's configuration file.
    pub fn qemu_conf(&self) -> PathBuf {
        use pod_paths::{SESSION_QEMU_CONF, SYSTEM_QEMU_CONF};
        self.place(SYSTEM_QEMU_CONF, SESSION_QEMU_CONF, "etc/qemu.conf")
    }

    /// The pid file of the domain's QEMU.
    pub fn pid_file(&self, domain: &str) -> PathBuf {
        use pod_paths::{SESSION_PID_DIR, SYSTEM_PID_DIR};
        let dir = self.place(SYSTEM_PID_DIR, SESSION_PID_DIR, "run/qemu");
        dir.join(format!("{domain}.pid"))
    }

    /// The log of the domain's QEMU.
    pub fn qemu_log(&self, domain: &str) -> PathBuf {
        use pod_paths::{SESSION_QEMU_LOG_DIR, SYSTEM_QEMU_LOG_DIR};
        let dir = self.place(SYSTEM_QEMU_LOG_DIR, SESSION_QEMU_LOG_DIR, "log/qemu");
        dir.join(format!("{domain}.log"))
    }

    /// The directory with the state of TPMs.
    pub fn tpm_dir(&self) -> PathBuf {
        use pod_paths::{SESSION_SWTPM_DIR, SYSTEM_SWTPM_DIR};
        self.place(SYSTEM_SWTPM_DIR, SESSION_SWTPM_DIR, "lib/swtpm")
    }

    /// A path of libvirt's QEMU driver: of each mode's daemon, and below the embedded driver's root.
    fn place(&self, system: &str, session: &str, embedded: &str) -> PathBuf {
        match self.mode {
            DriverMode::System => self.root.path(system),
            DriverMode::Session => self.root.path(session),
            DriverMode::Embed => self.embed_root().join(embedded),
        }
    }

    /// The FIFO for SeaBIOS's debug output.
    pub fn seabios_pipe(&self) -> PathBuf {
        self.root.path(pod_paths::SEABIOS_PIPE)
    }

    /// Environment variables that the daemons need; a KubeVirt pod has them already.
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        match self.mode {
            DriverMode::Session => vec![
                ("XDG_CACHE_HOME", self.root.path(pod_paths::PRIVATE_DIR)),
                ("XDG_CONFIG_HOME", self.root.path(pod_paths::PRIVATE_DIR)),
                ("XDG_RUNTIME_DIR", self.root.path("/var/run")),
            ],
            DriverMode::System | DriverMode::Embed => Vec::new(),
        }
    }

    /// Pairs of a directory below the root and the host's directory that it replaces for a system
    /// daemon. In a pod both are the same.
    pub fn system_dirs(&self) -> Vec<(PathBuf, &'static str)> {
        if self.root.dir() == Path::new("/") || self.mode != DriverMode::System {
            return Vec::new();
        }
        let below = |path: &'static str, place| (self.root.path(path), place);
        vec![
            below(pod_paths::LIBVIRT_CONF_DIR, "/etc/libvirt"),
            below(pod_paths::LIBVIRT_RUN_DIR, "/run/libvirt"),
            below(pod_paths::SYSTEM_LIB_DIR, "/var/lib/libvirt"),
            below(pod_paths::SYSTEM_CACHE_DIR, "/var/cache/libvirt"),
            below(pod_paths::SYSTEM_LOG_DIR, "/var/log/libvirt"),
        ]
    }
}

/// Encodes a path for the query of a URI.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    path.to_string_lossy()
        .bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(root: &str, mode: DriverMode) -> Layout {
        let root = Root::new(root);
        Layout { root, mode }
    }

    #[test]
    fn session_in_a_pod_is_where_kubevirt_has_it() {
        let pod = layout("/", DriverMode::Session);
        assert_eq!(
            pod.uri(&pod.socket()),
            "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock"
        );
        assert_eq!(
            pod.pid_file("ns_vm"),
            Path::new("/var/run/libvirt/qemu/run/ns_vm.pid")
        );
        assert_eq!(
            pod.qemu_log("ns_vm"),
            Path::new("/var/run/kubevirt-private/libvirt/qemu/log/ns_vm.log")
        );
        assert_eq!(
            pod.qemu_conf(),
            Path::new("/var/run/kubevirt-private/libvirt/qemu.conf")
        );
        assert_eq!(
            pod.tpm_dir(),
            Path::new("/var/run/kubevirt-private/libvirt/qemu/swtpm")
        );
        assert_eq!(
            pod.environment()[2],
            ("XDG_RUNTIME_DIR", PathBuf::from("/var/run"))
        );
    }

    #[test]
    fn system_in_a_pod_is_where_libvirt_has_it() {
        let pod = layout("/", DriverMode::System);
        assert_eq!(
            pod.pid_file("ns_vm"),
            Path::new("/var/run/libvirt/qemu/ns_vm.pid")
        );
        assert_eq!(pod.qemu_conf(), Path::new("/etc/libvirt/qemu.conf"));
        assert_eq!(pod.tpm_dir(), Path::new("/var/lib/libvirt/swtpm"));
        assert!(pod.system_dirs().is_empty() && pod.environment().is_empty());
    }

    #[test]
    fn everything_is_below_a_root() {
        for mode in [DriverMode::System, DriverMode::Session, DriverMode::Embed] {
            let own = layout("/tmp/x", mode);
            for path in [
                own.socket(),
                own.daemon_conf(),
                own.qemu_conf(),
                own.pid_file("d"),
                own.qemu_log("d"),
                own.tpm_dir(),
            ] {
                assert!(path.starts_with("/tmp/x"), "{mode:?}: {}", path.display());
            }
        }
        assert!(
            layout("/tmp/x", DriverMode::System)
                .system_dirs()
                .iter()
                .all(|(own, _)| own.starts_with("/tmp/x"))
        );
    }

    #[test]
    fn embedded_driver_has_the_root_itself() {
        assert_eq!(
            layout("/tmp/x", DriverMode::Embed).uri(Path::new("")),
            "qemu:///embed?root=/tmp/x"
        );
        assert_eq!(
            layout("/", DriverMode::Embed).embed_root(),
            Path::new("/var/run/kubevirt-private/embed")
        );
        let tpm_dir = layout("/tmp/x", DriverMode::Embed).tpm_dir();
        assert_eq!(tpm_dir, Path::new("/tmp/x/lib/swtpm"));
    }

    #[test]
    fn path_in_a_uri_is_encoded() {
        assert_eq!(encoded(Path::new("/tmp/a b&c")), "/tmp/a%20b%26c");
    }
}
