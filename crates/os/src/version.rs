//! The version of the running executable, for its log and `--version`.

use std::sync::OnceLock;

static VERSION: OnceLock<&'static str> = OnceLock::new();

/// Sets the version, such as `0.1.0 (commit 0123456789ab)`: to be called first in `main`.
pub fn set(version: &'static str) {
    // The first one counts.
    let _ = VERSION.set(version);
}

/// The version that `main` has set.
#[must_use]
pub fn get() -> &'static str {
    VERSION.get().copied().unwrap_or("unknown version")
}
