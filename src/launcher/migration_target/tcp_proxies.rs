//! Forwards unix sockets to the TCP ports of this pod's QEMU, 49152 for the memory and 49153 for the
//! disks. A source of an older KubeVirt reaches its target by TCP, but virt-handler always connects
//! to these unix sockets.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::error::TargetError;
use api::pod_paths::{MIGRATION_DISKS_PORT, MIGRATION_MEMORY_PORT, MIGRATION_SOCKET_DIR};
use api::vmi::Vmi;
use os::accept::Acceptor;
use os::lock::lock;

/// Limit of a socket's concurrent connections: QEMU makes one for each thread of the migration.
const MAX_CONNECTIONS: usize = 256;
/// The file contains `0` if the pod has IPv6.
const DISABLE_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// The served sockets.
#[derive(Default)]
pub(in crate::launcher) struct TcpProxies(Mutex<BTreeSet<PathBuf>>);

impl TcpProxies {
    /// Serves the sockets of the VMI's migration for the launcher's life, in addition to those
    /// already served. Call it on a runtime.
    ///
    /// # Errors
    /// [`TargetError::Proxy`].
    pub fn serve(&self, flags: &pod::LauncherFlags, vmi: &Vmi) -> Result<(), TargetError> {
        let dir = flags.shared(MIGRATION_SOCKET_DIR);
        let ports: &[u16] = if vmi.is_block_migration() {
            &[MIGRATION_MEMORY_PORT, MIGRATION_DISKS_PORT]
        } else {
            &[MIGRATION_MEMORY_PORT]
        };
        let loopback = loopback(Path::new(DISABLE_IPV6));
        let mut served = lock(&self.0);
        for port in ports {
            let path = dir.join(format!("{}-{port}-source.sock", vmi.metadata.uid));
            if served.contains(&path) {
                continue;
            }
            // An earlier launcher may have left its socket.
            drop(std::fs::remove_file(&path));
            let listener = UnixListener::bind(&path).map_err(|source| TargetError::Proxy {
                path: path.clone(),
                source,
            })?;
            tracing::info!(
                "Creating socketpath for unix migration/tcp {}",
                path.display()
            );
            tokio::spawn(forward(listener, SocketAddr::new(loopback, *port)));
            served.insert(path);
        }
        Ok(())
    }
}

/// The loopback address that QEMU listens on.
fn loopback(disable_ipv6: &Path) -> IpAddr {
    match std::fs::read_to_string(disable_ipv6) {
        Ok(disabled) if disabled.trim() == "0" => Ipv6Addr::LOCALHOST.into(),
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

async fn forward(listener: UnixListener, to: SocketAddr) {
    let mut connections = Acceptor::new(listener, "a migration's TCP proxy");
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Cannot fail: the semaphore is never closed.
    while let Ok(permit) = permits.clone().acquire_owned().await {
        let stream = connections.accept().await;
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = copy(stream, to).await {
                tracing::warn!(reason = %error, address = %to, "A connection of the migration has ended");
            }
        });
    }
}

/// Copies both ways until QEMU closes the connection. A source that never closes its side must not
/// keep the connection open.
async fn copy(from: UnixStream, to: SocketAddr) -> io::Result<()> {
    let (mut from_qemu, mut to_qemu) = TcpStream::connect(to).await?.into_split();
    let (mut from_source, mut to_source) = from.into_split();
    let up = async {
        tokio::io::copy(&mut from_source, &mut to_qemu).await?;
        to_qemu.shutdown().await?;
        std::future::pending().await
    };
    tokio::select! {
        failed = up => failed,
        copied = tokio::io::copy(&mut from_qemu, &mut to_source) => copied.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn what_goes_into_the_socket_comes_out_of_the_port_and_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let qemu = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(forward(listener, qemu.local_addr().unwrap()));
        let mut source = UnixStream::connect(&path).await.unwrap();
        source.write_all(b"memory").await.unwrap();
        source.shutdown().await.unwrap();
        let (mut stream, _) = qemu.accept().await.unwrap();
        let mut memory = String::new();
        stream.read_to_string(&mut memory).await.unwrap();
        stream.write_all(b"taken").await.unwrap();
        drop(stream);
        let mut answer = String::new();
        source.read_to_string(&mut answer).await.unwrap();
        assert_eq!((memory.as_str(), answer.as_str()), ("memory", "taken"));
    }

    #[tokio::test]
    async fn a_source_that_never_closes_does_not_keep_the_connection_of_a_qemu_that_has() {
        let qemu = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut source, ours) = UnixStream::pair().unwrap();
        let copied = tokio::spawn(copy(ours, qemu.local_addr().unwrap()));
        drop(qemu.accept().await.unwrap());
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), copied);
        ended.await.unwrap().unwrap().unwrap();
        assert_eq!(source.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn sockets_are_made_once_and_those_of_an_earlier_launcher_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let sockets = dir.path().join("var/run/kubevirt/migrationproxy");
        std::fs::create_dir_all(&sockets).unwrap();
        std::fs::write(sockets.join("u-1-49152-source.sock"), "").unwrap();
        let flags = pod::LauncherFlags {
            root: pod::Root::new(dir.path()),
            ..pod::LauncherFlags::default()
        };
        let vmi = |method: &str| {
            let vmi = format!(
                r#"{{"metadata":{{"uid":"u-1"}},"status":{{"migrationMethod":"{method}"}}}}"#
            );
            serde_json::from_str::<Vmi>(&vmi).unwrap()
        };
        let names = || {
            let mut names: Vec<_> = std::fs::read_dir(&sockets)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let proxies = TcpProxies::default();
        proxies.serve(&flags, &vmi("LiveMigration")).unwrap();
        assert_eq!(names(), ["u-1-49152-source.sock"]);
        proxies.serve(&flags, &vmi("BlockMigration")).unwrap();
        proxies.serve(&flags, &vmi("BlockMigration")).unwrap();
        assert_eq!(names(), ["u-1-49152-source.sock", "u-1-49153-source.sock"]);
    }

    #[test]
    fn a_pod_without_ipv6_has_the_older_address() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disable_ipv6");
        for (content, expected) in [("1\n", "127.0.0.1"), ("0\n", "::1")] {
            std::fs::write(&file, content).unwrap();
            assert_eq!(loopback(&file).to_string(), expected);
        }
        assert_eq!(
            loopback(&dir.path().join("missing")).to_string(),
            "127.0.0.1"
        );
    }
}
