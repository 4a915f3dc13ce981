//! The connection to libvirt over the pod's life: its events, and a new connection when it is lost. [`super::daemons`]
//! starts virtqemud and restarts it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use super::backend::{Backend, BackendError};
use crate::launcher::Launcher;
use libvirt::{self, CloseReason, Connection, Event, Registration};

/// Between two attempts to reconnect, where libvirt refuses at once.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Passes libvirt's events to the launcher, and reconnects whenever the connection is closed.
///
/// # Errors
/// If libvirt does not register for events.
pub async fn maintain(
    backend: Arc<Backend>,
    connection: Connection,
    launcher: Arc<Launcher>,
) -> Result<JoinHandle<()>, BackendError> {
    // A loss that is still in the channel stands for those that follow it.
    let (lost, mut losses) = channel(1);
    let mut registered = register(connection, launcher.clone(), lost.clone()).await?;
    // The first reading of the domain: what happens from now on is an event.
    launcher.refresh();
    Ok(tokio::spawn(async move {
        loop {
            tokio::select! {
                reason = losses.recv() => {
                    let Some(reason) = reason else { return };
                    tracing::warn!(?reason, "the connection to libvirt is closed; reconnecting");
                    drop(registered);
                    registered = reconnect(&backend, &launcher, &lost).await;
                }
                () = launcher.slow_libvirt_call() => check_daemon(&backend).await,
            }
        }
    }))
}

/// A daemon that lets no client in is killed, which closes the connection. libvirt's keep-alive should do that, but where two
/// calls wait for an answer, the second one is never told that the connection is closed (libvirt 11.3: the thread that gets
/// the socket from the first one polls it without a limit).
// D-sup-3 (docs/differences.md).
async fn check_daemon(backend: &Backend) {
    if !backend.has_daemon() {
        return;
    }
    match backend.connect().await {
        // Closing it is a call of libvirt's.
        Ok(connection) => drop(spawn_blocking(move || drop(connection))),
        Err(error) => {
            tracing::warn!(
                reason = &error as &dyn std::error::Error,
                "libvirt is slow, and cannot be reached"
            );
        }
    }
}

// D-sup-2 (docs/differences.md).
async fn reconnect(
    backend: &Backend,
    launcher: &Arc<Launcher>,
    lost: &Sender<CloseReason>,
) -> Registered {
    loop {
        let attempt = async {
            let connection = backend.connect().await?;
            let registered = register(connection.clone(), launcher.clone(), lost.clone()).await?;
            Ok::<_, BackendError>((connection, registered))
        };
        match attempt.await {
            Ok((connection, registered)) => {
                launcher.reconnected(connection);
                return registered;
            }
            Err(error) => tracing::error!(
                reason = &error as &dyn std::error::Error,
                "libvirt can't be reached"
            ),
        }
        sleep(RETRY_DELAY).await;
    }
}

/// A registration for events. To end it is a call of libvirt's, so that is done on a blocking thread: a daemon that hangs
/// must not keep the runtime's, neither in the pod's life nor at its end.
struct Registered(Option<Registration>);

impl Drop for Registered {
    fn drop(&mut self) {
        let registration = self.0.take();
        drop(spawn_blocking(move || drop(registration)));
    }
}

/// Registers for all events. They come on libvirt's own thread, which must not wait.
async fn register(
    connection: Connection,
    launcher: Arc<Launcher>,
    lost: Sender<CloseReason>,
) -> Result<Registered, BackendError> {
    let events = move || {
        connection.events(move |event| match event {
            Event::Closed { reason } => drop(lost.try_send(reason)),
            event => launcher.handle_event(&event),
        })
    };
    let registration = spawn_blocking(events)
        .await
        .map_err(|_| BackendError::Panicked)?
        .map_err(BackendError::Events)?;
    Ok(Registered(Some(registration)))
}

/// Lets libvirt probe QEMU while nothing is asked of it yet: the first start finds the answers in its cache.
// D-start-2 (docs/differences.md).
pub fn warm_up(connection: Connection) {
    spawn_blocking(move || {
        let start = Instant::now();
        // Each emulator is probed as a whole, whatever the type that is asked for.
        match connection
            .warm_up("qemu")
            .and_then(|_| connection.qemu_version())
        {
            Ok(_) => tracing::info!(
                milliseconds = os::time::milliseconds(start.elapsed()),
                "QEMU's capabilities are known"
            ),
            // The first start will report it to virt-handler.
            Err(error) => {
                tracing::warn!(reason = %error, "QEMU's capabilities can't be read ahead");
            }
        }
    });
}
