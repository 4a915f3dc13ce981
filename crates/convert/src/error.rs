//! Why a VMI cannot be converted.

use std::borrow::Cow;

/// A refusal: which field of the VMI (or of the context), what it holds, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ConvertError {
    /// Path of the field, e.g. `spec.domain.devices.disks[3].disk.bus`.
    pub field: Cow<'static, str>,
    /// The value, why it is refused, and what is allowed.
    pub reason: String,
}

impl ConvertError {
    /// A refusal of the field at `field`.
    pub fn new(field: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }
}
