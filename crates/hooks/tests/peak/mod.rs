//! Measures the peak memory of a function.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting the bytes in use.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(freed: usize, taken: usize) {
    if let Some(more) = taken.checked_sub(freed) {
        PEAK.fetch_max(LIVE.fetch_add(more, Relaxed) + more, Relaxed);
    } else {
        LIVE.fetch_sub(freed - taken, Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract of
// the trait; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0, layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(layout.size(), 0);
        // SAFETY: as promised by the caller; the block is from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old block and the new one may exist at once.
        count(0, size);
        count(layout.size(), 0);
        // SAFETY: as promised by the caller; the block is from `System`.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// The result of `work`, and its peak memory in bytes.
pub fn of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (result, PEAK.load(Relaxed).saturating_sub(before))
}
