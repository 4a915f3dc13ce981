//! Places at which a test may hold this process, to kill it or its peers there, or let it panic.
//!
//! `VIRT_LAUNCHER_FAILPOINTS` is a directory. At the point `plug.attached` the thread stops while
//! there is a FIFO of that name in it: until the test has opened the FIFO for writing, which waits
//! for the point to be reached, and closed it again. If it is a file with the text `panic`, the
//! thread panics. Only debug builds have the variable and the points.

/// Holds the thread here if a test asks for it.
///
/// # Panics
/// If a test asks for it.
#[inline]
pub fn hit(name: &str) {
    #[cfg(debug_assertions)]
    if let Some(dir) = directory() {
        // No FIFO, no stop.
        let text = std::fs::read(dir.join(name)).unwrap_or_default();
        assert!(text != b"panic", "a test wants a panic at {name}");
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
fn directory() -> Option<&'static std::path::Path> {
    static DIRECTORY: std::sync::OnceLock<Option<std::path::PathBuf>> = std::sync::OnceLock::new();
    DIRECTORY
        .get_or_init(|| std::env::var_os("VIRT_LAUNCHER_FAILPOINTS").map(Into::into))
        .as_deref()
}
