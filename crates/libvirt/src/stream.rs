//! Streams of bytes that libvirt sends beside its answers.

use std::ffi::c_char;

use virt::sys;

use super::error::{Error, code};

/// Bytes that are taken from libvirt at a time: one packet of its protocol.
const CHUNK_BYTES: usize = 256 << 10;

/// A stream on a connection, aborted when it is dropped before its end.
pub(super) struct Stream {
    raw: sys::virStreamPtr,
    finished: bool,
}

impl Stream {
    /// A blocking stream on the connection of a domain.
    ///
    /// # Safety
    /// `domain` is a valid domain.
    pub unsafe fn of_domain(domain: sys::virDomainPtr) -> Result<Self, Error> {
        // SAFETY: the domain is valid; the connection that it names is borrowed and lives as long
        // as the domain.
        let raw = unsafe { sys::virStreamNew(sys::virDomainGetConnect(domain), 0) };
        if raw.is_null() {
            return Err(Error::last());
        }
        Ok(Self {
            raw,
            finished: false,
        })
    }

    /// For a call that fills the stream.
    pub fn ptr(&self) -> sys::virStreamPtr {
        self.raw
    }

    /// Everything up to the end; an error if that is more than `max` bytes.
    pub fn read_to_end(mut self, max: usize) -> Result<Vec<u8>, Error> {
        let mut all = Vec::new();
        let mut chunk = vec![0_u8; CHUNK_BYTES];
        loop {
            // SAFETY: the stream is valid, and the buffer has room for as many bytes as are asked
            // for.
            let read = unsafe {
                sys::virStreamRecv(self.raw, chunk.as_mut_ptr().cast::<c_char>(), chunk.len())
            };
            let read = usize::try_from(read).map_err(|_| Error::last())?;
            if read == 0 {
                break;
            }
            if all.len() + read > max {
                let message = format!("libvirt sends more than {max} bytes");
                return Err(Error::own(code::INTERNAL_ERROR, message));
            }
            all.extend(chunk.iter().take(read));
        }
        self.finished = true;
        // SAFETY: the stream is valid and at its end.
        super::c::check(unsafe { sys::virStreamFinish(self.raw) })?;
        Ok(all)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is valid, and given back once; an abort before its end tells libvirt
        // to stop.
        unsafe {
            if !self.finished {
                sys::virStreamAbort(self.raw);
            }
            sys::virStreamFree(self.raw);
        }
    }
}
