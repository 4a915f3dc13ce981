//! The guest's serial console for any number of clients: QEMU serves one at a time, and a second
//! one would see nothing.
//!
//! ```text
//!  QEMU's socket ──► history ──► every client of console.sock
//!                ├─────────────► every client of console-new.sock
//!                ├─────────────► the console's log
//!                ◄────────────── each client's input
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc};

use super::console_log;
use super::vm_dir::VmDir;
use crate::files::{FileError, listen};
use api::pod_paths::PodPaths;
use os::accept::Acceptor;

/// The console's socket, below the VM's root: a client first gets the guest's earlier output.
pub const CONSOLE_SOCKET: &str = "/console.sock";
/// A socket without the guest's earlier output: for scripts that wait for the answer to their
/// input.
pub const NEW_OUTPUT_SOCKET: &str = "/console-new.sock";
const SOCKETS: [&str; 2] = [CONSOLE_SOCKET, NEW_OUTPUT_SOCKET];
/// How much earlier output a new client gets.
const HISTORY_BYTES: usize = 64 << 10;
/// How much of the end of QEMU's log is read: all of it, as the launcher empties it before.
const MAX_QEMU_LOG_BYTES: u64 = 4 << 20;
/// Pieces of output queued for a slow client, which misses the oldest beyond that.
const MAX_QUEUED_OUTPUT: usize = 256;
/// Pieces of input queued for the guest; beyond that clients wait.
const MAX_QUEUED_INPUT: usize = 16;

/// The guest's output, in pieces.
pub type ConsoleBytes = broadcast::Receiver<Vec<u8>>;

/// Connects to the console of the guest with this UID, if it has one, and serves it in the VM's
/// directory until QEMU closes it. Returns the guest's output, first its earlier output from QEMU's
/// own log.
///
/// # Errors
/// QEMU accepts no connection, or a socket cannot be made.
pub async fn serve(uid: &str, dir: &VmDir) -> Result<Option<ConsoleBytes>, FileError> {
    let paths = PodPaths::default();
    let serial = dir.path(&paths.serial_socket(uid));
    if !serial.exists() {
        return Ok(None);
    }
    let qemu_log = dir.path(&paths.serial_log(uid));
    let before = os::small_file::tail(&qemu_log, MAX_QEMU_LOG_BYTES).unwrap_or_default();
    let guest = connect(&serial).await?;
    let [with_history, new_output] = SOCKETS.map(|socket| listen(&dir.path(socket)));
    let listeners = [with_history?, new_output?];
    let (from_guest, to_guest) = guest.into_split();
    let (output, first) = broadcast::channel(MAX_QUEUED_OUTPUT);
    let (input, typed) = mpsc::channel(MAX_QUEUED_INPUT);
    tokio::spawn(write_to_guest(to_guest, typed));
    let mut hub = Hub {
        dir: dir.clone(),
        history: VecDeque::new(),
        output,
        input,
    };
    hub.publish(&before);
    tokio::spawn(async move {
        hub.run(from_guest, (qemu_log, before.len()), listeners)
            .await;
        for socket in SOCKETS {
            let _ = std::fs::remove_file(hub.dir.path(socket));
        }
    });
    Ok(Some(first))
}

/// Connects to a console's socket.
///
/// # Errors
/// It accepts no connection.
pub async fn connect(socket: &Path) -> Result<UnixStream, FileError> {
    let stream = UnixStream::connect(socket).await;
    stream.map_err(FileError::on("connect to the console at", socket))
}

struct Hub {
    dir: VmDir,
    history: VecDeque<u8>,
    output: broadcast::Sender<Vec<u8>>,
    input: mpsc::Sender<Vec<u8>>,
}

impl Hub {
    /// With QEMU's log, and how many bytes of it were there before this client connected.
    async fn run(
        &mut self,
        mut guest: OwnedReadHalf,
        qemu_log: (PathBuf, usize),
        listeners: [UnixListener; 2],
    ) {
        let mut before_first_output = Some(qemu_log);
        let [mut with_history, mut new_output] =
            listeners.map(|listener| Acceptor::new(listener, "the console's sockets"));
        loop {
            let mut bytes = Vec::with_capacity(4096);
            tokio::select! {
                _ = guest.read_buf(&mut bytes) => match before_first_output.take() {
                    _ if bytes.is_empty() => return,
                    Some((log, before)) => self.publish_first(bytes, &guest, &log, before),
                    None => self.publish(&bytes),
                },
                stream = with_history.accept() => {
                    self.add(stream, self.history.iter().copied().collect());
                }
                stream = new_output.accept() => self.add(stream, Vec::new()),
            }
        }
    }

    /// Publishes the first output, after the guest's output while this client connected.
    fn publish_first(&mut self, mut stream: Vec<u8>, guest: &OwnedReadHalf, log: &Path, at: usize) {
        let log = os::small_file::tail(log, MAX_QEMU_LOG_BYTES).unwrap_or_default();
        let logged = log.get(at..).unwrap_or_default();
        // QEMU logs what it has written to the socket, so the log already has it.
        while stream.len() < logged.len()
            && let Ok(1..) = guest.try_read_buf(&mut stream)
        {}
        let start = console_log::start_of_stream(logged, &stream);
        self.publish(logged.get(..start).unwrap_or_default());
        self.publish(&stream);
    }

    fn publish(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.history.extend(bytes);
        let excess = self.history.len().saturating_sub(HISTORY_BYTES);
        self.history.drain(..excess);
        console_log::append(&self.dir, bytes);
        // There may be no reader.
        let _ = self.output.send(bytes.to_vec());
    }

    fn add(&self, stream: UnixStream, history: Vec<u8>) {
        let (read, write) = stream.into_split();
        tokio::spawn(write_to_client(write, history, self.output.subscribe()));
        tokio::spawn(read_from_client(read, self.input.clone()));
    }
}

async fn write_to_guest(mut guest: OwnedWriteHalf, mut typed: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = typed.recv().await {
        if guest.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn write_to_client(mut client: OwnedWriteHalf, history: Vec<u8>, mut output: ConsoleBytes) {
    let mut next = Ok(history);
    loop {
        match next {
            Ok(bytes) if client.write_all(&bytes).await.is_ok() => {}
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            _ => return,
        }
        next = output.recv().await;
    }
}

async fn read_from_client(mut client: OwnedReadHalf, input: mpsc::Sender<Vec<u8>>) {
    let mut buffer = [0; 256];
    while let Ok(length @ 1..) = client.read(&mut buffer).await {
        let typed = buffer.get(..length).unwrap_or_default().to_vec();
        if input.send(typed).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(stream: &mut UnixStream, length: usize) -> String {
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn every_client_sees_what_the_guest_has_written_and_can_type() {
        let dir = tempfile::tempdir().unwrap();
        let vm = VmDir::at(dir.path().to_owned());
        let (paths, socket) = (PodPaths::default(), vm.path(CONSOLE_SOCKET));
        assert!(serve("u", &vm).await.unwrap().is_none());
        let serial = vm.path(&paths.serial_socket("u"));
        std::fs::create_dir_all(serial.parent().unwrap()).unwrap();
        let qemu = UnixListener::bind(&serial).unwrap();
        let qemu_log = vm.path(&paths.serial_log("u"));
        let log = |text: &str| std::fs::write(&qemu_log, text).unwrap();
        log("BIOS\r\n");
        let mut output = serve("u", &vm).await.unwrap().unwrap();
        assert_eq!(output.recv().await.unwrap(), b"BIOS\r\n");
        let (mut guest, _) = qemu.accept().await.unwrap();
        // Linux has started before QEMU accepts.
        log("BIOS\r\nLinux\r\nlogin: ");
        guest.write_all(b"login: ").await.unwrap();
        assert_eq!(output.recv().await.unwrap(), b"Linux\r\n");
        assert_eq!(output.recv().await.unwrap(), b"login: ");

        let mut first = UnixStream::connect(&socket).await.unwrap();
        let mut second = UnixStream::connect(&socket).await.unwrap();
        for client in [&mut first, &mut second] {
            assert_eq!(read(client, 20).await, "BIOS\r\nLinux\r\nlogin: ");
            client.write_all(b"root").await.unwrap();
            assert_eq!(read(&mut guest, 4).await, "root");
        }
        drop(first);
        // A script sees only the answer to its input.
        let mut script = UnixStream::connect(vm.path(NEW_OUTPUT_SOCKET))
            .await
            .unwrap();
        script.write_all(b"root").await.unwrap();
        assert_eq!(read(&mut guest, 4).await, "root");
        guest.write_all(b"$ ").await.unwrap();
        for client in [&mut script, &mut second] {
            assert_eq!(read(client, 2).await, "$ ");
        }

        drop(guest);
        assert_eq!(second.read(&mut [0]).await.unwrap(), 0);
        assert!(output.recv().await.is_ok_and(|bytes| bytes == b"$ "));
        assert!(output.recv().await.is_err());
        let log = std::fs::read_to_string(&console_log::files(&vm)[0]).unwrap();
        assert_eq!(log, "BIOS\r\nLinux\r\nlogin: $ ");
        assert!(!socket.exists() && !vm.path(NEW_OUTPUT_SOCKET).exists());
    }

    #[test]
    fn the_history_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let (output, _) = broadcast::channel(1);
        let (input, _) = mpsc::channel(1);
        let mut hub = Hub {
            dir: VmDir::at(dir.path().to_owned()),
            history: VecDeque::new(),
            output,
            input,
        };
        hub.publish(&vec![b'a'; HISTORY_BYTES]);
        hub.publish(b"end");
        assert_eq!(hub.history.len(), HISTORY_BYTES);
        assert!(
            hub.history
                .iter()
                .copied()
                .collect::<Vec<_>>()
                .ends_with(b"aend")
        );
    }
}
