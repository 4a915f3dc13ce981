//! The turn to change the domain: one change after the other.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Gives out turns in the order of the requests.
#[derive(Default)]
pub(super) struct Turns(Arc<Mutex<()>>);

/// The turn to change the domain. It ends when its last clone is dropped: a change that continues
/// after its caller has given up keeps it.
#[derive(Clone)]
pub struct Turn {
    _guard: Arc<OwnedMutexGuard<()>>,
}

impl Turns {
    pub async fn next(&self) -> Turn {
        Turn {
            _guard: Arc::new(self.0.clone().lock_owned().await),
        }
    }
}
