//! Keeping the process small: its memory is part of every pod's.

/// Makes glibc keep one heap instead of one for each thread, and give freed memory back early. Call
/// it first in `main`.
pub fn keep_small() {
    const TRIM_THRESHOLD: libc::c_int = 128 * 1024;
    // SAFETY: mallopt only changes parameters of the allocator; it may be called at any time, and a
    // refusal (0) leaves the defaults.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    }
}

/// Gives free pages of the heap back to the system: worth it after a sync, which has large,
/// short-lived documents.
pub fn trim() {
    // SAFETY: malloc_trim takes the allocator's own locks and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
