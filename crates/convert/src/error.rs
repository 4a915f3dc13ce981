//! Why a VMI cannot be converted.

use std::borrow::Cow;
use std::fmt::Display;

/// A refusal: the field of the VMI (or of the context), its value, and the allowed values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct ConvertError {
    /// Path of the field, e.g. `spec.domain.devices.disks[3].disk.bus`.
    pub field: Cow<'static, str>,
    /// What is wrong with its value, and which are allowed.
    pub reason: String,
}

impl ConvertError {
    /// A refusal of the field at `field`.
    pub fn new(field: impl Into<Cow<'static, str>>, reason: impl Display) -> Self {
        Self {
            field: field.into(),
            reason: reason.to_string(),
        }
    }

    /// Refuses the field at `field` for an error: `map_err(ConvertError::of(FIELD))`.
    pub fn of<E: Display>(field: impl Into<Cow<'static, str>>) -> impl FnOnce(E) -> Self {
        move |error| Self::new(field, error)
    }
}

/// Leaves the function with a refusal: the field, and its reason as [`format!`] takes it.
macro_rules! refuse {
    ($field:expr, $($reason:tt)+) => {
        return Err($crate::ConvertError::new($field, format!($($reason)+)))
    };
}
pub(crate) use refuse;
