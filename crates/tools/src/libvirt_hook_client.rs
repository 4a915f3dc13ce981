//! `libvirt-hook-client`: libvirt runs it as the hook `qemu` in a pod. The launcher changes a
//! domain that arrives by migration for this pod; after a domain has left, virt-handler finds a
//! marker.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use api::pod_paths::{MIGRATED_MARKER, MIGRATION_HOOK_SOCKET};

const USAGE: &str = "Usage: libvirt-hook-client DOMAIN OPERATION SUBOPERATION [EXTRA] | --help

libvirt's hook \"qemu\": \"migrate begin\" lets the launcher change the domain document that comes on standard input,
\"release end migrated\" marks that the guest has left. Everything else succeeds and does nothing.";

/// The hook's name, under which libvirt calls the program.
pub const HOOK: &str = "qemu";
/// Limit for the launcher to accept the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for the launcher to answer.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest document that is forwarded: the longest string of libvirt's RPC.
const MAX_BYTES: u64 = 4 << 20;

/// Why the hook, and so the migration, fails.
#[derive(Debug, thiserror::Error)]
enum HookError {
    /// No launcher waits for the domain.
    #[error("failed to connect to migration hook socket {}", socket.display())]
    Connect {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Sending the document or reading the answer fails.
    #[error("failed to {what}")]
    Exchange {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("operation timed out after {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The launcher refuses the document; its log has the reason.
    #[error("hook processing failed on server")]
    Refused,
    #[error("failed to create marker file {}", path.display())]
    Marker {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl HookError {
    fn exchange(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Exchange { what, source }
    }
}

#[must_use]
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let words: Vec<String> = arguments
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["-h" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        [_, "migrate", "begin", ..] => begin_migration(Path::new(MIGRATION_HOOK_SOCKET)),
        [_, "release", "end", "migrated", ..] => mark_migrated(Path::new(MIGRATED_MARKER)),
        _ => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // libvirt logs it and makes it the migration's error.
            eprintln!("Hook failed: {}", os::logging::chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn begin_migration(socket: &Path) -> Result<(), HookError> {
    let mut document = Vec::new();
    io::stdin()
        .take(MAX_BYTES)
        .read_to_end(&mut document)
        .map_err(HookError::exchange("read the domain document"))?;
    let answer = crate::block_on(ask(socket, &document));
    let answer = answer.map_err(HookError::exchange("begin the exchange"))??;
    let mut stdout = io::stdout();
    let written = stdout.write_all(&answer).and_then(|()| stdout.flush());
    written.map_err(HookError::exchange("write the answer"))
}

/// The launcher's answer to the document.
async fn ask(socket: &Path, document: &[u8]) -> Result<Vec<u8>, HookError> {
    let connected = timeout(CONNECT_TIMEOUT, UnixStream::connect(socket)).await;
    let connected = connected.map_err(|_| HookError::TimedOut(CONNECT_TIMEOUT))?;
    let stream = connected.map_err(|source| HookError::Connect {
        socket: socket.into(),
        source,
    })?;
    let exchanged = timeout(EXCHANGE_TIMEOUT, exchange(stream, document)).await;
    exchanged.unwrap_or(Err(HookError::TimedOut(EXCHANGE_TIMEOUT)))
}

/// Like the launcher, the reference's server answers when the document ends, not when the client
/// shuts down its half of the connection.
async fn exchange(mut stream: UnixStream, document: &[u8]) -> Result<Vec<u8>, HookError> {
    let sent = stream.write_all(document).await;
    sent.map_err(HookError::exchange("send data"))?;
    let mut answer = Vec::new();
    let mut limited = stream.take(MAX_BYTES);
    let read = limited.read_to_end(&mut answer).await;
    read.map_err(HookError::exchange("read response"))?;
    if answer.is_empty() {
        return Err(HookError::Refused);
    }
    Ok(answer)
}

fn mark_migrated(marker: &Path) -> Result<(), HookError> {
    // Readable for virt-handler, whatever the daemon's umask.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    let made = std::fs::File::create(marker).and_then(|file| file.set_permissions(readable));
    made.map_err(|source| HookError::Marker {
        path: marker.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    async fn asked(serve: impl AsyncFnOnce(UnixStream)) -> Result<Vec<u8>, HookError> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream).await;
        };
        tokio::join!(ask(&socket, b"<domain/>"), server).0
    }

    #[tokio::test]
    async fn the_answer_comes_though_this_half_does_not_end() {
        let answer = asked(async |mut stream| {
            let mut document = [0; 9];
            stream.read_exact(&mut document).await.unwrap();
            assert_eq!(&document, b"<domain/>");
            stream.write_all(b"<domain a=''/>").await.unwrap();
        })
        .await;
        assert_eq!(answer.unwrap(), b"<domain a=''/>");
    }

    #[tokio::test]
    async fn no_answer_is_a_failure() {
        let answer = asked(async |mut stream| {
            let mut document = [0; 9];
            stream.read_exact(&mut document).await.unwrap();
        })
        .await;
        assert!(matches!(answer, Err(HookError::Refused)));
    }

    #[test]
    fn a_marker_is_made_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("migrated");
        mark_migrated(&marker).unwrap();
        mark_migrated(&marker).unwrap();
        assert!(marker.exists());
        assert!(mark_migrated(&dir.path().join("missing/migrated")).is_err());
    }
}
