//! The protocol's numbers and errors.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest kept error text, in bytes.
const MAX_MESSAGE_BYTES: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    #[error("the connection to the NBD server broke")]
    Io(#[from] io::Error),
    /// The server did not answer in time.
    #[error("the NBD server has not answered for {} s", .0.as_secs())]
    Silent(std::time::Duration),
    /// The server violates the protocol.
    #[error("the NBD server sends {0}")]
    Protocol(&'static str),
    /// The server refuses a part of the handshake.
    #[error("the NBD server refuses {what} (reply {reply:#x}): {message}")]
    Refused {
        /// The refused part.
        what: &'static str,
        /// Number of the reply.
        reply: u32,
        message: String,
    },
    /// A request failed.
    #[error("the NBD server cannot {what} at offset {offset} (error {code}): {message}")]
    Request {
        /// The kind of request.
        what: &'static str,
        /// In bytes.
        offset: u64,
        /// An errno value.
        code: u32,
        message: String,
    },
}

/// A text from the server.
pub(super) fn message(bytes: &[u8]) -> String {
    let bytes = bytes.get(..MAX_MESSAGE_BYTES).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads `length` bytes. The caller has checked that they are few.
pub(super) async fn read_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    length: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Takes numbers off the front of a message.
pub(super) struct Fields<'b>(pub &'b [u8]);

impl<'b> Fields<'b> {
    pub fn u16(&mut self) -> Result<u16, NbdError> {
        self.take().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, NbdError> {
        self.take().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, NbdError> {
        self.take().map(u64::from_be_bytes)
    }

    pub fn rest(&self) -> &'b [u8] {
        self.0
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], NbdError> {
        let (first, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(NbdError::Protocol("a message that is too short"))?;
        self.0 = rest;
        Ok(*first)
    }
}
