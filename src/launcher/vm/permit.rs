//! Permission to change the domain: libvirt's calls that change it ask for one.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use libvirt::MayChange;

/// Gives out the turn to change the domain, in the order in which it is asked for.
#[derive(Default)]
pub(super) struct Turns(Arc<Mutex<()>>);

/// Permission to change the domain. The turn, if it has that, ends with its last clone: a change
/// that goes on after its caller has given up keeps it.
#[derive(Clone)]
pub struct Permit(pub(super) PermitKind);

/// What it was given for.
#[derive(Clone)]
pub enum PermitKind {
    /// For changes that run one after the other.
    InTurn { _turn: Arc<OwnedMutexGuard<()>> },
    /// For a request that runs beside changes and jobs.
    AtOnce,
    /// For the changes that a job makes.
    OfJob,
}

impl MayChange for Permit {}

impl Permit {
    pub fn kind(&self) -> &PermitKind {
        &self.0
    }
}

impl Turns {
    pub async fn next(&self) -> Permit {
        let guard = self.0.clone().lock_owned().await;
        Permit(PermitKind::InTurn {
            _turn: Arc::new(guard),
        })
    }
}
