//! A domain, and what can be asked about it.

use std::ffi::{c_char, c_int};

use virt::sys;

use super::c;
use super::error::{Error, code};
use super::state::DomainState;
use super::stream::Stream;
use super::typed_params::{ParamValue, TypedParams};

/// A reference to a domain; it stays valid when the domain is gone (calls then say so).
#[derive(Debug)]
pub struct DomainHandle {
    pub(super) raw: sys::virDomainPtr,
}

// SAFETY: libvirt's objects are reference-counted under a lock, and its functions may be called on
// one domain from any thread at the same time (libvirt.org, "Thread safety"); errors are kept for
// each thread.
unsafe impl Send for DomainHandle {}
// SAFETY: as above.
unsafe impl Sync for DomainHandle {}

impl Clone for DomainHandle {
    fn clone(&self) -> Self {
        // SAFETY: `raw` is a valid domain; the call fails for no other reason, and adds the
        // reference that the clone gives back when it is dropped.
        unsafe { sys::virDomainRef(self.raw) };
        Self { raw: self.raw }
    }
}

impl Drop for DomainHandle {
    fn drop(&mut self) {
        // SAFETY: gives back this object's own reference.
        unsafe { sys::virDomainFree(self.raw) };
    }
}

/// Which XML [`DomainHandle::xml`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XmlKind {
    /// The running domain, with what libvirt has added; the definition when it does not run.
    Live,
    /// The definition: what the next start will use.
    Inactive,
    /// What a migration would send.
    Migratable,
    /// As `Live`, with passwords.
    Secure,
}

/// A picture of the guest's screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screenshot {
    /// Its MIME type, such as `image/png` or `image/x-portable-pixmap`.
    pub mime: String,
    pub data: Vec<u8>,
}

/// Sizes of a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// The size that the guest sees.
    pub capacity: u64,
    /// Bytes that the image takes up on the host.
    pub allocation: u64,
    /// The end of the image: a block device's size, a file's length.
    pub physical: u64,
}

impl DomainHandle {
    /// Takes over a reference; null is the call's failure.
    ///
    /// # Safety
    /// `raw` is null or a reference that nobody else gives back.
    pub(super) unsafe fn take(raw: sys::virDomainPtr) -> Result<Self, Error> {
        if raw.is_null() {
            Err(Error::last())
        } else {
            Ok(Self { raw })
        }
    }

    /// libvirt's own object, for this crate.
    pub(super) fn raw(&self) -> sys::virDomainPtr {
        self.raw
    }

    pub fn name(&self) -> Result<String, Error> {
        // SAFETY: the domain is valid; the name is its own and copied at once.
        unsafe {
            let name = sys::virDomainGetName(self.raw);
            if name.is_null() {
                Err(Error::last())
            } else {
                Ok(c::copy(name))
            }
        }
    }

    /// The UUID, as text.
    pub fn uuid(&self) -> Result<String, Error> {
        let mut text: [c_char; sys::VIR_UUID_STRING_BUFLEN as usize] =
            [0; sys::VIR_UUID_STRING_BUFLEN as usize];
        // SAFETY: the buffer has the size that libvirt asks for, and is NUL-terminated on success.
        unsafe {
            c::check(sys::virDomainGetUUIDString(self.raw, text.as_mut_ptr()))?;
            Ok(c::copy(text.as_ptr()))
        }
    }

    pub fn xml(&self, kind: XmlKind) -> Result<String, Error> {
        let flags = match kind {
            XmlKind::Live => 0,
            XmlKind::Inactive => sys::VIR_DOMAIN_XML_INACTIVE,
            XmlKind::Migratable => sys::VIR_DOMAIN_XML_MIGRATABLE,
            XmlKind::Secure => sys::VIR_DOMAIN_XML_SECURE,
        };
        // SAFETY: the domain is valid; the result is ours to free.
        unsafe { c::take(sys::virDomainGetXMLDesc(self.raw, flags)) }
    }

    pub fn state(&self) -> Result<DomainState, Error> {
        let (mut state, mut reason): (c_int, c_int) = (0, 0);
        // SAFETY: both places are valid for the call.
        c::check(unsafe { sys::virDomainGetState(self.raw, &mut state, &mut reason, 0) })?;
        Ok(DomainState::from_raw(state, reason))
    }

    /// What the processor's firmware has measured of a guest with encrypted memory, by libvirt's
    /// names.
    pub fn launch_security_info(&self) -> Result<Vec<(String, ParamValue)>, Error> {
        let mut params = TypedParams::new();
        let (list, len) = params.places();
        // SAFETY: the domain and both places are valid; we free the result.
        c::check(unsafe { sys::virDomainGetLaunchSecurityInfo(self.raw, list, len, 0) })?;
        Ok(params.read())
    }

    /// The sizes of a disk, by target (`vda`) or source path.
    pub fn block_info(&self, disk: &str) -> Result<BlockInfo, Error> {
        let disk = c::text("the disk's name", disk)?;
        let mut info = sys::virDomainBlockInfo {
            capacity: 0,
            allocation: 0,
            physical: 0,
        };
        // SAFETY: domain, string and the place for the result are valid for the call.
        c::check(unsafe { sys::virDomainGetBlockInfo(self.raw, disk.as_ptr(), &mut info, 0) })?;
        Ok(BlockInfo {
            capacity: info.capacity,
            allocation: info.allocation,
            physical: info.physical,
        })
    }

    /// The metadata element of namespace `uri`.
    pub fn metadata(&self, uri: &str) -> Result<Option<String>, Error> {
        let uri = c::text("the URI", uri)?;
        let kind = sys::VIR_DOMAIN_METADATA_ELEMENT as c_int;
        // SAFETY: domain and string are valid for the call; the result is ours to free.
        match unsafe { c::take(sys::virDomainGetMetadata(self.raw, kind, uri.as_ptr(), 0)) } {
            Ok(xml) => Ok(Some(xml)),
            Err(error) if error.code == code::NO_DOMAIN_METADATA => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A picture of the guest's first screen, at most `max_bytes` long.
    pub fn screenshot(&self, max_bytes: usize) -> Result<Screenshot, Error> {
        // SAFETY: the domain is valid.
        let stream = unsafe { Stream::of_domain(self.raw) }?;
        // SAFETY: domain and stream are valid; the result is ours to free.
        let mime = unsafe { c::take(sys::virDomainScreenshot(self.raw, stream.ptr(), 0, 0)) }?;
        let data = stream.read_to_end(max_bytes)?;
        Ok(Screenshot { mime, data })
    }

    /// Whether it has a QEMU process.
    pub fn is_active(&self) -> Result<bool, Error> {
        // SAFETY: the domain is valid.
        Ok(c::check(unsafe { sys::virDomainIsActive(self.raw) })? == 1)
    }

    pub(super) fn done(&self, result: c_int) -> Result<(), Error> {
        c::check(result).map(drop)
    }
}
