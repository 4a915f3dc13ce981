//! What libvirt says when a call fails.

use std::ffi::CStr;

use virt::sys;

/// An error of libvirt's.
///
/// Its text is the one that virt-handler and users know from KubeVirt (`libvirt.org/go/libvirt`
/// prints errors so).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("LibvirtError(Code={code}, Domain={domain}, Message='{message}')")]
pub struct Error {
    /// `virErrorNumber`, see [`code`].
    pub code: i32,
    /// `virErrorDomain`: the part of libvirt that it comes from.
    pub domain: i32,
    /// libvirt's sentence, with QEMU's own where there is one.
    pub message: String,
}

/// The numbers (`virErrorNumber`) that decisions depend on.
pub mod code {
    pub const INTERNAL_ERROR: i32 = 1;
    pub const INVALID_ARG: i32 = 8;
    pub const OPERATION_FAILED: i32 = 9;
    pub const RPC: i32 = 39;
    pub const SYSTEM_ERROR: i32 = 38;
    pub const NO_CONNECT: i32 = 5;
    pub const NO_SUPPORT: i32 = 3;
    pub const NO_DOMAIN: i32 = 42;
    pub const OPERATION_INVALID: i32 = 55;
    pub const OPERATION_TIMEOUT: i32 = 68;
    pub const NO_DOMAIN_METADATA: i32 = 80;
    pub const ARGUMENT_UNSUPPORTED: i32 = 74;
    pub const OPERATION_UNSUPPORTED: i32 = 84;
    pub const AGENT_UNRESPONSIVE: i32 = 86;
    pub const RESOURCE_BUSY: i32 = 87;
    pub const DEVICE_MISSING: i32 = 99;
    pub const INVALID_DOMAIN_CHECKPOINT: i32 = 102;
    pub const NO_DOMAIN_CHECKPOINT: i32 = 103;
    pub const CHECKPOINT_INCONSISTENT: i32 = 109;
    pub const AGENT_COMMAND_TIMEOUT: i32 = 112;
    pub const AGENT_COMMAND_FAILED: i32 = 113;
}

impl Error {
    /// The calling thread's last error. Only right after a call that failed.
    pub(super) fn last() -> Self {
        // SAFETY: takes no argument; the result is null or libvirt's thread-local error, which
        // stays as it is until this thread calls libvirt again, and this block makes no other call.
        unsafe {
            let raw = sys::virGetLastError();
            if raw.is_null() {
                return Self::own(
                    code::INTERNAL_ERROR,
                    "libvirt failed without saying why".to_owned(),
                );
            }
            let message = if (*raw).message.is_null() {
                String::new()
            } else {
                CStr::from_ptr((*raw).message)
                    .to_string_lossy()
                    .into_owned()
            };
            Self {
                code: (*raw).code,
                domain: (*raw).domain,
                message,
            }
        }
    }

    /// An error of this crate's own, shaped as libvirt's.
    pub(super) fn own(code: i32, message: String) -> Self {
        Self {
            code,
            domain: 0,
            message,
        }
    }

    /// The domain does not exist (any more): `VIR_ERR_NO_DOMAIN`.
    pub fn is_no_domain(&self) -> bool {
        self.code == code::NO_DOMAIN
    }

    /// The domain is not in a state that allows the call, such as not running:
    /// `VIR_ERR_OPERATION_INVALID`.
    pub fn is_operation_invalid(&self) -> bool {
        self.code == code::OPERATION_INVALID
    }

    /// An argument of the call is not valid (`VIR_ERR_INVALID_ARG`).
    pub fn is_invalid_argument(&self) -> bool {
        self.code == code::INVALID_ARG
    }

    /// The driver does not know the call (`VIR_ERR_NO_SUPPORT`, `VIR_ERR_OPERATION_UNSUPPORTED`).
    pub fn is_unsupported(&self) -> bool {
        matches!(self.code, code::NO_SUPPORT | code::OPERATION_UNSUPPORTED)
    }

    /// The device to detach or to update is not there (`VIR_ERR_DEVICE_MISSING`).
    pub fn is_device_missing(&self) -> bool {
        self.code == code::DEVICE_MISSING
    }

    /// The guest agent is not connected, does not answer, or has left a command unanswered
    /// (`VIR_ERR_AGENT_UNRESPONSIVE`, `VIR_ERR_AGENT_COMMAND_TIMEOUT`).
    pub fn is_agent_silent(&self) -> bool {
        matches!(
            self.code,
            code::AGENT_UNRESPONSIVE | code::AGENT_COMMAND_TIMEOUT
        )
    }

    /// The guest agent has answered that it does not do it: libvirt passes its error on
    /// (`VIR_ERR_AGENT_COMMAND_FAILED`).
    pub fn is_agent_refusal(&self) -> bool {
        matches!(
            self.code,
            code::INTERNAL_ERROR
                | code::OPERATION_UNSUPPORTED
                | code::ARGUMENT_UNSUPPORTED
                | code::AGENT_COMMAND_FAILED
        )
    }

    /// The guest agent, or libvirt, does not have the command: asking again is of no use. libvirt
    /// passes on the text of QEMU's agent for all its errors with one code, so the text tells.
    pub fn is_missing_agent_command(&self) -> bool {
        matches!(
            self.code,
            code::OPERATION_UNSUPPORTED | code::ARGUMENT_UNSUPPORTED
        ) || self.has_agents_text("has not been found")
    }

    /// The command is missing, or disabled, as most are while file systems are frozen.
    pub fn is_unknown_agent_command(&self) -> bool {
        self.is_missing_agent_command() || self.has_agents_text("has been disabled")
    }

    fn has_agents_text(&self, text: &str) -> bool {
        self.code == code::AGENT_COMMAND_FAILED && self.message.contains(text)
    }

    /// Another job holds the domain ("cannot acquire state change lock":
    /// `VIR_ERR_OPERATION_TIMEOUT`, `VIR_ERR_RESOURCE_BUSY`).
    pub fn is_busy(&self) -> bool {
        matches!(self.code, code::OPERATION_TIMEOUT | code::RESOURCE_BUSY)
    }

    /// The connection to the daemon is gone: the same call may work on a new one (`VIR_ERR_RPC`,
    /// `VIR_ERR_NO_CONNECT`, some of `VIR_FROM_RPC`).
    pub fn is_connection_lost(&self) -> bool {
        const FROM_RPC: i32 = 7;
        matches!(self.code, code::RPC | code::NO_CONNECT)
            || (self.domain == FROM_RPC
                && matches!(self.code, code::SYSTEM_ERROR | code::INTERNAL_ERROR))
    }
}
