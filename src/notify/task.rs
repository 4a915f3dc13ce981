//! Sends the events to virt-handler: connects, retries, gives up.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::link::{Link, LinkError};
use super::queue::Entry;
use os::inotify::{DirWatch, appears};

/// Pauses between retries of a notify socket that exists but does not work; a change of the file
/// ends a pause. A virt-handler that comes back to a guest that has ended listens for 10 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// Lost connections after which a notification is given up. virt-handler may restart meanwhile, but
/// a notification that breaks every connection would block all others.
// D-vm-11 (docs/differences.md).
const MAX_BREAKS: u32 = 5;

/// ```text
///   idle ──something queued, or connection lost──► connecting ──► sending ─┐
///    ▲                                                 ▲            │ ▲    │ queue empty: wait for more,
///    └───────────── nothing ever published ────────────┘◄── lost ───┘ └────┘ or for the end of the connection
/// ```
pub(super) async fn run(shared: Arc<Shared>, socket: PathBuf) {
    let mut pause = FIRST_PAUSE;
    loop {
        loop {
            let filled = shared.filled.notified();
            if shared.queue().wants_connection() {
                break;
            }
            filled.await;
        }
        let mut link = connect(&socket).await;
        tracing::info!(socket = %socket.display(), "Connected to virt-handler");
        shared.queue().connected();
        let answered = serve(&shared, &mut link).await;
        shared.queue().disconnected();
        shared.drained.notify_waiters();
        if answered {
            pause = FIRST_PAUSE;
        } else {
            tokio::time::sleep(pause).await;
            pause = LAST_PAUSE.min(pause * 2);
        }
    }
}

/// Sends until the connection ends. Returns whether virt-handler answered at all.
async fn serve(shared: &Shared, link: &mut Link) -> bool {
    let mut answered = false;
    loop {
        let filled = shared.filled.notified();
        let front = shared.queue().front();
        match front {
            Some(entry) => {
                let sent = send(shared, link, entry).await;
                shared.store_k8s_events();
                if let Err(error) = sent {
                    tracing::info!(reason = %os::logging::chain(&error), "Lost the connection to virt-handler; the current state will be sent again");
                    return answered;
                }
                answered = true;
            }
            None => {
                // States that virt-handler already had were taken off.
                shared.drained.notify_waiters();
                tokio::select! {
                    () = filled => {}
                    () = link.closed() => return answered,
                }
            }
        }
    }
}

/// Sends one entry. An error means that the connection is unusable.
async fn send(shared: &Shared, link: &mut Link, entry: Entry) -> Result<(), LinkError> {
    match link.send(entry.body).await {
        Ok(answer) => {
            // KubeVirt v1.10 takes `success: false` without a message as a success.
            if answer.success || answer.message.is_empty() {
                shared.queue().delivered(entry.id);
            } else {
                tracing::warn!(
                    reason = answer.message,
                    "virt-handler answered success=false to a notification"
                );
                shared.queue().give_up(entry.id);
            }
        }
        Err(LinkError::Refused(status)) => {
            tracing::warn!(
                reason = status.message(),
                code = ?status.code(),
                "virt-handler answered a notification with a gRPC error"
            );
            shared.queue().give_up(entry.id);
        }
        Err(LinkError::Broken(status)) => {
            if shared.queue().broke(entry.id) >= MAX_BREAKS {
                tracing::warn!(
                    reason = status.message(),
                    "The connection to virt-handler broke {MAX_BREAKS} times on a notification, which is dropped"
                );
                shared.queue().give_up(entry.id);
            }
            return Err(LinkError::Broken(status));
        }
        Err(lost) => return Err(lost),
    }
    shared.drained.notify_waiters();
    Ok(())
}

/// Connects, without a time limit.
async fn connect(socket: &Path) -> Link {
    let mut pause = FIRST_PAUSE;
    let mut reported = false;
    loop {
        // Set up before the attempt, so that a socket made meanwhile is noticed.
        let watch = watch(socket);
        let next = os::time::deadline(FIRST_PAUSE);
        let error = match Link::open(socket).await {
            Ok(link) => return link,
            Err(error) => error,
        };
        if !std::mem::replace(&mut reported, true) {
            // Usually virt-handler just does not listen yet, which is not worth an info line.
            tracing::debug!(reason = %os::logging::chain(&error), "Waiting for virt-handler");
        }
        let missing = matches!(&error, LinkError::Dial { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        if missing {
            appears(socket).await;
            pause = FIRST_PAUSE;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = LAST_PAUSE.min(pause * 2),
            () = changed(watch) => {
                pause = FIRST_PAUSE;
                // Other programs use the directory too: limits how often their changes wake this
                // task.
                tokio::time::sleep_until(next).await;
            }
        }
    }
}

fn watch(socket: &Path) -> Option<DirWatch> {
    let watch = DirWatch::new();
    watch.add(socket.parent()?).ok()?;
    (!watch.polls()).then_some(watch)
}

/// Waits for a change, forever without a watch.
async fn changed(watch: Option<DirWatch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}
