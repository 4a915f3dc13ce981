//! Why there is no cloud-init data.

use base64::DecodeError;

/// The VMI's cloud-init data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CloudInitError {
    /// The volume has neither user nor network data.
    #[error(
        "userDataBase64, userData, networkDataBase64 or networkData is required for a cloud-init data source"
    )]
    NoSource,
    /// A hook sidecar has removed all data.
    #[error("UserData or NetworkData is required for cloud-init data source")]
    NoData,
    /// Data are not Base64.
    #[error("{field}: it is not Base64")]
    Base64 {
        /// Such as `userDataBase64`.
        field: &'static str,
        #[source]
        source: DecodeError,
    },
    /// The metadata cannot be written.
    #[error("cloud-init metadata cannot be written as JSON")]
    Metadata(#[source] serde_json::Error),
}
