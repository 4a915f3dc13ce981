//! Questions to the guest agent of a domain. Every call waits until the agent has answered, or
//! libvirt gives up: see [`DomainHandle::set_agent_timeout`].

use std::ffi::{CString, c_char, c_int, c_uint};
use std::time::Duration;

use virt::sys;

use super::c;
use super::domain::DomainHandle;
use super::error::{Error, code};
use super::typed_params::{ParamValue, TypedParams};

/// What [`DomainHandle::guest_info`] can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestInfoKind {
    /// Users who are logged in.
    Users,
    Os,
    Timezone,
    Hostname,
    /// Network interfaces and their addresses.
    Interfaces,
    /// The load average; since libvirt 11.2.
    Load,
}

impl GuestInfoKind {
    fn flag(self) -> c_uint {
        match self {
            Self::Users => sys::VIR_DOMAIN_GUEST_INFO_USERS,
            Self::Os => sys::VIR_DOMAIN_GUEST_INFO_OS,
            Self::Timezone => sys::VIR_DOMAIN_GUEST_INFO_TIMEZONE,
            Self::Hostname => sys::VIR_DOMAIN_GUEST_INFO_HOSTNAME,
            Self::Interfaces => sys::VIR_DOMAIN_GUEST_INFO_INTERFACES,
            Self::Load => sys::VIR_DOMAIN_GUEST_INFO_LOAD,
        }
    }
}

impl DomainHandle {
    /// Sends a command (JSON) to the guest agent and returns its answer (JSON), if that is at most
    /// `max_bytes` long. `wait` is rounded up to seconds.
    pub fn agent_command(
        &self,
        command: &str,
        wait: Duration,
        max_bytes: usize,
    ) -> Result<String, Error> {
        let command = c::text("the agent command", command)?;
        let seconds = seconds(wait)?;
        // SAFETY: domain and string are valid for the call; the result is ours to free.
        unsafe {
            let answer = sys::virDomainQemuAgentCommand(self.raw, command.as_ptr(), seconds, 0);
            c::take_at_most(answer, max_bytes)
        }
    }

    /// How long libvirt waits for an answer of the agent, but for [`Self::agent_command`], which
    /// says it itself, and a shutdown or reboot, for which it waits a minute. Without it: for ever.
    /// Rounded up to seconds.
    pub fn set_agent_timeout(&self, timeout: Duration) -> Result<(), Error> {
        let seconds = seconds(timeout)?;
        // SAFETY: the domain is valid.
        self.done(unsafe { sys::virDomainAgentSetResponseTimeout(self.raw, seconds, 0) })
    }

    /// The agent's facts about the guest, under libvirt's names, such as `os.name` and
    /// `if.0.addr.0.addr`. Fails if the agent does not know one of `kinds`.
    pub fn guest_info(&self, kinds: &[GuestInfoKind]) -> Result<Vec<(String, ParamValue)>, Error> {
        let types = kinds.iter().fold(0, |types, kind| types | kind.flag());
        let mut params = TypedParams::new();
        let (list, len) = params.places();
        // SAFETY: the domain is valid, and so are both places; we free the result.
        c::check(unsafe { sys::virDomainGetGuestInfo(self.raw, types, list, len, 0) })?;
        Ok(params.read())
    }

    /// Replaces a user's `authorized_keys` in the guest.
    pub fn set_authorized_ssh_keys(&self, user: &str, keys: &[String]) -> Result<(), Error> {
        let user = c::text("the user's name", user)?;
        let keys: Vec<CString> = keys
            .iter()
            .map(|key| c::text("an SSH key", key))
            .collect::<Result<_, _>>()?;
        let mut pointers: Vec<*const c_char> = keys.iter().map(|key| key.as_ptr()).collect();
        let count = c_uint::try_from(pointers.len())
            .map_err(|_| Error::own(code::INVALID_ARG, "too many SSH keys".to_owned()))?;
        // SAFETY: domain and strings are valid for the call, and the pointers are as many as is
        // said.
        self.done(unsafe {
            sys::virDomainAuthorizedSSHKeysSet(
                self.raw,
                user.as_ptr(),
                pointers.as_mut_ptr(),
                count,
                0,
            )
        })
    }

    /// Sets a user's password in the guest.
    pub fn set_user_password(&self, user: &str, password: &str) -> Result<(), Error> {
        let user = c::text("the user's name", user)?;
        let password = c::text("the password", password)?;
        // SAFETY: domain and strings are valid for the call.
        self.done(unsafe {
            sys::virDomainSetUserPassword(self.raw, user.as_ptr(), password.as_ptr(), 0)
        })
    }

    /// Sets the guest's clock, through its agent. `since_epoch` is the time since 1970, UTC.
    pub fn set_time(&self, since_epoch: Duration) -> Result<(), Error> {
        let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
        // SAFETY: the domain is valid.
        self.done(unsafe {
            sys::virDomainSetTime(self.raw, seconds, since_epoch.subsec_nanos(), 0)
        })
    }
}

/// Whole seconds, at least one: libvirt's zero and negative numbers mean something else.
fn seconds(wait: Duration) -> Result<c_int, Error> {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    c_int::try_from(seconds).map_err(|_| {
        Error::own(
            code::INVALID_ARG,
            format!("{seconds} s is too long a wait for the agent"),
        )
    })
}
