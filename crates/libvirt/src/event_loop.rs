//! libvirt's event loop, on a thread of its own.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::time::Duration;

use virt::sys;

use super::c;
use super::error::{Error, code};

/// Callbacks only hand events on, but the embedded driver's own handlers run here too.
const STACK: usize = 512 * 1024;

/// Starts the loop; without it no event arrives, and the embedded driver will not open. Call it
/// before the first [`super::Connection::open`]; a second call does nothing.
pub fn start_event_loop() -> Result<(), Error> {
    static STARTED: OnceLock<Result<(), Error>> = OnceLock::new();
    STARTED.get_or_init(start).clone()
}

fn start() -> Result<(), Error> {
    super::control_forks().map_err(|error| {
        let message = format!("the children of libvirt's driver cannot be controlled: {error}");
        Error::own(code::SYSTEM_ERROR, message)
    })?;
    // SAFETY: each registers with libvirt once and before any connection; `quiet` is a function, so
    // it lives for ever.
    unsafe {
        c::check(sys::virInitialize())?;
        sys::virSetErrorFunc(std::ptr::null_mut(), Some(quiet));
        c::check(sys::virEventRegisterDefaultImpl())?;
    }
    std::thread::Builder::new()
        .name("libvirt-events".into())
        .stack_size(STACK)
        .spawn(run)
        .map(drop)
        .map_err(|e| {
            Error::own(
                code::SYSTEM_ERROR,
                format!("no thread for libvirt's events: {e}"),
            )
        })
}

fn run() {
    loop {
        // SAFETY: the default implementation is registered, and only this thread runs it.
        if let Err(error) = c::check(unsafe { sys::virEventRunDefaultImpl() }) {
            tracing::error!(reason = %error, "libvirt's event loop failed; trying again");
            #[expect(
                clippy::disallowed_methods,
                reason = "a pause before the retry, in a thread that has nothing else to do"
            )]
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Takes the place of the handler that prints to stderr: each failed call already returns its
/// error.
unsafe extern "C" fn quiet(_: *mut c_void, error: sys::virErrorPtr) {
    if error.is_null() {
        return;
    }
    // SAFETY: libvirt passes its current error, valid for the call.
    let (code, message) = unsafe { ((*error).code, c::copy((*error).message)) };
    tracing::trace!(code, "libvirt: {message}");
}
