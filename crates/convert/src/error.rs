//! Why a VMI cannot be converted.

use std::borrow::Cow;

use api::vmi::QuantityError;
use domain::PciAddressError;

use super::pci::{HostError, OutOfBuses};

/// A refusal: the field of the VMI (or of the context), its value, and the allowed values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ConvertError {
    /// Path of the field, e.g. `spec.domain.devices.disks[3].disk.bus`.
    pub field: Cow<'static, str>,
    /// What is wrong with it.
    pub reason: Reason,
}

impl ConvertError {
    /// A refusal of the field at `field`.
    pub fn new(field: impl Into<Cow<'static, str>>, reason: impl Into<Reason>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }
}

/// Why a field is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A rule of the conversion: the field's value, why it is refused, and the allowed values.
    #[error("{0}")]
    Rule(Cow<'static, str>),
    /// It is not a quantity, or not one that can be used here.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// It is not a PCI address.
    #[error(transparent)]
    PciAddress(#[from] PciAddressError),
    /// The cache mode of a disk is not possible.
    #[error(transparent)]
    DiskMode(#[from] DiskModeError),
    /// The block sizes of a volume cannot be matched.
    #[error(transparent)]
    BlockSize(#[from] BlockSizeError),
    /// The node's sysfs lacks something, or cannot be understood.
    #[error(transparent)]
    Host(#[from] HostError),
    /// There are too many host devices for the PCI buses.
    #[error(transparent)]
    OutOfBuses(#[from] OutOfBuses),
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::Rule(text.into())
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        Self::Rule(text.into())
    }
}

/// Why a disk cannot have the cache mode that it asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskModeError {
    /// A disk without data that is not a CD-ROM drive.
    #[error(
        "cannot be determined: the disk has neither a file nor a device, and only a CD-ROM drive may be empty"
    )]
    NoBackend,
    /// Cache mode `none`, and the file or device at the path does not support `O_DIRECT`.
    #[error(
        "\"none\" needs direct I/O, which {0:?} does not support; leave the mode out or use \"writethrough\""
    )]
    NoDirectIo(String),
    /// Cache mode `none` with an overlay on a device: KubeVirt takes such a device as without
    /// direct I/O.
    #[error(
        "\"none\" needs direct I/O, which the device below the disk's overlay does not support; leave the mode out or use \"writethrough\""
    )]
    NoDirectIoBelow,
}

/// Why the block sizes of a volume cannot be matched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockSizeError {
    /// An empty drive, or a network disk.
    #[error("the disk is neither a device nor a file whose block sizes could be matched")]
    NoBackend,
    /// The image file is missing.
    #[error("the image {0:?} does not exist")]
    NoImage(String),
    /// The device is missing, or may not be opened.
    #[error("the device {0:?} cannot be opened")]
    NoDevice(String),
    /// The device reports neither a logical nor a physical block size.
    #[error("the device {0:?} says that its block sizes are 0")]
    ZeroSizes(String),
}
