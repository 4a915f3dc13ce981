//! Crossing into C and back.

use std::ffi::{CStr, CString, c_char, c_int};

use super::error::{Error, code};

/// `text` for C. A NUL inside it cannot be passed on and is refused by name.
pub(super) fn text(what: &str, text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|e| {
        Error::own(
            code::INVALID_ARG,
            format!("{what} has a NUL byte at position {}", e.nul_position()),
        )
    })
}

/// The result of a call that answers with a negative number when it fails.
pub(super) fn check(result: c_int) -> Result<c_int, Error> {
    if result < 0 {
        Err(Error::last())
    } else {
        Ok(result)
    }
}

/// Takes over a string that libvirt allocated; null is the call's failure.
///
/// # Safety
/// `raw` is null or comes from a libvirt call whose caller must free the result, and nobody else
/// does.
pub(super) unsafe fn take(raw: *mut c_char) -> Result<String, Error> {
    // SAFETY: the caller's promise.
    unsafe { take_at_most(raw, usize::MAX) }
}

/// Takes a string like [`take`]. A guest decides its length: one of more than `max_bytes` is an
/// error and is not copied.
///
/// # Safety
/// As for [`take`].
pub(super) unsafe fn take_at_most(raw: *mut c_char, max_bytes: usize) -> Result<String, Error> {
    if raw.is_null() {
        return Err(Error::last());
    }
    // SAFETY: not null and NUL-terminated as of libvirt's API; read before it is freed, freed once.
    unsafe {
        let text = CStr::from_ptr(raw);
        let bytes = text.count_bytes();
        let copied = (bytes <= max_bytes).then(|| text.to_string_lossy().into_owned());
        libc::free(raw.cast());
        copied.ok_or_else(|| {
            let message = format!("the answer is {bytes} bytes long; at most {max_bytes} are read");
            Error::own(code::OPERATION_FAILED, message)
        })
    }
}

/// Copies a string that libvirt keeps; null is empty.
///
/// # Safety
/// `raw` is null or a NUL-terminated string that outlives this call.
pub(super) unsafe fn copy(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(raw) }
        .to_string_lossy()
        .into_owned()
}
