//! The sockets by which the source reaches the target, as the proxies of the two virt-handlers make
//! them, and the network between them, which can fail at any moment of a migration.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::migration::SOCKET_DIR;
use super::{Pod, Vmi, give_to_qemu, run, until};

/// The calls of libvirt's protocol that a source makes on its target (`remote_protocol.x`).
const PREPARE: u32 = 303;
const FINISH: u32 = 306;
/// Where a message has its length, its procedure, and whether it is a call (0) or an answer (1).
const HEADER_BYTES: usize = 28;
/// Messages are not longer than this in libvirt.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// What becomes of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Up,
    /// Nothing gets through, and no side hears why.
    Hangs,
    /// All connections are closed.
    Lost,
}

/// A moment of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The target is to prepare for the domain.
    Prepare,
    /// It has done so, which the source does not know yet.
    Prepared,
    /// So many bytes have gone through.
    Copied(u64),
    /// All of the memory is there, and the target is to let the guest run.
    Finish,
    /// It does, which the source does not know yet.
    Finished,
    /// So many bytes have gone through since the target was to let the guest run: it runs there in
    /// post-copy.
    CopiedSinceFinish(u64),
}

/// The sockets of one migration. They work on a thread of their own until they are dropped.
pub struct MigrationProxies {
    link: Link,
    thread: Option<JoinHandle<()>>,
}

/// What all connections have in common.
#[derive(Clone)]
struct Link {
    network: Arc<watch::Sender<Network>>,
    copied: Arc<AtomicU64>,
    /// When libvirt has connected, and when QEMU has, for the memory and for the disks.
    connected: Arc<[OnceLock<Instant>; 3]>,
    /// How many bytes had gone through when the target was to let the guest run.
    copied_at_finish: Arc<OnceLock<u64>>,
    /// The network fails at this moment.
    fault: Option<(Moment, Network)>,
}

impl MigrationProxies {
    /// Makes the source's sockets and leads them to the target's.
    pub fn new(source: &Pod, target: &Pod, vmi: &Vmi) -> Self {
        Self::with(source, target, vmi, None)
    }

    /// The same over a network that fails at a moment.
    pub fn failing(source: &Pod, target: &Pod, vmi: &Vmi, when: Moment, how: Network) -> Self {
        Self::with(source, target, vmi, Some((when, how)))
    }

    fn with(source: &Pod, target: &Pod, vmi: &Vmi, fault: Option<(Moment, Network)>) -> Self {
        let uid = vmi.uid();
        let of_qemu = |port| format!("{SOCKET_DIR}/{uid}-{port}-source.sock");
        let socket = |port| (source.path(&of_qemu(port)), target.path(&of_qemu(port)));
        let libvirt = (
            source.path(&format!("{SOCKET_DIR}/{uid}-source.sock")),
            target.path("/var/run/libvirt/virtqemud-sock"),
        );
        let sockets = [libvirt, socket(49152), socket(49153)];
        give_to_qemu(&source.path(SOCKET_DIR));
        let link = Link {
            network: Arc::new(watch::Sender::new(Network::Up)),
            copied: Arc::default(),
            connected: Arc::default(),
            copied_at_finish: Arc::default(),
            fault,
        };
        let of_thread = link.clone();
        let (bound, is_bound) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            run(async move {
                let link = of_thread;
                for (number, (listen, connect)) in sockets.into_iter().enumerate() {
                    let _ = std::fs::remove_file(&listen);
                    let listener = UnixListener::bind(&listen).unwrap();
                    give_to_qemu(&listen);
                    tokio::spawn(forward(listener, connect, number, link.clone()));
                }
                bound.send(()).unwrap();
                // With the runtime go all connections.
                link.becomes(Network::Lost).await;
            });
        });
        is_bound.recv().unwrap();
        Self {
            link,
            thread: Some(thread),
        }
    }

    /// Lets nothing more through and closes no connection, as virt-handler's proxies keep the
    /// target's connections open after the source has died.
    pub fn hang(&self) {
        self.link.network.send_replace(Network::Hangs);
    }

    /// The network works again, with the connections that it has.
    pub fn recover(&self) {
        self.link.network.send_replace(Network::Up);
    }

    /// Closes all connections and lets no more through: the network is gone.
    pub fn cut(&self) {
        self.link.network.send_replace(Network::Lost);
    }

    /// Waits until the network has failed as it was to.
    pub async fn have_failed(&self) {
        let (_, how) = self.link.fault.expect("a network that fails");
        let failed = tokio::time::timeout(super::TEST_TIMEOUT, self.link.becomes(how)).await;
        assert!(
            failed.is_ok(),
            "the network has not failed: {:?}",
            self.link.fault
        );
    }

    /// When libvirt has connected, and when QEMU has for the memory.
    pub fn connected(&self) -> (Instant, Instant) {
        let [libvirt, memory, _] = &*self.link.connected;
        (*libvirt.get().unwrap(), *memory.get().unwrap())
    }

    /// How many bytes have gone through so far, both ways.
    pub fn copied(&self) -> u64 {
        self.link.copied.load(Ordering::Relaxed)
    }

    /// Waits until so many bytes have gone through.
    pub async fn until_copied(&self, bytes: u64) {
        until("the migration has copied so much", || {
            self.copied() >= bytes
        })
        .await;
    }
}

impl Drop for MigrationProxies {
    fn drop(&mut self) {
        self.cut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Link {
    async fn becomes(&self, wanted: Network) {
        // The sender lives as long as this, so it waits, and does not fail.
        let _ = self.network.subscribe().wait_for(|it| *it == wanted).await;
    }

    /// Comes to a moment; does not come back if the network fails there.
    async fn pass(&self, moment: Moment) {
        if moment == Moment::Finish {
            let _ = self
                .copied_at_finish
                .set(self.copied.load(Ordering::Relaxed));
        }
        if let Some((when, how)) = self.fault
            && when == moment
        {
            self.network.send_replace(how);
        }
        self.pass_on().await;
    }

    /// Waits until the network works.
    async fn pass_on(&self) {
        self.becomes(Network::Up).await;
    }

    async fn count(&self, length: usize) {
        let length = length as u64;
        let copied = self.copied.fetch_add(length, Ordering::Relaxed) + length;
        let Some((when, _)) = self.fault else { return };
        let is_now = match when {
            Moment::Copied(bytes) => copied >= bytes,
            Moment::CopiedSinceFinish(bytes) => {
                let at_finish = self.copied_at_finish.get();
                at_finish.is_some_and(|before| copied.saturating_sub(*before) >= bytes)
            }
            _ => false,
        };
        if is_now {
            self.pass(when).await;
        }
    }
}

/// The socket to libvirt; the others are QEMU's.
const LIBVIRT: usize = 0;

async fn forward(listener: UnixListener, to: PathBuf, number: usize, link: Link) {
    while let Ok((stream, _)) = listener.accept().await {
        link.connected[number].get_or_init(Instant::now);
        tokio::spawn(connect(stream, to.clone(), number, link.clone()));
    }
}

async fn connect(near: UnixStream, to: PathBuf, number: usize, link: Link) {
    link.pass_on().await;
    let Ok(far) = os::grpc::connect_stream(&to).await else {
        return;
    };
    let (mut near_in, mut near_out) = near.into_split();
    let (mut far_in, mut far_out) = far.into_split();
    if number == LIBVIRT {
        tokio::join!(
            copy_messages(&mut near_in, &mut far_out, &link),
            copy_messages(&mut far_in, &mut near_out, &link)
        );
    } else {
        tokio::join!(
            copy(&mut near_in, &mut far_out, &link),
            copy(&mut far_in, &mut near_out, &link)
        );
    }
}

/// Copies until one side ends, and then ends the other.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    link: &Link,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        link.count(length).await;
        link.pass_on().await;
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    link.pass_on().await;
    let _ = to.shutdown().await;
}

/// The same for libvirt's messages, one by one.
async fn copy_messages(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    link: &Link,
) {
    while let Some(message) = read_message(from).await {
        match moment(&message) {
            Some(moment) => link.pass(moment).await,
            None => link.pass_on().await,
        }
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
    link.pass_on().await;
    let _ = to.shutdown().await;
}

async fn read_message(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await.ok()?;
    let bytes = u32::from_be_bytes(length) as usize;
    assert!(
        (HEADER_BYTES..MAX_MESSAGE_BYTES).contains(&bytes),
        "{bytes}"
    );
    let mut message = length.to_vec();
    message.resize(bytes, 0);
    from.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

/// The moment that a message of libvirt's is.
fn moment(message: &[u8]) -> Option<Moment> {
    let number = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
    match (number(12), number(16)) {
        (PREPARE, 0) => Some(Moment::Prepare),
        (PREPARE, 1) => Some(Moment::Prepared),
        (FINISH, 0) => Some(Moment::Finish),
        (FINISH, 1) => Some(Moment::Finished),
        _ => None,
    }
}
