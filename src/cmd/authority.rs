//! Lets clients in whose `:authority` is a socket's path.
//!
//! gRPC's C core, and so its Python, calls a unix socket by its path with `%2F` for each slash. The HTTP library below
//! tonic refuses a request with a `%` there (RFC 3986 has none in a host that is a name). The header means nothing on a
//! unix socket, so each `%` in it becomes a `.` on its way in. The length stays, and with it all state of HPACK.
//!
//! ```text
//!   bytes ─► preface ─► frame ─┬─ HEADERS, CONTINUATION ─► Block ─► the value of `:authority`
//!                              └─ any other: passed by
//! ```

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// A connection whose incoming `:authority` headers are made acceptable.
#[derive(Debug)]
pub struct Tolerant<S> {
    stream: S,
    frames: Frames,
}

impl<S> Tolerant<S> {
    /// Around `stream`, from its first byte on.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            frames: Frames::default(),
        }
    }
}

impl<S> Connected for Tolerant<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin> AsyncRead for Tolerant<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let result = Pin::new(&mut this.stream).poll_read(context, buffer);
        this.frames.pass(&mut buffer.filled_mut()[before..]);
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tolerant<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Length of the text with which an HTTP/2 client begins.
const PREFACE: usize = 24;
/// Length of a frame's own header: length (3), type, flags, stream (4). RFC 9113, section 4.1.
const FRAME: usize = 9;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x08;
const PRIORITY: u8 = 0x20;

/// Follows the frames of a connection.
#[derive(Debug)]
struct Frames {
    /// Bytes of the preface that are still to come.
    preface: usize,
    header: [u8; FRAME],
    /// How much of `header` has come.
    have: usize,
    /// A length of padding comes first.
    pad_length: bool,
    /// Bytes of a priority, before the block.
    priority: usize,
    /// Bytes of the header block.
    block: usize,
    /// Bytes of no interest that end the frame.
    rest: usize,
    walker: Block,
}

impl Default for Frames {
    fn default() -> Self {
        let (preface, header) = (PREFACE, [0; FRAME]);
        Self {
            preface,
            header,
            have: 0,
            pad_length: false,
            priority: 0,
            block: 0,
            rest: 0,
            walker: Block::default(),
        }
    }
}

impl Frames {
    /// Looks at the next bytes, however they are cut, and changes what must be changed.
    fn pass(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let left = bytes.len() - at;
            if self.preface > 0 {
                at += take(&mut self.preface, left);
            } else if self.have < FRAME {
                self.header[self.have] = bytes[at];
                self.have += 1;
                at += 1;
                if self.have == FRAME {
                    self.begin();
                }
            } else if self.pad_length {
                self.pad_length = false;
                let padding = usize::from(bytes[at]);
                (self.block, self.rest) =
                    (self.block.saturating_sub(padding), self.block.min(padding));
                at += 1;
            } else if self.priority > 0 {
                at += take(&mut self.priority, left);
            } else if self.block > 0 {
                let count = take(&mut self.block, left);
                for byte in &mut bytes[at..at + count] {
                    self.walker.pass(byte);
                }
                at += count;
            } else {
                at += take(&mut self.rest, left);
            }
            if self.have == FRAME && !self.pad_length && self.priority + self.block + self.rest == 0
            {
                self.have = 0;
            }
        }
    }

    /// A frame's header is complete.
    fn begin(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        if kind != HEADERS && kind != CONTINUATION {
            self.rest = length;
            return;
        }
        self.block = length;
        if kind == HEADERS {
            self.walker = Block::default();
            if flags & PADDED != 0 {
                self.pad_length = length > 0;
                self.block = self.block.saturating_sub(1);
            }
            if flags & PRIORITY != 0 {
                self.priority = self.block.min(5);
                self.block -= self.priority;
            }
        }
    }
}

/// Takes up to `left` off `count`, and returns how much.
fn take(count: &mut usize, left: usize) -> usize {
    let taken = left.min(*count);
    *count -= taken;
    taken
}

const AUTHORITY: &[u8] = b":authority";
/// Of `:authority` in HPACK's static table.
const AUTHORITY_INDEX: usize = 1;

/// Follows a header block (HPACK, RFC 7541, section 6), byte by byte.
#[derive(Debug, Default)]
struct Block {
    next: Next,
    /// The integer that is being read, and the shift of its next bits.
    integer: (usize, u32),
    /// The string is Huffman-coded, so its bytes are no text.
    huffman: bool,
    /// The value to come belongs to `:authority`.
    authority: bool,
    /// How much of the name has matched; nothing once it has not.
    matched: Option<usize>,
}

/// What the next byte is.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Next {
    #[default]
    Field,
    /// More of an integer; then this.
    Integer(After),
    /// The length of a string.
    Length(Role),
    /// That many bytes of a string.
    Text(Role, usize),
}

/// What an integer was read for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum After {
    /// An indexed field or a table size: nothing follows.
    Nothing,
    /// The name's index: a name follows if it is 0, and then a value.
    Index,
    /// A string's length.
    Length(Role),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Name,
    Value,
}

impl Block {
    fn pass(&mut self, byte: &mut u8) {
        match self.next {
            Next::Field => match *byte {
                b if b & 0x80 != 0 => self.integer(b, 7, After::Nothing),
                b if b & 0x40 != 0 => self.integer(b, 6, After::Index),
                b if b & 0x20 != 0 => self.integer(b, 5, After::Nothing),
                b => self.integer(b, 4, After::Index),
            },
            Next::Integer(after) => {
                let (value, shift) = self.integer;
                let value = value.saturating_add(
                    usize::from(*byte & 0x7f)
                        .checked_shl(shift)
                        .unwrap_or(usize::MAX),
                );
                self.integer = (value, shift + 7);
                if *byte & 0x80 == 0 {
                    self.read(after, value);
                }
            }
            Next::Length(role) => {
                self.huffman = *byte & 0x80 != 0;
                self.integer(*byte, 7, After::Length(role));
            }
            Next::Text(role, left) => {
                self.text(role, byte);
                self.advance(role, left - 1);
            }
        }
    }

    /// Begins an integer whose first bits are the last `bits` of `byte`.
    fn integer(&mut self, byte: u8, bits: u32, after: After) {
        let most = (1_u8 << bits) - 1;
        let value = usize::from(byte & most);
        if byte & most == most {
            self.integer = (value, 0);
            self.next = Next::Integer(after);
        } else {
            self.read(after, value);
        }
    }

    /// An integer is complete.
    fn read(&mut self, after: After, value: usize) {
        match after {
            After::Nothing => self.next = Next::Field,
            After::Index => {
                self.authority = value == AUTHORITY_INDEX;
                self.matched = Some(0);
                self.next = Next::Length(if value == 0 { Role::Name } else { Role::Value });
            }
            After::Length(role) => self.advance(role, value),
        }
    }

    /// So many bytes of a string are left.
    fn advance(&mut self, role: Role, left: usize) {
        self.next = match (role, left) {
            (Role::Name, 0) => {
                self.authority = !self.huffman && self.matched == Some(AUTHORITY.len());
                Next::Length(Role::Value)
            }
            (Role::Value, 0) => Next::Field,
            (role, left) => Next::Text(role, left),
        };
    }

    fn text(&mut self, role: Role, byte: &mut u8) {
        match role {
            Role::Name => {
                self.matched = self
                    .matched
                    .filter(|count| AUTHORITY.get(*count) == Some(byte))
                    .map(|count| count + 1);
            }
            Role::Value if self.authority && !self.huffman && *byte == b'%' => *byte = b'.',
            Role::Value => {}
        }
    }
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
