//! Sets the guest's clock by its agent (`guest-set-time`, `virDomainSetTime`): the clock stands
//! still during a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{CHANGE_TIMEOUT, LibvirtDomain};

/// How long this tries every second; the agent may need time to answer after a pause.
const ATTEMPTS_TIME: Duration = Duration::from_secs(60);

pub(in crate::launcher) struct GuestClock {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    pub(in crate::launcher) is_set: AtomicBool,
}

impl GuestClock {
    /// Sets the clock in the background, if an agent is connected. As in the reference, only the
    /// first call does: from then on the guest's time service keeps the time.
    pub fn set(&self) {
        if self.libvirt.vm.has_agent() && !self.is_set.swap(true, Ordering::Relaxed) {
            tokio::spawn(set_time(self.libvirt.clone()));
        }
    }
}

async fn set_time(libvirt: Arc<LibvirtDomain>) {
    let mut last = None;
    let end = os::time::deadline(ATTEMPTS_TIME);
    while Instant::now() < end {
        let attempt = libvirt.agent_call("setting the guest's clock", CHANGE_TIMEOUT, |domain| {
            // A host clock before 1970 counts as 1970.
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            Ok(domain.set_time(now.unwrap_or_default())?)
        });
        match attempt.await {
            Ok(()) => return tracing::info!("guest VM time sync finished successfully"),
            Err(error) if is_final(&error) => {
                let reason = os::logging::chain(&error);
                return tracing::warn!(%reason, "The guest's clock cannot be set");
            }
            Err(error) => last = Some(os::logging::chain(&error)),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let reason = last.unwrap_or_default();
    tracing::warn!(%reason, "The guest's clock is not set");
}

/// Whether a retry would also fail: there is no agent, or it lacks the command. The command's own
/// errors, such as a busy hardware clock, may pass.
fn is_final(error: &LauncherError) -> bool {
    match error {
        LauncherError::Libvirt(error) => error.is_missing_agent_command(),
        LauncherError::NoDomain => true,
        _ => false,
    }
}
