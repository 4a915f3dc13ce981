//! Why a VMI cannot be converted.

use std::borrow::Cow;

use api::vmi::QuantityError;
use domain::PciAddressError;

use super::disk_modes::DiskModeError;
use super::disks::BlockSizeError;
use super::pci::{HostError, OutOfBuses};

/// A refusal: which field of the VMI (or of the context), what it holds, and what is allowed.
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
    /// A rule of the conversion: what the field holds, why it is refused, and what is allowed.
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
