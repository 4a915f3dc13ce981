//! From the command line to a ready launcher, and on to the end.
//!
//! ```text
//!   directories ─► daemons ─► connected ─┐
//!               └► sidecars ─────────────┴► serving ─► ready ─► (STANDALONE_VMI) ─► a domain ─► QEMU ─► stop
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::backend::{Backend, CONNECT_TIMEOUT};
use super::command_socket::CommandSocket;
use super::environment::Environment;
use super::layout::DriverMode;
use super::metrics::{self, MetricsSocket};
use super::root_lock::RootLock;
use super::start_error::StartError;
use super::{console_log, libvirt_connection, libvirt_hook, orphans, qemu_log, standalone};
use crate::launcher::{Launcher, LauncherConfig, StartStep, Timeline, find_qemu};
use crate::notify::Notifier;
use api::pod_paths::{
    COMMAND_SOCKET, HOOKS_DIR, HOOKS_REPORT, K8S_EVENTS, LAUNCHER_LOCK, NOTIFY_SOCKET, PodPaths,
    STARTING_COMMAND_SOCKET,
};
use hooks::Sidecars;
use os::file_error::FileError;
use os::grpc::serving_process;
use os::signals::EndSignals;
use pod::LauncherFlags;

/// Limit for answering calls in progress at the end.
const LAST_CALLS_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of the entries read from a directory of sockets, as in the discovery of sidecars.
const MAX_SIDECAR_FILES: usize = 256;

/// Runs the pod's life, from here to a clean end.
///
/// # Errors
/// The launcher cannot go on. Daemons that it has started end with this process.
// D-start-3 (docs/differences.md).
pub async fn run_pod(mut flags: LauncherFlags, environment: Environment) -> Result<(), StartError> {
    let timeline = Timeline::begin();
    let standalone = standalone::of(&environment)?;
    if let Some(vmi) = &standalone {
        vmi.complete(&mut flags);
    }
    let mut signals = EndSignals::listen().map_err(StartError::Signals)?;
    orphans::reap().map_err(StartError::Signals)?;
    let root = flags.root.dir();
    std::fs::create_dir_all(root).map_err(FileError::on("make the root directory", root))?;
    os::logging::set_vmi(os::logging::LoggedVmi {
        name: flags.name.clone(),
        namespace: flags.namespace.clone(),
        uid: flags.uid.clone(),
    });
    {
        let _step = timeline.step(StartStep::Directories);
        pod::directories(&flags, &flags.uid)?;
    }
    let _lock = RootLock::acquire(&flags.root.path(LAUNCHER_LOCK))?;
    if flags.simulate_crash {
        return Err(StartError::Simulated);
    }
    let parts = tokio::select! {
        parts = RunningParts::start(&flags, &environment, timeline) => parts?,
        name = signals.next() => {
            tracing::info!("Received signal {name}");
            return Ok(());
        }
    };
    let result = parts.run(standalone, &mut signals).await;
    parts.end().await;
    result
}

/// The parts of the launcher that run from start to end.
pub(super) struct RunningParts {
    pub(super) backend: Arc<Backend>,
    pub(super) launcher: Arc<Launcher>,
    socket: CommandSocket,
    stop_serving: oneshot::Sender<()>,
    server: JoinHandle<()>,
    helpers: Vec<JoinHandle<()>>,
}

impl RunningParts {
    /// Starts everything, and gives the socket its final name last: this tells virt-handler and
    /// virt-controller that the pod is ready.
    async fn start(
        flags: &LauncherFlags,
        environment: &Environment,
        timeline: Arc<Timeline>,
    ) -> Result<Self, StartError> {
        libvirt_hook::install(flags)?;
        let daemons = Backend::start(flags, environment);
        let backend = Arc::new(timeline.measure(StartStep::Daemons, daemons).await?);
        let domain = format!("{}_{}", flags.namespace, flags.name);
        let has_guest = find_qemu(&backend.layout.pid_file(&domain), &domain).is_ok();
        let connect = async { Ok(backend.connect(CONNECT_TIMEOUT).await?) };
        let (connection, sidecars) = tokio::try_join!(
            timeline.measure(StartStep::Connect, connect),
            timeline.measure(StartStep::Sidecars, collect_sidecars(flags, has_guest))
        )?;
        let (notifier, notify) = Notifier::new(
            flags.shared(NOTIFY_SOCKET),
            flags.root.path(K8S_EVENTS),
            &flags.uid,
        );
        let launcher_config = LauncherConfig {
            flags: flags.clone(),
            qemu_log: Some(backend.layout.qemu_log(&domain)),
            qemu_pid_file: backend.layout.pid_file(&domain),
            tpm_dir: backend.layout.tpm_dir(),
            pod_name: environment.pod_name.clone(),
            restarts: pod::restart::Restarts::of_environment(),
            timeline: timeline.clone(),
        };
        let launcher = Launcher::new(launcher_config, connection.clone(), sidecars, notifier);
        let mut helpers = vec![
            tokio::spawn(notify),
            tokio::spawn(qemu_log::follow(backend.layout.qemu_log(&domain))),
            tokio::spawn(qemu_log::seabios(backend.layout.seabios_pipe())),
        ];
        if backend.layout.mode == DriverMode::Embed {
            let log = PodPaths::default().serial_log(&flags.uid);
            helpers.push(tokio::spawn(console_log::limit(flags.root.path(log))));
        }
        helpers.push(
            libvirt_connection::maintain(backend.clone(), connection.clone(), launcher.clone())
                .await?,
        );

        let registry = metrics::registry(backend.clone(), launcher.clone());
        if !flags.metrics_socket.is_empty() {
            let metrics = MetricsSocket::listen(flags.root.path(&flags.metrics_socket))?;
            helpers.push(tokio::spawn(metrics.serve(registry.clone())));
        }
        let (socket, listener) = CommandSocket::listen(
            flags.shared(STARTING_COMMAND_SOCKET),
            flags.shared(COMMAND_SOCKET),
        )?;
        let (stop_serving, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, launcher.clone(), registry, stopped));
        socket.publish()?;
        tracing::info!("Marked as ready");
        timeline.mark(StartStep::Ready);
        libvirt_connection::warm_up(connection);
        Ok(Self {
            backend,
            launcher,
            socket,
            stop_serving,
            server,
            helpers,
        })
    }

    /// Ends the parts: first the helpers, so that nothing connects to libvirt again, and the
    /// socket's name last.
    async fn end(self) {
        for helper in &self.helpers {
            helper.abort();
        }
        // The server stops before libvirt: virt-handler takes a lost connection for the launcher's
        // end, but retries and reports an error of libvirt.
        let _ = self.stop_serving.send(());
        // Clients that stay connected must not keep the pod.
        let _ = timeout(LAST_CALLS_TIMEOUT, self.server).await;
        self.backend.stop().await;
        self.socket.remove();
    }
}

/// Waits for the sockets of all hook sidecars (`--hook-sidecars`), at most `--qemu-timeout`. If an
/// earlier launcher has started the guest, waits only for the sidecars that still run, because a
/// dead one does not come back.
// D-sup-16 (docs/differences.md).
async fn collect_sidecars(flags: &LauncherFlags, has_guest: bool) -> Result<Sidecars, StartError> {
    let root = &flags.root;
    let dir = root.path(HOOKS_DIR);
    let mut count = usize::try_from(flags.hook_sidecars).unwrap_or(usize::MAX);
    if has_guest {
        count = count.min(running_sidecars(&dir).await);
    }
    let sidecars = Sidecars::collect(&dir, count, os::time::deadline(flags.qemu_timeout)).await?;
    Ok(sidecars.reporting_to(root.path(HOOKS_REPORT)).await)
}

/// How many sidecars listen on a socket in `dir` or in a directory of their own below it.
async fn running_sidecars(dir: &Path) -> usize {
    let entries = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .take(MAX_SIDECAR_FILES)
            .collect::<Vec<_>>()
    };
    let mut count = 0;
    for entry in entries(dir) {
        for socket in entries(&entry).iter().chain([&entry]) {
            if serving_process(socket).await.is_some() {
                count += 1;
                break;
            }
        }
    }
    count
}

async fn serve(
    listener: UnixListener,
    launcher: Arc<Launcher>,
    metrics: Arc<Registry>,
    stopped: oneshot::Receiver<()>,
) {
    let stop = async move { stopped.await.unwrap_or_default() };
    if let Err(error) = crate::cmd::serve(listener, launcher, metrics, stop).await {
        tracing::error!(reason = %os::logging::chain(&error), "The command server failed; virt-handler cannot call any more");
    }
}
