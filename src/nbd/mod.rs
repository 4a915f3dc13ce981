//! A client of QEMU's NBD server, which tells a disk's content and the kind of each part.
//!
//! It has what backups need: one export, read-only, one request at a time, structured replies,
//! metadata contexts. Protocol:
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>. All input from the server
//! is bounded and checked.
//!
//! ```text
//!   handshake: structured replies? ─► metadata contexts? ─► go ──► requests: read, block status
//! ```

mod client;
mod handshake;
mod wire;

pub use client::{Extent, NbdClient};
pub use wire::NbdError;

/// The context that tells holes and zeros.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Prefix of QEMU's bitmap contexts.
pub const DIRTY_BITMAP: &str = "qemu:dirty-bitmap:";
/// In [`BASE_ALLOCATION`]: the part reads as zeros.
pub const STATE_ZERO: u32 = 2;
/// In a bitmap context: the part was written to.
pub const STATE_DIRTY: u32 = 1;

#[cfg(test)]
pub(crate) mod tests;
