//! An open `/dev/iommu`, which KubeVirt's device plugin hands to the launcher (feature gate
//! IOMMUFD).
//!
//! The plugin opens and configures the device, and listens on a socket that the kubelet mounts into
//! the pod. It serves one connection: it sends one byte with the descriptor (`SCM_RIGHTS`), and the
//! launcher answers with a zero byte.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::{LauncherFlags, PodError};
use api::pod_paths;

/// Limit of the wait for the descriptor. The plugin has it ready when it listens, so only a plugin
/// that hangs reaches the limit.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);

fn socket(flags: &LauncherFlags) -> PathBuf {
    let share_dir = flags.share_dir.trim_end_matches('/');
    let socket = format!("{share_dir}/{}", pod_paths::IOMMUFD_SOCKET);
    flags.root.path(socket)
}

/// Whether the pod has the device plugin's socket.
pub(super) fn is_offered(flags: &LauncherFlags) -> bool {
    socket(flags).exists()
}

/// Takes the descriptor from the device plugin. `None` if the pod has no such socket. The plugin
/// gives it once, so the caller has to keep it for the next attempt to start the domain.
///
/// # Errors
/// The socket is there, and no descriptor comes within 5 s.
pub fn receive_iommufd(flags: &LauncherFlags) -> Result<Option<OwnedFd>, PodError> {
    let path = socket(flags);
    let stream = match UnixStream::connect(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        connected => connected.map_err(PodError::io("connect to", &path))?,
    };
    let received = receive(&stream);
    received
        .map(Some)
        .map_err(PodError::io("receive the IOMMU's descriptor from", &path))
}

fn receive(mut stream: &UnixStream) -> io::Result<OwnedFd> {
    stream.set_read_timeout(Some(RECEIVE_TIMEOUT))?;
    stream.set_write_timeout(Some(RECEIVE_TIMEOUT))?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let descriptor = descriptor
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no descriptor was sent"))?;
    // The plugin has sent it, and closes its side whether or not it reads this.
    if let Err(error) = stream.write_all(&[0]) {
        tracing::debug!(reason = %error, "The device plugin did not wait for the acknowledgement");
    }
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{IoSlice, Read};
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;
    use crate::Root;

    fn pod() -> (tempfile::TempDir, LauncherFlags, UnixListener) {
        let dir = tempfile::tempdir().unwrap();
        let flags = LauncherFlags {
            root: Root::new(dir.path()),
            ..LauncherFlags::default()
        };
        let path = socket(&flags);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(path).unwrap();
        (dir, flags, listener)
    }

    /// Serves one connection as the device plugin does; returns the launcher's answer.
    fn serve(listener: UnixListener, sent: Option<File>) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors: Vec<_> = sent.iter().map(AsFd::as_fd).collect();
            if !descriptors.is_empty() {
                assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            }
            let none = SendFlags::empty();
            sendmsg(&stream, &[IoSlice::new(&[0])], &mut control, none).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            answer
        })
    }

    #[test]
    fn a_pod_without_the_socket_has_no_descriptor() {
        let (_dir, flags, listener) = pod();
        drop(listener);
        fs::remove_file(socket(&flags)).unwrap();
        assert!(!is_offered(&flags));
        assert!(receive_iommufd(&flags).unwrap().is_none());
    }

    #[test]
    fn the_descriptor_is_received_and_acknowledged() {
        let (dir, flags, listener) = pod();
        assert!(is_offered(&flags));
        let file = File::create(dir.path().join("iommu")).unwrap();
        let inode = file.metadata().unwrap().ino();
        let plugin = serve(listener, Some(file));
        let received = File::from(receive_iommufd(&flags).unwrap().unwrap());
        assert_eq!(received.metadata().unwrap().ino(), inode);
        assert_eq!(plugin.join().unwrap(), [0]);
    }

    #[test]
    fn a_plugin_that_sends_no_descriptor_is_an_error() {
        let (_dir, flags, listener) = pod();
        let plugin = serve(listener, None);
        let error = os::logging::chain(&receive_iommufd(&flags).unwrap_err());
        assert!(error.ends_with("no descriptor was sent"), "{error}");
        plugin.join().unwrap();
    }

    #[test]
    fn a_plugin_that_has_served_already_is_an_error() {
        let (_dir, flags, listener) = pod();
        drop(listener);
        let error = os::logging::chain(&receive_iommufd(&flags).unwrap_err());
        assert!(error.starts_with("cannot connect to"), "{error}");
    }
}
