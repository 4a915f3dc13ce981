//! Keeps a connection to libvirt for the pod's life: receives its events and reconnects after a
//! loss. [`super::daemons`] starts virtqemud and restarts it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Sender, channel};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use super::backend::{Backend, BackendError, CONNECT_TIMEOUT, CONNECT_TIMEOUT_IN_JOB};
use crate::launcher::{JobKind, Launcher, Phase};
use libvirt::{self, CloseReason, Connection, Event, Registration};

/// Delay between attempts to reconnect if libvirt refuses at once.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Passes libvirt's events to the launcher, and reconnects whenever the connection closes.
///
/// # Errors
/// libvirt does not register the event callbacks.
pub async fn maintain(
    backend: Arc<Backend>,
    connection: Connection,
    launcher: Arc<Launcher>,
) -> Result<JoinHandle<()>, BackendError> {
    // One loss in the channel is enough: it also stands for those that follow.
    let (lost, mut losses) = channel(1);
    let mut registered = register(connection, launcher.clone(), lost.clone()).await?;
    // Reads the domain for the first time; later changes come as events.
    launcher.refresh();
    Ok(tokio::spawn(async move {
        loop {
            tokio::select! {
                reason = losses.recv() => {
                    let Some(reason) = reason else { return };
                    tracing::warn!(?reason, "The connection to libvirt is closed; reconnecting");
                    drop(registered);
                    registered = reconnect(&backend, &launcher, &lost).await;
                }
                () = launcher.libvirt.daemon_suspected() => check_daemon(&backend, &launcher).await,
            }
        }
    }))
}

/// Tries to connect: [`Backend::connect`] replaces a daemon that hangs (accepts no client), which
/// closes the old connection. libvirt's keepalive should do that, but if two calls wait for an
/// answer, the second never learns that the connection closed (libvirt 11.3: the thread that takes
/// over the socket from the first polls it without a limit).
// D-sup-3 (docs/differences.md).
async fn check_daemon(backend: &Backend, launcher: &Launcher) {
    if backend.daemon.is_none() {
        return;
    }
    match backend.connect(patience(launcher)).await {
        // Closing a connection calls libvirt, which may block.
        Ok(connection) => drop(spawn_blocking(move || drop(connection))),
        Err(error) => {
            tracing::warn!(reason = %os::logging::chain(&error), "libvirt is slow, and cannot be reached");
        }
    }
}

/// How long libvirt's daemon may accept no client before it is replaced.
fn patience(launcher: &Launcher) -> Duration {
    let limit = {
        let state = launcher.vm.subscribe();
        let vm = state.borrow();
        connect_timeout(vm.phase, &vm.jobs)
    };
    if limit > CONNECT_TIMEOUT {
        let seconds = limit.as_secs();
        tracing::info!(
            seconds,
            "libvirt's daemon has more time to answer: its work is under way"
        );
    }
    limit
}

fn connect_timeout(phase: Phase, jobs: &[JobKind]) -> Duration {
    let ends_with_daemon = |job: &JobKind| {
        use JobKind::{Backup, MemoryDump, MigrationIn, MigrationOut};
        matches!(job, Backup | MemoryDump | MigrationIn | MigrationOut)
    };
    if phase == Phase::MigratingIn || jobs.iter().any(ends_with_daemon) {
        CONNECT_TIMEOUT_IN_JOB
    } else {
        CONNECT_TIMEOUT
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
            let connection = backend.connect(patience(launcher)).await?;
            let registered = register(connection.clone(), launcher.clone(), lost.clone()).await?;
            Ok::<_, BackendError>((connection, registered))
        };
        match attempt.await {
            Ok((connection, registered)) => {
                launcher.reconnected(connection);
                return registered;
            }
            Err(error) => {
                tracing::error!(reason = %os::logging::chain(&error), "libvirt cannot be reached")
            }
        }
        sleep(RETRY_DELAY).await;
    }
}

/// A registration for events. Ending it calls libvirt, so a blocking thread does that: a daemon
/// that hangs must never block the runtime.
struct Registered(Option<Registration>);

impl Drop for Registered {
    fn drop(&mut self) {
        let registration = self.0.take();
        drop(spawn_blocking(move || drop(registration)));
    }
}

/// Registers for all events (`virConnectDomainEventRegisterAny`). They arrive on libvirt's own
/// thread, which must not wait.
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

/// Lets libvirt probe QEMU early (`virConnectGetDomainCapabilities`): the first start then finds
/// the result in libvirt's cache.
// D-start-2 (docs/differences.md).
pub fn warm_up(connection: Connection) {
    spawn_blocking(move || {
        let start = Instant::now();
        // A probe covers the whole emulator, whatever machine type is asked for.
        match connection
            .warm_up("qemu")
            .and_then(|_| connection.qemu_version())
        {
            Ok(_) => tracing::info!(
                milliseconds = os::time::milliseconds(start.elapsed()),
                "QEMU's capabilities are known"
            ),
            // The first start reports the error to virt-handler.
            Err(error) => {
                tracing::warn!(reason = %error, "QEMU's capabilities cannot be read ahead");
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_has_more_time_while_a_job_would_end_with_it() {
        assert_eq!(connect_timeout(Phase::Running, &[]), CONNECT_TIMEOUT);
        let starts = connect_timeout(Phase::Starting, &[JobKind::Start]);
        assert_eq!(starts, CONNECT_TIMEOUT);
        for job in [JobKind::MigrationOut, JobKind::Backup, JobKind::MemoryDump] {
            let limit = connect_timeout(Phase::Running, &[job]);
            assert_eq!(limit, CONNECT_TIMEOUT_IN_JOB);
        }
        let arrives = connect_timeout(Phase::MigratingIn, &[]);
        assert_eq!(arrives, CONNECT_TIMEOUT_IN_JOB);
    }
}
