//! The notify socket has one server, which is `run`; it passes the events on to every `watch`, over another socket.

use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc};

use super::events::LauncherEvent;
use crate::files::FileError;
use os::accept::Acceptor;

/// The relay's socket, below the launcher's root.
pub const RELAY_SOCKET: &str = "/watch.sock";
/// Events that wait for a slow reader; after that it misses the oldest ones.
const MAX_QUEUED: usize = 256;

/// Passes events on to all connected clients.
#[derive(Debug)]
pub struct Relay(broadcast::Sender<String>);

impl Relay {
    /// Serves at `path`.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn serve(path: &Path) -> Result<Self, FileError> {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(FileError::on("listen on", path))?;
        let (sender, _) = broadcast::channel(MAX_QUEUED);
        let events = sender.clone();
        tokio::spawn(async move {
            let mut readers = Acceptor::new(listener, "the relay of events");
            loop {
                tokio::spawn(write_events(readers.accept().await, events.subscribe()));
            }
        });
        Ok(Self(sender))
    }

    /// Passes an event on.
    pub fn send(&self, event: &LauncherEvent) {
        // There may be no reader.
        let _ = self.0.send(format!("{}\n", event.to_json()));
    }
}

async fn write_events(mut stream: UnixStream, mut events: broadcast::Receiver<String>) {
    loop {
        match events.recv().await {
            Ok(line) if stream.write_all(line.as_bytes()).await.is_ok() => {}
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            _ => return,
        }
    }
}

/// Reads what a relay passes on, until it ends.
pub async fn read_events(stream: UnixStream, events: mpsc::Sender<LauncherEvent>) {
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(value) = serde_json::from_str(&line)
            && events.send(LauncherEvent::from_json(&value)).await.is_err()
        {
            return;
        }
    }
}
