//! The guest's clock stands still while the guest is paused; afterwards it is set, if the guest has an agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::libvirt_domain::blocking;
use super::{Launcher, LauncherError};

/// How often the agent is asked, a second apart: it may take its time to wake up.
const ATTEMPTS: u32 = 60;

impl Launcher {
    /// Sets the guest's clock, in the background, as far as its agent lets us. Once in a launcher's life, as in the
    /// reference: after that the guest's own time service is trusted.
    pub(super) fn set_guest_clock(self: &Arc<Self>) {
        if self.has_agent() && !self.clock_is_set.swap(true, Ordering::Relaxed) {
            tokio::spawn(set_time(self.clone()));
        }
    }
}

async fn set_time(launcher: Arc<Launcher>) {
    for _ in 0..ATTEMPTS {
        let (connection, name) = (launcher.domain.connection(), launcher.domain.name().clone());
        let attempt = blocking("setting the guest's clock", move || {
            let Some(domain) = connection.lookup(&name)? else {
                return Err(LauncherError::NoDomain);
            };
            // A clock before 1970 is not worth passing on.
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            Ok(domain.set_time(now)?)
        });
        match attempt.await {
            Ok(()) => return tracing::info!("guest VM time sync finished successfully"),
            Err(LauncherError::Libvirt(error)) if error.is_agent_silent() => {}
            Err(error) => return tracing::warn!(reason = %error, "the guest's clock cannot be set"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tracing::warn!("the guest's agent does not answer; its clock is not set");
}
