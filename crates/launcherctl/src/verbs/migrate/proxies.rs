//! The sockets through which the source reaches the target, as the virt-handlers of two nodes make
//! them.
//!
//! ```text
//!  pods:            source's libvirt, QEMU ─► sockets in the source's pod ─► this program ─► sockets in the target's pod
//!  roots of their   source's libvirt ────────► socket below its root ──────► this program ─► the target's libvirt
//!  own:             source's QEMU ───────────► socket below its root, which the target's QEMU has made
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use crate::error::{CtlError, TextError, fail};
use crate::files::{FileError, MAX_SOCKET_PATH_BYTES};
use crate::host::registry::VmDir;
use api::pod_paths::{
    MIGRATION_DISKS_PORT, MIGRATION_MEMORY_PORT, MIGRATION_SOCKET_DIR, PodPaths, VIRTQEMUD_SOCKET,
};
use os::accept::Acceptor;

const PORTS: [u16; 2] = [MIGRATION_MEMORY_PORT, MIGRATION_DISKS_PORT];
/// Limit of one socket's concurrent connections.
const MAX_CONNECTIONS: usize = 256;

/// The sockets, removed on drop.
#[derive(Debug, Default)]
pub struct Proxies {
    servers: JoinSet<()>,
    sockets: Vec<PathBuf>,
}

impl Proxies {
    /// Makes the sockets in the source's pod or below its root, which lead to the target's.
    /// `share_paths` is for pods, in which QEMU's sockets have the same paths.
    ///
    /// # Errors
    /// A socket cannot be made, or its path is too long.
    pub fn serve(
        source: &VmDir,
        target: &VmDir,
        uid: &str,
        share_paths: bool,
    ) -> Result<Self, CtlError> {
        let dir = source.path(&PodPaths::default().shared(MIGRATION_SOCKET_DIR));
        let owner = source.cmd_socket();
        make_dir(&dir, &owner)?;
        let mut proxies = Self::default();
        let libvirt = format!("{uid}-source.sock");
        proxies.add(&dir, &libvirt, &owner, target.path(VIRTQEMUD_SOCKET))?;
        for port in PORTS {
            let name = format!("{uid}-{port}-source.sock");
            if share_paths {
                let target_dir = target.path(&PodPaths::default().shared(MIGRATION_SOCKET_DIR));
                proxies.add(&dir, &name, &owner, target_dir.join(&name))?;
            } else {
                check_length(&dir.join(&name))?;
                proxies.sockets.push(dir.join(name));
            }
        }
        Ok(proxies)
    }

    fn add(&mut self, dir: &Path, name: &str, owner: &Path, to: PathBuf) -> Result<(), FileError> {
        let path = dir.join(name);
        let listener = bind(dir, name)
            .and_then(|listener| give_to_owner_of(owner, &path).map(|()| listener))
            .map_err(FileError::on("make the socket", &path))?;
        self.sockets.push(path);
        self.servers.spawn(forward(listener, to));
        Ok(())
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// virt-handler makes the directory for the pod's user.
fn make_dir(dir: &Path, owner: &Path) -> Result<(), FileError> {
    if dir.is_dir() {
        return Ok(());
    }
    let made = std::fs::create_dir_all(dir).and_then(|()| give_to_owner_of(owner, dir));
    made.map_err(FileError::on("make the socket", dir))
}

/// Listens, even if the path is longer than an address.
fn bind(dir: &Path, name: &str) -> io::Result<UnixListener> {
    os::small_file::remove(&dir.join(name))?;
    let directory = File::open(dir)?;
    let short = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    UnixListener::bind(short)
}

/// Gives the socket to the pod's user, who owns the launcher's socket.
fn give_to_owner_of(owner: &Path, path: &Path) -> io::Result<()> {
    let wanted = std::fs::metadata(owner)?;
    chown(path, Some(wanted.uid()), Some(wanted.gid()))
}

/// QEMU makes and opens this socket by its full path.
fn check_length(path: &Path) -> Result<(), TextError> {
    let length = path.as_os_str().len();
    let excess = length.saturating_sub(MAX_SOCKET_PATH_BYTES);
    if excess == 0 {
        return Ok(());
    }
    fail!(
        "{}: a path of {length} bytes, but sockets have at most {MAX_SOCKET_PATH_BYTES}; to be migrated, the VM needs a directory whose path is {excess} bytes shorter (run's --root or TMPDIR)",
        path.display()
    );
}

/// Forwards connections; all of them end with this task.
async fn forward(listener: UnixListener, to: PathBuf) {
    let mut acceptor = Acceptor::new(listener, "a migration's proxy");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            stream = acceptor.accept(), if connections.len() < MAX_CONNECTIONS => {
                connections.spawn(connect(stream, to.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Copies until both sides have ended. Forwards an end, which tells libvirt and QEMU that the peer
/// is gone.
async fn connect(mut near: UnixStream, to: PathBuf) {
    const BUFFER_BYTES: usize = 256 << 10;
    if let Ok(mut far) = os::grpc::connect_stream(&to).await {
        let copied = copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER_BYTES, BUFFER_BYTES);
        // Whoever cares has seen the end too.
        let _ = copied.await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn dir(root: &Path) -> VmDir {
        let dir = VmDir::at(root.to_owned());
        for path in [dir.cmd_socket(), dir.path(VIRTQEMUD_SOCKET)] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        std::fs::write(dir.cmd_socket(), "").unwrap();
        dir
    }

    #[tokio::test]
    async fn the_sources_sockets_lead_to_the_targets_until_they_are_dropped() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, target) = (dir(first.path()), dir(second.path()));
        let libvirt = UnixListener::bind(target.path(VIRTQEMUD_SOCKET)).unwrap();
        let proxies = Proxies::serve(&source, &target, "u-1", true).unwrap();
        let sockets = source.path("/var/run/kubevirt/migrationproxy");
        assert_eq!(std::fs::read_dir(&sockets).unwrap().count(), 3);
        let mut stream = UnixStream::connect(sockets.join("u-1-source.sock"))
            .await
            .unwrap();
        stream.write_all(b"call").await.unwrap();
        let (mut served, _) = libvirt.accept().await.unwrap();
        let mut call = [0; 4];
        served.read_exact(&mut call).await.unwrap();
        assert_eq!(&call, b"call");
        drop(proxies);
        assert_eq!(served.read(&mut call).await.unwrap_or(0), 0);
        assert_eq!(std::fs::read_dir(&sockets).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn below_roots_of_their_own_qemu_makes_its_sockets_itself() {
        let base = tempfile::Builder::new()
            .prefix("v")
            .tempdir_in("/tmp")
            .unwrap();
        let (source, target) = (dir(&base.path().join("a")), dir(&base.path().join("b")));
        let uid = "00000000-0000-0000-0000-000000000000";
        let _proxies = Proxies::serve(&source, &target, uid, false).unwrap();
        let sockets = source.path("/var/run/kubevirt/migrationproxy");
        assert_eq!(std::fs::read_dir(&sockets).unwrap().count(), 1);
        let deep = dir(&base.path().join("a-directory-with-a-long-name"));
        let error = Proxies::serve(&deep, &target, uid, false).unwrap_err();
        assert!(error.to_string().contains(": a path of "), "{error}");
    }
}
