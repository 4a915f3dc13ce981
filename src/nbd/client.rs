//! Requests to an NBD export.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::handshake::{Export, open};
use super::wire::{Fields, NbdError, message, read_bytes};

/// Limit of the handshake and of each request. Disks may be slow.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

#[derive(Clone, Copy)]
enum Command {
    Read = 0,
    BlockStatus = 7,
}

impl Command {
    fn what(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::BlockStatus => "tell what is stored",
        }
    }
}

/// Marks the last chunk of a reply.
const DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_DATA: u16 = 1;
const CHUNK_HOLE: u16 = 2;
const CHUNK_BLOCK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = 1 << 15;

/// Limit of a reply's chunks. QEMU sends one for each change between data and holes.
const MAX_CHUNKS: usize = 1 << 16;
/// Limit of a chunk without read data, in bytes. QEMU sends at most 2048 extents.
const MAX_CHUNK_BYTES: u32 = 1 << 20;

/// Limit of the extents in an answer.
const MAX_EXTENTS: usize = 1 << 17;

/// A part of a disk and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// In bytes.
    pub length: u64,
    /// Their meaning depends on the metadata context.
    pub flags: u32,
}

/// A connection to an export.
#[derive(Debug)]
pub struct NbdClient<S> {
    stream: S,
    export: Export,
    context_count: usize,
    /// Number of the next request.
    cookie: u64,
}

struct Chunk {
    is_last: bool,
    kind: u16,
    data: Vec<u8>,
}

impl NbdClient<UnixStream> {
    /// Connects to the server on a unix socket and opens an export with these metadata contexts.
    ///
    /// # Errors
    /// The server cannot be reached or lacks the export.
    pub async fn connect(
        socket: &Path,
        export: &str,
        contexts: &[String],
    ) -> Result<Self, NbdError> {
        let stream = os::grpc::connect_stream(socket).await?;
        Self::open(stream, export, contexts).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> NbdClient<S> {
    /// Like [`NbdClient::connect`], over an open connection.
    ///
    /// # Errors
    /// The server lacks the export or violates the protocol.
    pub async fn open(mut stream: S, export: &str, contexts: &[String]) -> Result<Self, NbdError> {
        let export = in_time(open(&mut stream, export, contexts)).await?;
        Ok(Self {
            stream,
            export,
            context_count: contexts.len(),
            cookie: 0,
        })
    }

    /// In bytes.
    pub fn size(&self) -> u64 {
        self.export.size
    }

    /// Whether the server has the context requested in position `at`.
    pub fn has_context(&self, at: usize) -> bool {
        self.export.contexts.iter().any(|(_, it)| *it == at)
    }

    /// Reads `length` bytes from `offset` on.
    ///
    /// # Errors
    /// The server cannot read them, or the connection breaks.
    pub async fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, NbdError> {
        in_time(self.read_now(offset, length)).await
    }

    /// The extents from `offset` on, for each requested context: as many as the server tells, at
    /// least one.
    pub async fn block_status(
        &mut self,
        offset: u64,
        length: u32,
    ) -> Result<Vec<Vec<Extent>>, NbdError> {
        in_time(self.block_status_now(offset, length)).await
    }

    async fn read_now(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, NbdError> {
        let mut data = vec![0; length as usize];
        let mut filled = 0_usize;
        let limit = MAX_CHUNK_BYTES.saturating_add(length);
        self.request(Command::Read, offset, length).await?;
        for _ in 0..MAX_CHUNKS {
            let chunk = self.chunk(Command::Read, offset, limit).await?;
            let mut fields = Fields(&chunk.data);
            if matches!(chunk.kind, CHUNK_DATA | CHUNK_HOLE) {
                let at = fields.u64()?.checked_sub(offset);
                let length = match chunk.kind {
                    CHUNK_HOLE => fields.u32()? as usize,
                    _ => fields.rest().len(),
                };
                let part = at
                    .and_then(|at| usize::try_from(at).ok())
                    .and_then(|at| data.get_mut(at..at.checked_add(length)?))
                    .ok_or(NbdError::Protocol("data that was not asked for"))?;
                if chunk.kind == CHUNK_DATA {
                    part.copy_from_slice(fields.rest());
                }
                filled = filled.saturating_add(length);
            } else if chunk.kind != CHUNK_NONE {
                return Err(NbdError::Protocol("an unknown part of an answer"));
            }
            if chunk.is_last {
                return if filled == data.len() {
                    Ok(data)
                } else {
                    Err(NbdError::Protocol("another number of bytes than asked for"))
                };
            }
        }
        Err(NbdError::Protocol("an answer in too many parts"))
    }

    async fn block_status_now(
        &mut self,
        offset: u64,
        length: u32,
    ) -> Result<Vec<Vec<Extent>>, NbdError> {
        let mut contexts = vec![Vec::new(); self.context_count];
        self.request(Command::BlockStatus, offset, length).await?;
        for _ in 0..MAX_CHUNKS {
            let chunk = self
                .chunk(Command::BlockStatus, offset, MAX_CHUNK_BYTES)
                .await?;
            if chunk.kind == CHUNK_BLOCK_STATUS {
                let mut fields = Fields(&chunk.data);
                let number = fields.u32()?;
                let known = self.export.contexts.iter().find(|(it, _)| *it == number);
                let extents = known
                    .and_then(|(_, at)| contexts.get_mut(*at))
                    .ok_or(NbdError::Protocol("a context that was not asked for"))?;
                while !fields.rest().is_empty() {
                    if extents.len() >= MAX_EXTENTS {
                        return Err(NbdError::Protocol("too many parts of a disk"));
                    }
                    extents.push(Extent {
                        length: fields.u32()?.into(),
                        flags: fields.u32()?,
                    });
                }
            } else if chunk.kind != CHUNK_NONE {
                return Err(NbdError::Protocol("an unknown part of an answer"));
            }
            if chunk.is_last {
                return Ok(contexts);
            }
        }
        Err(NbdError::Protocol("an answer in too many parts"))
    }

    async fn request(
        &mut self,
        command: Command,
        offset: u64,
        length: u32,
    ) -> Result<(), NbdError> {
        self.cookie = self.cookie.wrapping_add(1);
        let mut request = REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend((command as u16).to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        Ok(self.stream.write_all(&request).await?)
    }

    /// The next chunk of the answer to the last request; an error from the server counts as one.
    async fn chunk(
        &mut self,
        command: Command,
        offset: u64,
        max_bytes: u32,
    ) -> Result<Chunk, NbdError> {
        let failed = |code, message| NbdError::Request {
            what: command.what(),
            offset,
            code,
            message,
        };
        match self.stream.read_u32().await? {
            CHUNK_MAGIC => {}
            SIMPLE_REPLY_MAGIC => {
                let code = self.stream.read_u32().await?;
                let _cookie = self.stream.read_u64().await?;
                return Err(match code {
                    0 => NbdError::Protocol("an answer without what was asked for"),
                    code => failed(code, String::new()),
                });
            }
            _ => return Err(NbdError::Protocol("what is no answer to a request")),
        }
        let header = read_bytes(&mut self.stream, 16).await?;
        let mut fields = Fields(&header);
        let (flags, kind) = (fields.u16()?, fields.u16()?);
        if fields.u64()? != self.cookie {
            return Err(NbdError::Protocol("the answer to another request"));
        }
        let length = fields.u32()?;
        if length > max_bytes {
            return Err(NbdError::Protocol("an answer that is too long"));
        }
        let data = read_bytes(&mut self.stream, length as usize).await?;
        if kind & CHUNK_ERROR != 0 {
            let mut fields = Fields(&data);
            let code = fields.u32()?;
            let length = usize::from(fields.u16()?);
            let text = fields.rest().get(..length).unwrap_or_default();
            return Err(failed(code, message(text)));
        }
        Ok(Chunk {
            is_last: flags & DONE != 0,
            kind,
            data,
        })
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, NbdError>>) -> Result<T, NbdError> {
    let done = timeout(ANSWER_TIMEOUT, work).await;
    done.unwrap_or(Err(NbdError::Silent(ANSWER_TIMEOUT)))
}
