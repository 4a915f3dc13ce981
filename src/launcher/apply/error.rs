//! Why devices of the running domain could not be changed.

use convert::plan::InterfaceWhy;
use pod::network::NetworkError;

/// The devices that could not be changed. All other devices were changed.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DeviceFailures(pub Vec<DeviceFailure>);

impl DeviceFailures {
    /// Whether a change failed because libvirt's daemon ended.
    pub(in crate::launcher) fn is_connection_lost(&self) -> bool {
        self.0.iter().any(|failure| {
            matches!(failure, DeviceFailure::Interface(it) if it.refusal.is_connection_lost())
        })
    }
}

/// A device of the running domain that could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFailure {
    #[error(transparent)]
    Disk(#[from] DiskFailure),
    #[error(transparent)]
    Interface(#[from] InterfaceFailure),
    /// The network of a new interface could not be set up. The text contains the cause.
    #[error("{}", os::logging::chain(.0))]
    Network(NetworkError),
    /// An interface that a later sync could not plug in either.
    #[error("{0}")]
    NoDevice(InterfaceWhy),
}

/// A disk that could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("disk \"{volume}\" ({target}): {verb}: {reason}")]
pub struct DiskFailure {
    pub volume: String,
    /// Target device, such as `sda`.
    pub target: String,
    /// `attach`, `detach` or `update`.
    pub verb: &'static str,
    /// The reason from libvirt or the launcher.
    pub reason: String,
}

/// A network interface that could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("interface \"{name}\": {verb}: {refusal}")]
pub struct InterfaceFailure {
    /// The interface's name in the VMI.
    pub name: String,
    /// `attach`, `detach` or `update`.
    pub verb: &'static str,
    /// libvirt's error. The text contains it, so this is not a source.
    pub refusal: libvirt::Error,
}
