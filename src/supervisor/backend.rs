//! libvirt as this launcher runs it, with its configuration: daemons or the embedded driver, and
//! the connection to it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use super::daemon_error::DaemonError;
use super::daemon_process::{SocketOwner, socket_owner};
use super::daemons::{Daemon, DaemonProgram};
use super::environment::Environment;
use super::layout::{DriverMode, Layout};
use super::libvirt_conf::{QemuConf, daemon_conf, log_filters};
use api::pod_paths;
use libvirt::{self, Connection};
use os::file_error::FileError;
use os::small_file;
use pod::LauncherFlags;
use pod::flags::LibvirtMode;

const VIRTQEMUD: &str = "/usr/sbin/virtqemud";
const LIBVIRTD: &str = "/usr/sbin/libvirtd";
const VIRTLOGD: &str = "/usr/sbin/virtlogd";

/// Names of the daemons' sockets. libvirtd's does not follow from its program name.
const SOCKETS: [&str; 2] = ["virtqemud-sock", "libvirt-sock"];

/// Delay between the exit of virtqemud (or libvirtd, virtlogd) and its restart.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Limit for a daemon to accept a connection. A slower daemon counts as one that hangs.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The same limit while a migration, backup or dump is in progress. Such a job ends with the
/// daemon.
pub const CONNECT_TIMEOUT_IN_JOB: Duration = Duration::from_secs(60);
/// Interval of keepalive messages (`virConnectSetKeepAlive`) to a connected daemon. A daemon that
/// hangs causes no event.
const KEEPALIVE_SECONDS: u16 = 15;
/// Size limit of a configuration file, in bytes. libvirt's own file has 40 kB with all its
/// comments.
const MAX_CONF_BYTES: u64 = 1 << 20;
/// Unanswered keepalive messages before the connection is closed.
const KEEPALIVE_COUNT: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("libvirt's daemon is not ready")]
    Daemon(#[from] DaemonError),
    /// A configuration file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// libvirt refuses the connection.
    #[error("cannot connect to {uri}")]
    Connect {
        uri: String,
        #[source]
        source: libvirt::Error,
    },
    /// libvirt does not answer in time.
    #[error("libvirt does not answer on {}", socket.display())]
    TimedOut { socket: PathBuf },
    /// libvirt refuses to send events.
    #[error("cannot register for libvirt's events")]
    Events(#[source] libvirt::Error),
    /// The thread that called libvirt panicked.
    #[error("internal error in a call of libvirt, see the launcher's log")]
    Panicked,
}

#[derive(Debug)]
pub struct Backend {
    pub layout: Layout,
    /// virtqemud or libvirtd; none with the embedded driver.
    pub daemon: Option<Daemon>,
    log_daemon: Option<Daemon>,
}

impl Backend {
    /// Writes the configuration and starts the daemons, if any. Does not wait for them.
    ///
    /// # Errors
    /// No program that could run QEMU is installed, or the configuration cannot be written.
    pub async fn start(
        flags: &LauncherFlags,
        environment: &Environment,
    ) -> Result<Self, BackendError> {
        let (mode, program) = choose(
            flags.libvirt,
            rustix::process::geteuid().is_root(),
            |path| path.exists(),
        )?;
        let root = flags.root.clone();
        let layout = Layout { root, mode };
        write_qemu_conf(&layout, environment)?;
        let mut backend = Self {
            layout,
            daemon: None,
            log_daemon: None,
        };
        if let Some(program) = program {
            backend.start_daemons(program, flags, environment).await?;
        }
        Ok(backend)
    }

    /// The started daemons; none with the embedded driver.
    pub fn daemons(&self) -> impl Iterator<Item = &Daemon> {
        self.daemon.iter().chain(&self.log_daemon)
    }

    /// Starts virtqemud (or libvirtd) and then virtlogd, or adopts a previous launcher's.
    async fn start_daemons(
        &mut self,
        program: &str,
        flags: &LauncherFlags,
        environment: &Environment,
    ) -> Result<(), BackendError> {
        let dir = self.layout.socket_dir();
        std::fs::create_dir_all(&dir).map_err(FileError::on("write", &dir))?;
        let filters = log_filters(
            &flags.libvirt_log_filters,
            environment.verbosity_number(),
            environment.libvirt_debug,
        );
        if let Some(filters) = &filters {
            tracing::info!("Enabling libvirt log filters: {filters}");
        }
        let base = read_conf(&self.layout.root.path(pod_paths::IMAGE_VIRTQEMUD_CONF));
        write(
            &self.layout.daemon_conf(),
            &daemon_conf(base.as_deref(), filters.as_deref()),
        )?;

        let name = if program == LIBVIRTD {
            "libvirtd"
        } else {
            "virtqemud"
        };
        let program = self.program(name, program, Some(&self.layout.daemon_conf()));
        self.daemon = Some(match find_running(&dir, &SOCKETS, &program).await? {
            SocketOwner::Previous(process) => Daemon::adopt(program, process),
            SocketOwner::Foreign(socket) => return Err(DaemonError::SocketInUse(socket).into()),
            SocketOwner::None => {
                self.remove_sockets();
                Daemon::start(program).await?
            }
        });
        if Path::new(VIRTLOGD).exists() {
            self.log_daemon = self.start_log_daemon(&dir).await?;
        }
        Ok(())
    }

    /// Starts virtlogd, unless another virtlogd runs, which does as well.
    async fn start_log_daemon(&self, dir: &Path) -> Result<Option<Daemon>, DaemonError> {
        // Below a root of its own the daemon has another /etc/libvirt, with the defaults.
        let conf = Some(Path::new(pod_paths::VIRTLOGD_CONF));
        let conf = conf.filter(|conf| conf.exists() && self.layout.system_dirs().is_empty());
        let program = self.program("virtlogd", VIRTLOGD, conf);
        Ok(
            match find_running(dir, &["virtlogd-sock"], &program).await? {
                SocketOwner::Previous(process) => Some(Daemon::adopt(program, process)),
                SocketOwner::Foreign(_) => None,
                SocketOwner::None => Some(Daemon::start(program).await?),
            },
        )
    }

    fn program(&self, name: &'static str, path: &str, conf: Option<&Path>) -> DaemonProgram {
        let mounts = self.layout.system_dirs();
        for (own, _) in &mounts {
            // If this fails, the daemon's start reports the missing directory.
            drop(std::fs::create_dir_all(own));
        }
        let mut args = Vec::new();
        if let Some(conf) = conf {
            args.extend(["-f".to_owned(), conf.display().to_string()]);
        }
        if !mounts.is_empty() {
            // The only file of a system daemon outside its directories.
            args.extend([
                "-p".to_owned(),
                self.layout
                    .socket_dir()
                    .join(format!("{name}.pid"))
                    .display()
                    .to_string(),
            ]);
        }
        DaemonProgram {
            name,
            path: path.into(),
            args,
            env: self.layout.environment(),
            mounts,
            restart_delay: RESTART_DELAY,
        }
    }

    /// Waits for libvirt and connects (`virConnectOpen`). A daemon that accepts no client within
    /// `limit`, or has no socket, is killed and restarted, and gets [`CONNECT_TIMEOUT`] once more.
    ///
    /// # Errors
    /// The daemon does not start, or libvirt refuses the connection.
    pub async fn connect(&self, limit: Duration) -> Result<Connection, BackendError> {
        let Some(daemon) = &self.daemon else {
            return open(self.layout.uri(&self.layout.socket())).await;
        };
        match self.reach(daemon, limit).await {
            Err(BackendError::TimedOut { .. }) => {
                daemon.replace();
                self.remove_sockets();
                self.reach(daemon, CONNECT_TIMEOUT).await
            }
            result => result,
        }
    }

    // D-sup-3 (docs/differences.md).
    async fn reach(&self, daemon: &Daemon, limit: Duration) -> Result<Connection, BackendError> {
        let attempt = |socket: PathBuf| async move {
            let connection = open(self.layout.uri(&socket)).await?;
            if let Err(error) = connection.keep_alive(KEEPALIVE_SECONDS, KEEPALIVE_COUNT) {
                tracing::warn!(reason = %error, "A daemon that hangs will not be noticed");
            }
            if socket != self.layout.socket() {
                // `virsh` in the pod knows only one name.
                drop(std::os::unix::fs::symlink(
                    "libvirt-sock",
                    self.layout.socket(),
                ));
            }
            Ok(connection)
        };
        let dir = self.layout.socket_dir();
        let reached = timeout(limit, daemon.reach(&dir, &SOCKETS, attempt)).await;
        reached.unwrap_or_else(|_| {
            let socket = self.layout.socket();
            Err(BackendError::TimedOut { socket })
        })
    }

    /// Removes stale sockets: of a killed daemon, or left over by an earlier launcher's. The next
    /// daemon reports those that cannot be removed.
    fn remove_sockets(&self) {
        for socket in SOCKETS {
            drop(std::fs::remove_file(self.layout.socket_dir().join(socket)));
        }
    }

    pub async fn stop(&self) {
        for daemon in [&self.daemon, &self.log_daemon].into_iter().flatten() {
            daemon.stop().await;
        }
    }
}

/// Who serves one of the daemon's sockets before the daemon is started.
async fn find_running(
    dir: &Path,
    sockets: &[&str],
    program: &DaemonProgram,
) -> Result<SocketOwner, DaemonError> {
    for socket in sockets.iter().map(|name| dir.join(name)) {
        let owner = socket_owner(&socket, &program.command_line()).await;
        match owner.map_err(FileError::on("find out which process serves", &socket))? {
            SocketOwner::None => {}
            owner => return Ok(owner),
        }
    }
    Ok(SocketOwner::None)
}

async fn open(uri: String) -> Result<Connection, BackendError> {
    let opened = tokio::task::spawn_blocking(move || {
        let connection = libvirt::start_event_loop().and_then(|()| Connection::open(&uri));
        connection.map_err(|source| BackendError::Connect { uri, source })
    });
    opened.await.map_err(|_| BackendError::Panicked)?
}

/// Chooses how to run libvirt, and the daemon. Root's daemon is `qemu:///system` and any other
/// user's `qemu:///session`, whatever `--run-as-nonroot` says.
fn choose(
    wanted: LibvirtMode,
    root: bool,
    is_there: impl Fn(&Path) -> bool,
) -> Result<(DriverMode, Option<&'static str>), DaemonError> {
    let candidates: &[&'static str] = match wanted {
        LibvirtMode::Embed => return Ok((DriverMode::Embed, None)),
        LibvirtMode::Auto => &[VIRTQEMUD, LIBVIRTD],
        LibvirtMode::Virtqemud => &[VIRTQEMUD],
        LibvirtMode::Libvirtd => &[LIBVIRTD],
    };
    let mode = if root {
        DriverMode::System
    } else {
        DriverMode::Session
    };
    let found = candidates.iter().find(|path| is_there(Path::new(path)));
    let found = found
        .ok_or_else(|| DaemonError::NotInstalled(candidates.iter().map(PathBuf::from).collect()))?;
    Ok((mode, Some(found)))
}

/// Writes `qemu.conf`: the image's lines, or without an image the lines that the launcher needs,
/// then this pod's own.
fn write_qemu_conf(layout: &Layout, environment: &Environment) -> Result<(), FileError> {
    // The launcher edits the machine's own file in place, and adds no more than the reference does.
    let in_place = layout.mode == DriverMode::System && layout.root.dir() == Path::new("/");
    let base = match layout.mode {
        DriverMode::Embed => None,
        DriverMode::System | DriverMode::Session => {
            read_conf(&layout.root.path(pod_paths::SYSTEM_QEMU_CONF))
        }
    };
    let own = match layout.mode {
        DriverMode::System if in_place => Vec::new(),
        DriverMode::System => outside_an_image("\"logd\"", true),
        DriverMode::Session => vec![("stdio_handler", "\"logd\"".to_owned())],
        DriverMode::Embed => outside_an_image("\"file\"", rustix::process::geteuid().is_root()),
    };
    let conf = QemuConf {
        hugepages: Path::new(pod_paths::HUGEPAGE_DIR).exists(),
        virtiofsd_debug: environment.virtiofsd_debug,
        shared_filesystems: environment.shared_filesystems.clone(),
        more: own,
    };
    let base = base.unwrap_or_default();
    let text = conf.render(&base);
    if text == base && in_place {
        return Ok(());
    }
    write(&layout.qemu_conf(), &text)
}

/// The settings of the launcher image's file, for a machine that is not a pod. QEMU and swtpm run
/// as libvirt's user, because no other user may enter a private root. Files keep their owners, and
/// libvirt does not confine QEMU. An ordinary user's libvirt gets no users: it would try to change
/// the owner of its directories.
fn outside_an_image(stdio_handler: &str, as_root: bool) -> Vec<(&'static str, String)> {
    let owner = if as_root {
        &["user", "group", "swtpm_user", "swtpm_group"][..]
    } else {
        &[]
    };
    let rest = [
        ("stdio_handler", stdio_handler),
        ("dynamic_ownership", "0"),
        ("remember_owner", "0"),
        ("namespaces", "[ ]"),
        ("cgroup_controllers", "[ ]"),
        ("security_driver", "\"none\""),
    ];
    rest.iter()
        .copied()
        .chain(owner.iter().map(|key| (*key, "\"root\"")))
        .map(|(key, value)| (key, value.to_owned()))
        .collect()
}

/// A configuration file of the image or the machine, if readable.
fn read_conf(path: &Path) -> Option<String> {
    match small_file::read_text(path, MAX_CONF_BYTES) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(reason = %error, "{} is not used", path.display());
            None
        }
    }
}

/// Replaces a file atomically, and only if its text changes.
// D-start-4 (docs/differences.md).
fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let fail = || FileError::on("write", path);
    if small_file::read(path, MAX_CONF_BYTES).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(fail())?;
    }
    small_file::replace(path, text.as_bytes()).map_err(fail())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod::Root;
    use rustix::fs::{CWD, Mode as FileMode, mkfifoat};

    fn only(there: &'static str) -> impl Fn(&Path) -> bool {
        move |path| path == Path::new(there)
    }

    #[tokio::test]
    // D-sup-3 (docs/differences.md).
    async fn a_daemon_without_a_socket_is_not_awaited_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout {
            root: Root::new(dir.path()),
            mode: DriverMode::System,
        };
        std::fs::create_dir_all(layout.socket_dir()).unwrap();
        let daemon = Daemon::start(DaemonProgram {
            name: "daemon",
            path: "/bin/sleep".into(),
            args: vec!["600".into()],
            env: Vec::new(),
            mounts: Vec::new(),
            restart_delay: RESTART_DELAY,
        });
        let backend = Backend {
            layout,
            daemon: Some(daemon.await.unwrap()),
            log_daemon: None,
        };
        let daemon = backend.daemon.as_ref().unwrap();
        let limit = Duration::from_millis(50);
        let reached = timeout(CONNECT_TIMEOUT, backend.reach(daemon, limit)).await;
        assert!(matches!(reached, Ok(Err(BackendError::TimedOut { .. }))));
        backend.stop().await;
    }

    #[test]
    fn virtqemud_is_preferred_and_libvirtd_will_do() {
        assert_eq!(
            choose(LibvirtMode::Auto, true, |_| true).unwrap(),
            (DriverMode::System, Some(VIRTQEMUD))
        );
        assert_eq!(
            choose(LibvirtMode::Auto, false, only(LIBVIRTD)).unwrap(),
            (DriverMode::Session, Some(LIBVIRTD))
        );
    }

    #[test]
    fn daemon_that_is_asked_for_must_be_there() {
        let error = choose(LibvirtMode::Virtqemud, true, only(LIBVIRTD)).unwrap_err();
        assert!(
            error.to_string().contains(VIRTQEMUD) && !error.to_string().contains(LIBVIRTD),
            "{error}"
        );
        assert!(choose(LibvirtMode::Auto, true, |_| false).is_err());
    }

    #[test]
    fn embedded_driver_needs_nothing() {
        assert_eq!(
            choose(LibvirtMode::Embed, true, |_| false).unwrap(),
            (DriverMode::Embed, None)
        );
    }

    #[test]
    fn embedded_drivers_conf_is_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout {
            root: Root::new(dir.path()),
            mode: DriverMode::Embed,
        };
        write_qemu_conf(&layout, &Environment::default()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("etc/qemu.conf")).unwrap();
        assert!(text.contains("stdio_handler = \"file\"\n"), "{text}");
        assert!(!dir.path().join("etc/qemu.new").exists());
    }

    #[test]
    fn an_ordinary_users_qemu_runs_as_that_user() {
        let keys = |as_root| {
            outside_an_image("\"file\"", as_root)
                .into_iter()
                .map(|(key, _)| key)
                .collect::<Vec<_>>()
        };
        for key in ["user", "group", "swtpm_user", "swtpm_group"] {
            assert!(keys(true).contains(&key) && !keys(false).contains(&key));
        }
    }

    #[test]
    fn session_starts_from_the_images_file() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("etc/libvirt");
        std::fs::create_dir_all(&image).unwrap();
        std::fs::write(
            image.join("qemu.conf"),
            "stdio_handler=\"logd\"\nuser=\"qemu\"\n",
        )
        .unwrap();
        let layout = Layout {
            root: Root::new(dir.path()),
            mode: DriverMode::Session,
        };
        let environment = Environment {
            virtiofsd_debug: true,
            ..Environment::default()
        };
        write_qemu_conf(&layout, &environment).unwrap();
        let text = std::fs::read_to_string(layout.qemu_conf()).unwrap();
        assert!(
            text.starts_with("stdio_handler=\"logd\"\nuser=\"qemu\"\n")
                && text.contains("virtiofsd_debug = 1\n")
        );
        assert_eq!(text.matches("stdio_handler").count(), 1);
    }

    #[test]
    fn a_fifo_in_the_place_of_a_conf_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        for conf in ["etc/qemu.conf", "etc/qemu.new", "etc/libvirt/qemu.conf"] {
            let fifo = dir.path().join(conf);
            std::fs::create_dir_all(fifo.parent().unwrap()).unwrap();
            mkfifoat(CWD, fifo, FileMode::from_raw_mode(0o600)).unwrap();
        }
        for mode in [DriverMode::Embed, DriverMode::Session] {
            let layout = Layout {
                root: Root::new(dir.path()),
                mode,
            };
            write_qemu_conf(&layout, &Environment::default()).unwrap();
            let text = std::fs::read_to_string(layout.qemu_conf()).unwrap();
            assert!(text.contains("stdio_handler = "), "{text}");
        }
    }

    #[test]
    fn directory_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("etc"), "a file").unwrap();
        let layout = Layout {
            root: Root::new(dir.path()),
            mode: DriverMode::Embed,
        };
        let error = write_qemu_conf(&layout, &Environment::default()).unwrap_err();
        assert!(error.to_string().contains("etc/qemu.conf"), "{error}");
    }
}
