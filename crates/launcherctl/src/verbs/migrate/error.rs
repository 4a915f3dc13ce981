use std::path::PathBuf;

/// The guest has left, but has not arrived in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "the guest has left the source, and its arrival at the target in {root} is not reported after {1} s; the target's log says more",
    root = .0.display()
)]
pub struct NotArrived(pub PathBuf, pub u64);

/// A signal came before the migration started.
pub const CANCELLED: &str =
    "cancelled before the migration began, and the guest runs on where it was";
