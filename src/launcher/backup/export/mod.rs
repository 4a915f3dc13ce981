//! Serves a pull backup: the launcher connects to the server that reads the backup, serves the
//! disks over that connection, and reconnects until the backup has ended.
//!
//! ```text
//!   QEMU's NBD server ◄── unix socket ── service ◄── gRPC ── CONNECT over TLS ──► the server that reads
//! ```

mod extents;
mod service;
mod tunnel;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_stream::StreamExt as _;
use tonic::service::Routes;

use super::Backup;
use super::error::BackupError;
use api::pod_paths::BACKUP_SOCKET;
use convert::backup::{BackupId, Export};
use os::grpc::{self, Kept};
use os::lock::lock;
use tunnel::{Tunnel, TunnelError};

/// First and longest delay before the next connection.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// After a connection of at least this duration, the delays start again with the first one.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Time limit for calls in progress after the backup's end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of concurrent calls; each has less than 1 MiB of the disk in memory, and ends with its
/// stream.
const MAX_CALLS: u32 = 32;

/// A backup being served; dropping this stops it.
pub(super) struct ServedBackup {
    id: BackupId,
    _stop: watch::Sender<()>,
}

impl Backup {
    /// Lets a server read the backup.
    ///
    /// # Errors
    /// The backup is not in progress, or QEMU does not serve it yet.
    pub(super) fn export(&self, export: Export) -> Result<(), BackupError> {
        self.check_running(&export.id)?;
        let socket = self.root.path(BACKUP_SOCKET);
        if let Err(error) = std::fs::metadata(&socket) {
            return Err(BackupError::NotServed(socket, error));
        }
        let mut served = lock(&self.served);
        if served.as_ref().is_some_and(|served| served.id == export.id) {
            return Ok(());
        }
        let (stop, stopped) = watch::channel(());
        let next = ServedBackup {
            id: export.id.clone(),
            _stop: stop,
        };
        // Dropping the previous export stops it.
        *served = Some(next);
        tokio::spawn(run(export, socket, stopped));
        Ok(())
    }
}

/// Serves until the sender of `stop` is dropped.
async fn run(export: Export, socket: PathBuf, mut stop: watch::Receiver<()>) {
    let (server, mut delay) = (export.server_addr.as_str(), RETRY_DELAYS.0);
    // Nothing is ever sent on `stop`; it only shows whether the sender still exists.
    while stop.has_changed().is_ok() {
        let began = Instant::now();
        let connected = tokio::select! {
            connected = tunnel::connect(&export) => connected,
            _ = stop.changed() => return,
        };
        let served = match connected {
            Ok(tunnel) => serve(tunnel, server, &socket, stop.clone()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            tracing::warn!(server, reason = %os::logging::chain(&error), "backup tunnel connection lost, retrying");
        }
        if began.elapsed() >= STABLE_AFTER {
            delay = RETRY_DELAYS.0;
        }
        tokio::select! {
            () = sleep(with_jitter(delay)) => {}
            _ = stop.changed() => {}
        }
        delay = delay.saturating_mul(2).min(RETRY_DELAYS.1);
    }
}

/// Serves one connection. Once `stop` closes, calls in progress have [`STOP_TIMEOUT`] to finish.
async fn serve(
    tunnel: Tunnel,
    server: &str,
    socket: &Path,
    mut stop: watch::Receiver<()>,
) -> Result<(), TunnelError> {
    tracing::info!(server, "backup tunnel: connected via CONNECT, serving NBD");
    let _driver = tunnel.driver;
    let (open, mut broken) = watch::channel(());
    // tonic closes the connections that it has when no more can come.
    let connection = tokio_stream::once(Ok(Kept(tunnel.stream, open)));
    let connections = connection.chain(tokio_stream::pending());
    let services = Routes::new(service::server(socket.to_owned()));
    let mut stopped = stop.clone();
    let served = grpc::serve_connections(services, MAX_CALLS, connections, async move {
        tokio::select! {
            _ = stopped.changed() => {}
            _ = broken.changed() => {}
        }
    });
    tokio::select! {
        served = served => Ok(served?),
        () = async {
            let _ = stop.changed().await;
            sleep(STOP_TIMEOUT).await;
        } => Ok(()),
    }
}

/// Adds up to a tenth, so that not all launchers reconnect at once to a server that was away.
fn with_jitter(delay: Duration) -> Duration {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let thousandths = since_epoch.unwrap_or_default().subsec_millis();
    delay.saturating_add(delay.saturating_mul(thousandths) / 10_000)
}
