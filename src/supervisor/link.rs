//! The connection to libvirt over the pod's life: its events, and another connection when it is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use super::backend::{Backend, BackendError};
use crate::launcher::Launcher;
use libvirt::{self, Connection, Event, Registration};

/// Between two attempts to connect again, where libvirt refuses at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Passes libvirt's events to the launcher, and connects again each time that the connection closes.
///
/// # Errors
/// If libvirt does not register for events.
pub async fn keep(
    backend: Arc<Backend>,
    connection: Connection,
    launcher: Arc<Launcher>,
) -> Result<JoinHandle<()>, BackendError> {
    // A loss that is still in the channel stands for those that follow it.
    let (lost, mut losses) = channel(1);
    let mut registration = listen(connection, launcher.clone(), lost.clone()).await?;
    // What has happened before there was anybody to hear of it.
    launcher.refresh();
    Ok(tokio::spawn(async move {
        while let Some(reason) = losses.recv().await {
            tracing::warn!(
                reason,
                "the connection to libvirt is closed; connecting again"
            );
            // Dropping it talks to libvirt.
            let _ = spawn_blocking(move || drop(registration)).await;
            registration = connect_again(&backend, &launcher, &lost).await;
        }
    }))
}

// D-sup-2 (docs/differences.md).
async fn connect_again(
    backend: &Backend,
    launcher: &Arc<Launcher>,
    lost: &Sender<i32>,
) -> Registration {
    loop {
        let attempt = async {
            let connection = backend.connect().await?;
            let registration = listen(connection.clone(), launcher.clone(), lost.clone()).await?;
            Ok::<_, BackendError>((connection, registration))
        };
        match attempt.await {
            Ok((connection, registration)) => {
                launcher.reconnected(connection);
                return registration;
            }
            Err(error) => tracing::error!(
                reason = &error as &dyn std::error::Error,
                "libvirt can't be reached"
            ),
        }
        sleep(PAUSE).await;
    }
}

/// Registers for all events. They go on from libvirt's own thread, which must not wait.
async fn listen(
    connection: Connection,
    launcher: Arc<Launcher>,
    lost: Sender<i32>,
) -> Result<Registration, BackendError> {
    let register = move || {
        connection.events(move |event| match event {
            Event::Closed { reason } => drop(lost.try_send(reason)),
            event => launcher.handle_event(&event),
        })
    };
    spawn_blocking(register)
        .await
        .map_err(|_| BackendError::Cut)?
        .map_err(BackendError::Events)
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
            Err(error) => report(&error),
        }
    });
}

/// The first start will say it again, to whom it concerns.
fn report(error: &libvirt::Error) {
    tracing::warn!(reason = %error, "QEMU's capabilities can't be read ahead");
}
