//! Why devices of the running domain could not be changed.

use convert::ConvertError;
use convert::plan::{InterfaceWhy, Verb};
use pod::PodError;
use pod::network::NetworkError;

/// The devices that could not be changed. All other devices were changed.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DeviceFailures(pub Vec<DeviceFailure>);

impl DeviceFailures {
    /// Whether a change failed because libvirt's daemon ended.
    pub(in crate::launcher) fn is_connection_lost(&self) -> bool {
        self.0.iter().any(|failure| match failure {
            DeviceFailure::Disk {
                cause: DiskError::Libvirt(error),
                ..
            }
            | DeviceFailure::Interface { refusal: error, .. } => error.is_connection_lost(),
            _ => false,
        })
    }
}

/// A device of the running domain that could not be changed. The texts contain the causes.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFailure {
    #[error("disk \"{volume}\" ({target}): {verb}: {}", os::logging::chain(.cause))]
    Disk {
        volume: String,
        /// Target device, such as `sda`.
        target: String,
        verb: Verb,
        cause: DiskError,
    },
    #[error("interface \"{name}\": {action}: {refusal}")]
    Interface {
        /// The interface's name in the VMI.
        name: String,
        /// What was to be done with it.
        action: String,
        refusal: libvirt::Error,
    },
    /// The network of a new interface could not be set up.
    #[error("{}", os::logging::chain(.0))]
    Network(NetworkError),
    /// An interface that a later sync could not plug in either.
    #[error("{0}")]
    NoDevice(InterfaceWhy),
}

/// Why a disk could not be changed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum DiskError {
    Libvirt(#[from] libvirt::Error),
    /// Its overlay cannot be made.
    Pod(#[from] PodError),
    /// Its file does not allow the cache or I/O mode that the VMI asks for.
    Convert(#[from] ConvertError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> DeviceFailure {
        let error = libvirt::Error {
            code,
            domain: 10,
            message: "no".into(),
        };
        DeviceFailure::Disk {
            volume: "data".into(),
            target: "sda".into(),
            verb: Verb::Attach,
            cause: error.into(),
        }
    }

    #[test]
    fn a_failure_names_the_disk() {
        assert_eq!(
            failure(1).to_string(),
            "disk \"data\" (sda): attach: LibvirtError(Code=1, Domain=10, Message='no')"
        );
    }

    #[test]
    // D-vm-13 (docs/differences.md).
    fn a_disk_that_failed_because_the_daemon_ended_is_known() {
        let (refused, lost) = (failure(1), failure(libvirt::code::RPC));
        assert!(!DeviceFailures(vec![refused]).is_connection_lost());
        assert!(DeviceFailures(vec![failure(1), lost]).is_connection_lost());
    }
}
