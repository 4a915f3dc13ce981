//! Messages with descriptors between processes (SCM_RIGHTS), on sockets that keep messages apart.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Limit for a message, in bytes, and for its descriptors.
const MAX_BYTES: usize = 1 << 16;
const MAX_DESCRIPTORS: usize = 2;

/// Two ends of a socket that keeps messages apart (SOCK_SEQPACKET).
///
/// # Errors
/// There are no descriptors left.
pub fn message_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends at once, or fails.
///
/// # Errors
/// The other end is closed or its queue is full, or the message is too long.
pub fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, flags)?;
    Ok(())
}

/// Receives one message and its descriptors; it is empty once the other end is closed.
///
/// # Errors
/// The socket is none, or there is no message yet and `flags` do not wait for one.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut message = vec![0; MAX_BYTES];
    let (parts, flags) = (
        &mut [IoSliceMut::new(&mut message)],
        flags | RecvFlags::CMSG_CLOEXEC,
    );
    let received = rustix::io::retry_on_intr(|| recvmsg(&socket, parts, &mut ancillary, flags))?;
    message.truncate(received.bytes);
    let descriptors = ancillary.drain().filter_map(|part| match part {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((message, descriptors.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn messages_stay_apart_and_bring_their_descriptors() {
        let (ours, theirs) = message_sockets().unwrap();
        assert!(
            receive(&theirs, RecvFlags::DONTWAIT).is_err(),
            "nothing yet"
        );
        let (mut end, other) = io::pipe().unwrap();
        send(&ours, b"first", &[other.as_fd()]).unwrap();
        send(&ours, b"second", &[]).unwrap();
        drop((other, ours));
        let (first, mut descriptors) = receive(&theirs, RecvFlags::empty()).unwrap();
        assert_eq!(first, b"first");
        let mut sent = std::fs::File::from(descriptors.remove(0));
        io::Write::write_all(&mut sent, b"x").unwrap();
        assert_eq!(end.read(&mut [0; 2]).unwrap(), 1);
        let (second, descriptors) = receive(&theirs, RecvFlags::empty()).unwrap();
        assert!(second == b"second" && descriptors.is_empty());
        assert_eq!(receive(&theirs, RecvFlags::empty()).unwrap().0, b"");
    }
}
