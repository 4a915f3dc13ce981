//! How API objects are read leniently.

use serde::{Deserialize, Deserializer};

/// Reads a field for which `null` means the same as absent.
///
/// # Errors
/// Those of the value itself.
pub fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
