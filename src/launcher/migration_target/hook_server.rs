//! The server to which libvirt's hook sends the arriving domain.
//!
//! ```text
//!   source's virtqemud ─► target's virtqemud ─► libvirt-hook-client ─► this socket ─► convert::premigration ─► back
//! ```
//!
//! The server answers one document and ends. It closes a connection without a usable document,
//! which makes that migration fail; the next migration asks again. A silent one blocks nobody.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::error::{HookServerError, TargetError};
use api::pod_paths::MIGRATION_HOOK_SOCKET;
use api::vmi::Vmi;
use convert::Context;
use convert::premigration::{Rewrites, rewrite};
use domain::xml::MAX_BYTES;
use os::accept::Acceptor;
use os::lock::lock;

/// Time limit for a client to send the document and read the answer; the client has the same limit.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of concurrent connections: another one ends the oldest. Each may hold [`MAX_BYTES`] in
/// memory.
const MAX_EXCHANGES: usize = 8;
/// The turn to change a document, which goes on when its connection has ended.
static REWRITE: Semaphore = Semaphore::const_new(1);
const DOCUMENT_END: &[u8] = b"</domain>";
/// Limit of white space after the document's end.
const MAX_WHITE_SPACE: usize = 64;

/// The VMI and context that the arriving domain is changed for.
struct Target {
    vmi: Arc<Vmi>,
    context: Context,
    rewrites: Rewrites,
}

/// The server; `None` until the first preparation.
#[derive(Default)]
pub(in crate::launcher) struct HookServer(Mutex<Option<Arc<Mutex<Target>>>>);

impl HookServer {
    /// Starts the server, or gives it a newer VMI and context if libvirt has not asked yet. Call it
    /// on a runtime.
    ///
    /// # Errors
    /// [`TargetError::HookServer`].
    pub fn serve(
        &self,
        flags: &pod::LauncherFlags,
        vmi: Arc<Vmi>,
        context: Context,
    ) -> Result<(), TargetError> {
        let target = Target {
            vmi,
            context,
            rewrites: Rewrites {
                upgrade_ordinal_interfaces: flags.upgrade_ordinal_ifaces,
                vgpu: flags.vgpu_dedicated_hook,
            },
        };
        let mut served = lock(&self.0);
        if let Some(served) = &*served {
            *lock(served) = target;
            return Ok(());
        }
        let path = flags.root.path(MIGRATION_HOOK_SOCKET);
        let listener = listen(&path).map_err(|source| TargetError::HookServer {
            path: path.clone(),
            source,
        })?;
        let target = Arc::new(Mutex::new(target));
        *served = Some(target.clone());
        tracing::info!("Started premigration hook server on {}", path.display());
        tokio::spawn(async move {
            run(listener, &target).await;
            drop(std::fs::remove_file(&path));
        });
        Ok(())
    }
}

/// Listens on the socket. Replaces a socket that an earlier launcher has left.
fn listen(path: &PathBuf) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Serves until one exchange has succeeded, which ends the others.
// D-mig-25 (docs/differences.md).
async fn run(listener: UnixListener, target: &Arc<Mutex<Target>>) {
    let mut connections = Acceptor::new(listener, "the migration hook socket");
    let mut exchanges = JoinSet::new();
    let mut oldest_first = VecDeque::new();
    loop {
        tokio::select! {
            stream = connections.accept() => {
                let exchange = timeout(EXCHANGE_TIMEOUT, exchange(stream, target.clone()));
                oldest_first.push_back(exchanges.spawn(exchange));
                if oldest_first.len() > MAX_EXCHANGES
                    && let Some(oldest) = oldest_first.pop_front()
                {
                    oldest.abort();
                }
            }
            Some(ended) = exchanges.join_next() => match ended {
                Ok(Ok(Ok(()))) => {
                    return tracing::info!("Hook Server successfully processed and returned XML");
                }
                Ok(Ok(Err(error))) => log_failure(&error),
                Ok(Err(_)) => log_failure(&HookServerError::TimedOut {
                    seconds: EXCHANGE_TIMEOUT.as_secs(),
                }),
                Err(error) if error.is_cancelled() => {}
                Err(_) => log_failure(&HookServerError::Panicked),
            },
        }
    }
}

fn log_failure(error: &HookServerError) {
    tracing::error!(reason = %os::logging::chain(error), "Hook processing failed");
}

async fn exchange(
    mut stream: UnixStream,
    target: Arc<Mutex<Target>>,
) -> Result<(), HookServerError> {
    let xml = read_document(&mut stream).await?;
    let turn = REWRITE.acquire().await;
    let change = move || {
        let _turn = turn;
        let target = lock(&target);
        rewrite(&xml, &target.vmi, &target.context, target.rewrites)
    };
    let answer = spawn_blocking(change).await;
    let answer = answer.map_err(|_| HookServerError::Panicked)??;
    stream.write_all(answer.as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

/// Reads to the end of the root element: the client waits for the answer without shutting down its
/// half of the connection.
async fn read_document(
    stream: &mut (impl AsyncReadExt + Unpin),
) -> Result<String, HookServerError> {
    let mut document = Vec::new();
    loop {
        let incomplete = HookServerError::Incomplete {
            bytes: document.len(),
        };
        if stream.read_buf(&mut document).await? == 0 || document.len() > MAX_BYTES {
            return Err(incomplete);
        }
        if is_whole(&document) {
            return String::from_utf8(document).map_err(|_| incomplete);
        }
    }
}

/// Whether the document is complete. Checks only its end, because each read calls this.
fn is_whole(document: &[u8]) -> bool {
    let looked_at = DOCUMENT_END.len().saturating_add(MAX_WHITE_SPACE);
    let end = document.len().saturating_sub(looked_at);
    let end = document.get(end..).unwrap_or_default();
    end.trim_ascii_end().ends_with(DOCUMENT_END)
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='kvm'><name>ns1_vm1</name><devices><disk type='file'><source file='/pods/ns1/disk.img'/></disk></devices></domain>\n";

    fn vmi(target_namespace: &str) -> Arc<Vmi> {
        let state = format!(r#"{{"targetState":{{"domainNamespace":"{target_namespace}"}}}}"#);
        let vmi = format!(
            r#"{{"metadata":{{"namespace":"ns1","name":"vm1"}},"status":{{"migrationState":{state}}}}}"#
        );
        Arc::new(serde_json::from_str(&vmi).unwrap())
    }

    struct Bed {
        dir: tempfile::TempDir,
        server: HookServer,
    }

    impl Bed {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join("var/run/kubevirt")).unwrap();
            Self {
                dir,
                server: HookServer::default(),
            }
        }

        fn serve(&self, target_namespace: &str) {
            let flags = pod::LauncherFlags {
                root: pod::Root::new(self.dir.path()),
                ..pod::LauncherFlags::default()
            };
            self.server
                .serve(&flags, vmi(target_namespace), Context::default())
                .unwrap();
        }

        fn socket(&self) -> PathBuf {
            self.dir
                .path()
                .join("var/run/kubevirt/migration-hook-socket")
        }

        /// Returns the answer to a client that does not shut down its half of the connection.
        async fn ask(&self, chunks: &[&str]) -> String {
            let mut stream = UnixStream::connect(self.socket()).await.unwrap();
            for chunk in chunks {
                stream.write_all(chunk.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }
    }

    #[tokio::test]
    async fn the_newest_target_answers_a_document_in_pieces_and_the_server_ends() {
        let bed = Bed::new();
        bed.serve("ns2");
        bed.serve("ns3");
        let (first, second) = XML.split_at(40);
        let answer = bed.ask(&[first, second]).await;
        assert!(answer.contains(r#"file="/pods/ns3/disk.img""#), "{answer}");
        while bed.socket().exists() {
            tokio::task::yield_now().await;
        }
        // Another preparation now is not an error.
        bed.serve("ns4");
        assert!(!bed.socket().exists());
    }

    #[tokio::test]
    async fn a_document_that_cannot_be_used_gets_no_answer_and_the_next_one_does() {
        let bed = Bed::new();
        bed.serve("ns2");
        assert_eq!(bed.ask(&["<domain><a></domain>"]).await, "");
        let stream = UnixStream::connect(bed.socket()).await.unwrap();
        drop(stream);
        assert!(bed.ask(&[XML]).await.contains("/pods/ns2/"));
    }

    #[tokio::test]
    async fn connections_that_bring_nothing_keep_no_document_waiting() {
        let bed = Bed::new();
        bed.serve("ns2");
        let mut held = Vec::new();
        let unfinished = XML.trim_end().trim_end_matches('>');
        for sent in ["", "<domain>", unfinished].repeat(MAX_EXCHANGES) {
            let mut stream = UnixStream::connect(bed.socket()).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            held.push(stream);
        }
        let answer = timeout(EXCHANGE_TIMEOUT / 2, bed.ask(&[XML])).await;
        let answer = answer.expect("a silent connection was waited for");
        assert!(answer.contains("/pods/ns2/"), "{answer}");
        for mut stream in held {
            assert_eq!(stream.read(&mut [0]).await.unwrap_or_default(), 0);
        }
    }

    #[tokio::test]
    async fn a_document_that_does_not_end_is_read_up_to_the_limit() {
        let bed = Bed::new();
        bed.serve("ns2");
        for piece in ["<domain>", " ", "\u{0}", "</domain><"] {
            let endless = piece.repeat(MAX_BYTES / piece.len() + 64);
            let mut stream = UnixStream::connect(bed.socket()).await.unwrap();
            // The server closes the connection before the client has sent everything.
            drop(stream.write_all(endless.as_bytes()).await);
            assert_eq!(stream.read(&mut [0]).await.unwrap_or_default(), 0);
        }
        assert!(bed.ask(&[XML]).await.contains("/pods/ns2/"));
    }

    #[tokio::test]
    async fn a_socket_of_an_earlier_launcher_is_replaced() {
        let bed = Bed::new();
        drop(std::os::unix::net::UnixListener::bind(bed.socket()).unwrap());
        bed.serve("ns2");
        assert!(bed.ask(&[XML]).await.contains("/pods/ns2/"));
    }
}
