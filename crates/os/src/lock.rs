//! A lock that a panic does not close.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic: nothing done under our locks can leave a value half-changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
