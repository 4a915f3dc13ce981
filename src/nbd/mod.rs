//! A client of QEMU's NBD server: what a disk holds, and what each part of it is.
//!
//! As far as backups need it: one export, read-only, one request at a time, structured replies, metadata contexts. The
//! protocol is <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>. All that the server sends is bounded and
//! checked.
//!
//! ```text
//!   handshake: structured replies? ─► metadata contexts? ─► go ──► requests: read, block status
//! ```

mod client;
mod handshake;
mod wire;

pub use client::{Client, Extent};
pub use wire::NbdError;

/// The context in which holes and zeros are known.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// What QEMU's contexts of bitmaps begin with.
pub const DIRTY_BITMAP: &str = "qemu:dirty-bitmap:";
/// In [`BASE_ALLOCATION`]: nothing is stored for the part.
pub const STATE_HOLE: u32 = 1;
/// In [`BASE_ALLOCATION`]: the part reads as zeros.
pub const STATE_ZERO: u32 = 2;
/// In a context of a bitmap: the part was written to.
pub const STATE_DIRTY: u32 = 1;

#[cfg(test)]
pub(crate) mod tests;
