//! The handshake: from a connection to an opened export.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::wire::{Fields, NbdError, message, read_bytes};

const SERVER_MAGIC: &[u8; 16] = b"NBDMAGICIHAVEOPT";
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The server's newer handshake, in which it can refuse options.
const FIXED_NEWSTYLE: u16 = 1;
/// The client uses that handshake too, without padding.
const CLIENT_FLAGS: u32 = 1 | 2;

/// Limit of a reply, in bytes. Names have at most 4096.
const MAX_REPLY_BYTES: u32 = 16 << 10;
/// Limit of the replies to one option.
const MAX_REPLIES: usize = 64;
/// The protocol's limit.
const MAX_NAME_BYTES: usize = 4096;

#[derive(Clone, Copy)]
enum ClientOption {
    Go = 7,
    StructuredReply = 8,
    SetMetaContext = 10,
}

impl ClientOption {
    fn what(self) -> &'static str {
        match self {
            Self::Go => "the export",
            Self::StructuredReply => "structured replies",
            Self::SetMetaContext => "metadata contexts",
        }
    }
}

const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_META_CONTEXT: u32 = 4;
const REPLY_ERROR: u32 = 1 << 31;
/// The information item with the size.
const INFO_EXPORT: u16 = 0;

/// Result of the handshake.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Export {
    /// In bytes.
    pub size: u64,
    /// The server's number of each available context, and its position in the request.
    pub contexts: Vec<(u32, usize)>,
}

/// Opens an export, with the requested metadata contexts that the server has.
pub(super) async fn open<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    name: &str,
    contexts: &[String],
) -> Result<Export, NbdError> {
    if name.len() > MAX_NAME_BYTES || contexts.iter().any(|it| it.len() > MAX_NAME_BYTES) {
        return Err(NbdError::Protocol(
            "no export or context with a name of more than 4096 bytes",
        ));
    }
    let hello = read_bytes(stream, 18).await?;
    let Some((SERVER_MAGIC, flags)) = hello.split_first_chunk::<16>() else {
        return Err(NbdError::Protocol("no greeting of an NBD server"));
    };
    if Fields(flags).u16()? & FIXED_NEWSTYLE == 0 {
        return Err(NbdError::Protocol("the greeting of an old server"));
    }
    stream.write_all(&CLIENT_FLAGS.to_be_bytes()).await?;
    ask(stream, ClientOption::StructuredReply, &[], |_, _| Ok(())).await?;
    let mut known = Vec::new();
    if !contexts.is_empty() {
        let mut data = named(name);
        data.extend(count(contexts.len()).to_be_bytes());
        contexts.iter().for_each(|it| data.extend(named(it)));
        ask(
            stream,
            ClientOption::SetMetaContext,
            &data,
            |reply, data| {
                if reply == REPLY_META_CONTEXT {
                    let mut fields = Fields(data);
                    let number = fields.u32()?;
                    let at = contexts
                        .iter()
                        .position(|it| it.as_bytes() == fields.rest());
                    known.extend(at.map(|at| (number, at)));
                }
                Ok(())
            },
        )
        .await?;
    }
    let mut data = named(name);
    data.extend(0_u16.to_be_bytes());
    let mut size = None;
    ask(stream, ClientOption::Go, &data, |reply, data| {
        let mut fields = Fields(data);
        if reply == REPLY_INFO && fields.u16()? == INFO_EXPORT {
            size = Some(fields.u64()?);
        }
        Ok(())
    })
    .await?;
    Ok(Export {
        size: size.ok_or(NbdError::Protocol("no size of the export"))?,
        contexts: known,
    })
}

/// Sends an option and passes each reply to `take` until the server acknowledges the option.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    option: ClientOption,
    data: &[u8],
    mut take: impl FnMut(u32, &[u8]) -> Result<(), NbdError>,
) -> Result<(), NbdError> {
    let mut request = OPTION_MAGIC.to_vec();
    request.extend((option as u32).to_be_bytes());
    request.extend(count(data.len()).to_be_bytes());
    request.extend(data);
    stream.write_all(&request).await?;
    for _ in 0..MAX_REPLIES {
        let header = read_bytes(stream, 20).await?;
        let mut fields = Fields(&header);
        if fields.u64()? != REPLY_MAGIC || fields.u32()? != option as u32 {
            return Err(NbdError::Protocol("what is no reply to an option"));
        }
        let (reply, length) = (fields.u32()?, fields.u32()?);
        if length > MAX_REPLY_BYTES {
            return Err(NbdError::Protocol("a reply that is too long"));
        }
        let data = read_bytes(stream, length as usize).await?;
        if reply == REPLY_ACK {
            return Ok(());
        }
        if reply & REPLY_ERROR != 0 {
            return Err(NbdError::Refused {
                what: option.what(),
                reply,
                message: message(&data),
            });
        }
        take(reply, &data)?;
    }
    Err(NbdError::Protocol("too many replies to an option"))
}

/// A name, preceded by its length.
fn named(name: &str) -> Vec<u8> {
    let mut bytes = count(name.len()).to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes
}

/// The length of something known to be short.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
