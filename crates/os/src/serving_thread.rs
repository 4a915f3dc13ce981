//! The thread that serves gRPC calls must not decode large input: all calls wait while it works.
//!
//! Debug builds check this: [`mark`] marks the runtime's thread, and [`assert_may_decode`], which
//! each decoder calls first, panics if that thread gets more than [`SMALL_INPUT_BYTES`].

use std::cell::Cell;

/// Input up to this size may be decoded on any thread: even the worst of it takes a few
/// milliseconds.
pub const SMALL_INPUT_BYTES: usize = 32 << 10;

thread_local! {
    static IS_SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as the one that serves.
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
