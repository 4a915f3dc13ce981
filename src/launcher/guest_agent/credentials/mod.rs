//! `spec.accessCredentials`: sets SSH keys (`authorized_keys`) and passwords in the guest, by its
//! agent. A changed Secret is read again after [`CHANGE_DELAY`], all every [`RESYNC_INTERVAL`].
//!
//! ```text
//!   guest runs ─► apply ─► result in the metadata ─► wait: a secret changes · an agent connects · 5 minutes
//!                   ▲      (no failure in the first 15 s)    · 15 s after a failure, while there is an agent
//!                   └────────────────────────────────────────┘
//! ```

mod keys_file;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::error::AgentError;
use super::exec::AgentCommands;
use super::poll;
use super::poller::set_response_timeout;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{LibvirtDomain, blocking};
use crate::launcher::pod_backend::PodBackend;
use crate::launcher::vm::Phase;
use crate::launcher::warnings::Warnings;
use api::vmi::Vmi;
use os::failpoints;
use os::inotify::DirWatch;
use pod::AccessCredentials;

/// Limit of one call to the agent, including the wait for other calls.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before a changed Secret is read again: the kubelet replaces its files one by one.
const CHANGE_DELAY: Duration = Duration::from_secs(2);
/// Failures in this time after the guest's start are not reported: the agent starts, and cloud-init
/// makes users, later than the guest. KubeVirt makes its first attempt after this time.
const QUIET_TIME: Duration = Duration::from_secs(15);
/// Delay before a failure is retried while there is an agent.
const RETRY_DELAY: Duration = Duration::from_secs(15);
/// Interval of setting the credentials again, as the guest may have changed them.
const RESYNC_INTERVAL: Duration = Duration::from_secs(300);
/// The texts are KubeVirt's.
const KEYS: &str = "writing ssh pub key access credentials";
const PASSWORD: &str = "setting password";
/// The Kubernetes event that KubeVirt sends from v1.10 on when keys are set by [`keys_file`].
const KEYS_FILE_EVENT: &str = "AccessCredentialsSyncSuccess";
const KEYS_FILE_MESSAGE: &str = "The SSH keys were written to authorized_keys, as the guest agent has no command to set them. \
    KubeVirt will drop this method in a later release; update the QEMU guest agent to 5.2 or newer";

/// Sets a VMI's credentials in its guest.
pub(super) struct Credentials {
    pub(super) libvirt: Arc<LibvirtDomain>,
    pub(super) pod: Arc<dyn PodBackend>,
    pub(super) commands: AgentCommands,
    pub(super) warnings: Warnings,
    /// Number of times an agent has connected.
    pub(super) connects: watch::Receiver<u64>,
    pub(super) is_followed: AtomicBool,
}

impl Credentials {
    /// Follows the credentials of a VMI that has any, once in a launcher's life.
    pub fn follow(self: &Arc<Self>, vmi: &Vmi) {
        let has_some = !vmi.spec.access_credentials.is_empty();
        if has_some && !self.is_followed.swap(true, Ordering::Relaxed) {
            tokio::spawn(self.clone().run(vmi.clone()));
        }
    }

    // D-agent-10, D-agent-15 (docs/differences.md).
    async fn run(self: Arc<Self>, vmi: Vmi) {
        let mut unwatched = match pod::access_credential_dirs(self.pod.flags(), &vmi) {
            Ok(dirs) if dirs.is_empty() => return,
            Ok(dirs) => dirs,
            Err(error) => return self.report(Err(error.into())),
        };
        let watch = DirWatch::new();
        let mut state = self.libvirt.vm.subscribe();
        let mut connects = self.connects.clone();
        let mut quiet_until = None;
        let mut is_warned = false;
        loop {
            // The sender lives in the VM, so this does not fail.
            drop(state.wait_for(|vm| vm.phase == Phase::Running).await);
            let quiet_until = *quiet_until.get_or_insert_with(|| os::time::deadline(QUIET_TIME));
            connects.mark_unchanged();
            // One that is missing is a failure to apply it, which is tried again.
            unwatched.retain(|dir| watch.add(dir).is_err());
            let applied = self.apply(&vmi).await;
            // One that has come meanwhile may have been read before it is watched, and changed.
            let missing = unwatched.len();
            unwatched.retain(|dir| watch.add(dir).is_err());
            if unwatched.len() < missing {
                continue;
            }
            let next = match &applied {
                Ok(_) => Next::RESYNC,
                Err(_) => {
                    Next::after_failure(Instant::now(), quiet_until, self.libvirt.vm.has_agent())
                }
            };
            let wrote_file = matches!(applied, Ok(SetKeys::File));
            if wrote_file && !is_warned {
                self.warnings
                    .send(KEYS_FILE_EVENT, KEYS_FILE_MESSAGE.to_owned());
            }
            is_warned = wrote_file;
            if next.is_reported {
                self.report(applied.map(drop));
            }
            tokio::select! {
                // A polling watch returns without a change; the next resync finds one.
                () = watch.changed(), if !watch.polls() => {
                    tracing::info!("Reloading access credentials because secret changed");
                    sleep(CHANGE_DELAY).await;
                }
                _ = connects.changed() => {}
                () = sleep(next.delay) => {}
            }
        }
    }

    /// Sets all credentials that it can; passwords by `virDomainSetUserPassword`. Returns the first
    /// failure, else whether any user's keys were written to the file.
    async fn apply(&self, vmi: &Vmi) -> Result<SetKeys, LauncherError> {
        // The poller may not have set the timeout yet; without it the calls below have no limit.
        set_response_timeout(&self.libvirt).await;
        let ping = self
            .libvirt
            .agent_call("pinging the guest agent", CALL_TIMEOUT, |domain| {
                Ok(poll::command(domain, "guest-ping")?)
            });
        if ping.await.is_err() {
            return Err(AgentError::Offline.into());
        }
        let (pod, vmi) = (self.pod.clone(), vmi.clone());
        let read = blocking("reading the access credentials", move || {
            failpoints::hit("credentials.reading");
            Ok(pod::access_credentials(pod.flags(), &vmi))
        });
        let AccessCredentials {
            ssh_keys,
            passwords,
            unreadable,
        } = read.await?;
        let mut first = unreadable.map_or(Ok(()), |error| Err(error.into()));
        let mut set_keys = SetKeys::Command;
        for (user, keys) in ssh_keys {
            let set = self.set_keys(&user, keys).await;
            if matches!(set, Ok(SetKeys::File)) {
                set_keys = SetKeys::File;
            }
            first = first.and(set.map(drop).map_err(|error| failure(KEYS, user, error)));
        }
        for (user, password) in passwords {
            let name = user.clone();
            let what = "setting a user's password";
            let set = self.libvirt.agent_call(what, CALL_TIMEOUT, move |domain| {
                Ok(domain.set_user_password(&name, &password)?)
            });
            first = first.and(set.await.map_err(|error| failure(PASSWORD, user, error)));
        }
        first.map(|()| set_keys)
    }

    /// Sets the keys by the agent's command for them (`virDomainAuthorizedSSHKeysSet`). If the
    /// agent lacks it, writes `authorized_keys` ([`keys_file`]).
    async fn set_keys(&self, user: &str, keys: Vec<String>) -> Result<SetKeys, LauncherError> {
        let (name, given) = (user.to_owned(), keys.clone());
        let what = "setting a user's SSH keys";
        let set = self.libvirt.agent_call(what, CALL_TIMEOUT, move |domain| {
            Ok(domain.set_authorized_ssh_keys(&name, &given)?)
        });
        let Err(error) = set.await else {
            return Ok(SetKeys::Command);
        };
        tracing::debug!(reason = %os::logging::chain(&error), "The guest agent does not set SSH keys; writing the file");
        let written = keys_file::write(&self.commands, user, &keys, CALL_TIMEOUT).await;
        written.map_err(|file| AgentError::Keys {
            command: os::logging::chain(&error),
            file: Box::new(file),
        })?;
        Ok(SetKeys::File)
    }

    fn report(&self, applied: Result<(), LauncherError>) {
        let message = applied
            .as_ref()
            .err()
            .map(|error| os::logging::chain(error));
        let changed = self
            .libvirt
            .vm
            .change_metadata(|metadata| metadata.access_credentials_applied(message.clone()));
        match message {
            Some(reason) if changed => {
                tracing::error!(reason, "Error encountered writing access credentials");
            }
            None if changed => tracing::info!("The guest has its access credentials"),
            _ => {}
        }
    }
}

/// How SSH keys were set.
enum SetKeys {
    /// By the agent's command, or there are none.
    Command,
    File,
}

/// The reaction to an attempt.
#[derive(Debug, PartialEq, Eq)]
struct Next {
    /// Whether virt-handler gets the result.
    is_reported: bool,
    /// Delay until the next attempt, unless something changes.
    delay: Duration,
}

impl Next {
    const RESYNC: Self = Self {
        is_reported: true,
        delay: RESYNC_INTERVAL,
    };

    fn after_failure(now: Instant, quiet_until: Instant, has_agent: bool) -> Self {
        let left = quiet_until.saturating_duration_since(now);
        if !left.is_zero() {
            return Self {
                is_reported: false,
                delay: left,
            };
        }
        Self {
            is_reported: true,
            delay: if has_agent {
                RETRY_DELAY
            } else {
                RESYNC_INTERVAL
            },
        }
    }
}

fn failure(what: &'static str, user: String, source: LauncherError) -> LauncherError {
    AgentError::Credential {
        what,
        user,
        source: Box::new(source),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // D-agent-10 (docs/differences.md).
    fn failures_count_from_a_while_after_the_start_on() {
        let quiet_until = os::time::deadline(QUIET_TIME);
        let before = |delay| quiet_until.checked_sub(delay).unwrap_or(quiet_until);
        for has_agent in [false, true] {
            let quiet = Next::after_failure(before(Duration::from_secs(9)), quiet_until, has_agent);
            assert!(!quiet.is_reported, "KubeVirt has not looked yet");
            assert_eq!(quiet.delay, Duration::from_secs(9), "then it counts");
        }
        let counts = |has_agent| Next::after_failure(quiet_until, quiet_until, has_agent);
        assert!(counts(false).is_reported && counts(true).is_reported);
        assert_eq!(counts(true).delay, RETRY_DELAY);
        assert_eq!(
            counts(false).delay,
            RESYNC_INTERVAL,
            "an agent that connects ends it"
        );
    }
}
