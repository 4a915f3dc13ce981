//! The thread that serves: every call waits while it works, so input that others write is decoded elsewhere.
//!
//! Debug builds check this. [`mark`] names the thread on which the runtime runs; [`assert_may_decode`] stands at the entry
//! of each decoder, and panics where that thread is given more than [`SMALL_INPUT_BYTES`].

use std::cell::Cell;

/// Input up to this size may be decoded on any thread: even the worst of it takes a few milliseconds.
pub const SMALL_INPUT_BYTES: usize = 32 << 10;

thread_local! {
    static IS_SERVING: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread is the one that serves.
pub fn mark() {
    IS_SERVING.set(true);
}

/// Checks, in a debug build, that the calling thread may decode so many bytes.
///
/// # Panics
/// In a debug build, if it is the thread that serves and the input is not small.
#[inline]
pub fn assert_may_decode(bytes: usize) {
    debug_assert!(
        bytes <= SMALL_INPUT_BYTES || !IS_SERVING.get(),
        "{bytes} bytes are decoded on the thread that serves; use spawn_blocking"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_thread_that_serves_is_refused_large_input() {
        let decode = |bytes: usize| std::thread::spawn(move || assert_may_decode(bytes)).join();
        assert!(decode(SMALL_INPUT_BYTES + 1).is_ok());
        let served = std::thread::spawn(|| {
            mark();
            assert_may_decode(SMALL_INPUT_BYTES);
            assert_may_decode(SMALL_INPUT_BYTES + 1);
        });
        let panic = served.join().unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.starts_with("32769 bytes are decoded"), "{text}");
    }
}
