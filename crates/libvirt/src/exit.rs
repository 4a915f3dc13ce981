//! The end of a process that uses libvirt.

/// Ends this process without what exit(3) does first: functions registered with atexit(3) and
/// destructors of libraries, which free memory that libvirt's event loop and calls on other threads
/// may still use. Nothing that is buffered is written.
pub fn exit_at_once(status: u8) -> ! {
    // SAFETY: _exit(2) ends the process at once: no code of it runs afterwards.
    unsafe { libc::_exit(status.into()) }
}
