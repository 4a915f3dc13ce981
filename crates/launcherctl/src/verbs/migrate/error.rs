use std::path::PathBuf;

/// A migration does not start, or fails.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A signal came before it started.
    #[error("cancelled before the migration began; the guest runs on where it was")]
    Cancelled,
    /// The guest has left, but has not arrived in time.
    #[error(
        "the guest has left the source, and its arrival at the target in {root} is not reported after {1} s; the target's log says more",
        root = .0.display()
    )]
    NotArrived(PathBuf, u64),
}
