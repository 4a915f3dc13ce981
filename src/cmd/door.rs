//! Decodes and checks the VMI of each request. The rest of the launcher gets types.
//!
//! ```text
//!   VMI ──► the bytes of the last one? ──yes──────────────────────────► Arc<Vmi>
//!                └─no─► small: decoded at once           ┐
//!                       large: on a blocking thread,     ├─► name? ours? ─► Arc<Vmi>, and the last one
//!                              one at a time, then trim  ┘
//! ```
//!
//! virt-handler sends the same VMI again and again. [`api::json`] bounds what a document may cost.

use std::sync::{Arc, Mutex, PoisonError};

use prost::bytes::Bytes;
use tokio::sync::Semaphore;

use crate::launcher::{CHANGE_TIMEOUT, LauncherError, SevError, SyncRequest};
use api::proto::cmd::v1;
use api::vmi::Vmi;
use hooks::plugins::Pipeline;
use os::failpoints;
use os::serving_thread::SMALL_INPUT_BYTES;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request has no VMI that can be decoded. virt-handler matches on the text; the reason is in the log.
    #[error("No valid vmi object present in command server request")]
    InvalidVmi,
    /// The VMI is not the one that this launcher was started for.
    #[error("this launcher owns the VMI {ours}; the request is about {theirs}")]
    // D-start-5 (docs/differences.md).
    ForeignVmi {
        /// `<namespace>_<name>` from the flags.
        ours: String,
        /// `<namespace>_<name>` from the request.
        theirs: String,
    },
    /// The launcher could not do it.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// Attestation is not possible.
    #[error(transparent)]
    Sev(#[from] SevError),
}

/// What is wrong with a VMI.
#[derive(Debug, thiserror::Error)]
enum InvalidVmi {
    #[error("{0}")]
    Json(serde_json::Error),
    #[error("metadata.{0} is empty")]
    NoIdentity(&'static str),
}

/// Decodes what requests bring.
pub(super) struct Door {
    /// `<namespace>_<name>` of the VMI that this launcher owns.
    domain_name: String,
    /// The last VMI that was decoded, and its bytes.
    last_vmi: Mutex<Option<(Bytes, Arc<Vmi>)>>,
    /// One large input is decoded at a time: together they would take more memory than a pod has to spare.
    large_inputs: Arc<Semaphore>,
}

impl Door {
    pub fn new(domain_name: &str) -> Self {
        Self {
            domain_name: domain_name.to_owned(),
            last_vmi: Mutex::default(),
            large_inputs: Arc::new(Semaphore::new(1)),
        }
    }

    /// The VMI of a request, which must be ours.
    ///
    /// # Errors
    /// [`CallError::InvalidVmi`], also without a VMI, and [`CallError::ForeignVmi`].
    pub async fn vmi(&self, vmi: Option<v1::Vmi>) -> Result<Arc<Vmi>, CallError> {
        let json = vmi.unwrap_or_default().vmi_json;
        if let Some((bytes, vmi)) = &*self.last_vmi()
            && *bytes == json
        {
            return Ok(vmi.clone());
        }
        let vmi = self.decode(json.clone(), read_vmi).await?;
        let vmi = vmi.map_err(|reason| {
            tracing::error!(%reason, "No valid VMI in the request");
            CallError::InvalidVmi
        })?;
        let theirs = vmi.domain_name();
        if theirs != self.domain_name {
            return Err(CallError::ForeignVmi {
                ours: self.domain_name.clone(),
                theirs,
            });
        }
        let vmi = Arc::new(vmi);
        *self.last_vmi() = Some((json, vmi.clone()));
        Ok(vmi)
    }

    /// A request for the domain that its VMI and options describe.
    ///
    /// # Errors
    /// Those of [`Self::vmi`]; the plugins cannot be read.
    pub async fn sync_request(&self, request: v1::VmiRequest) -> Result<SyncRequest, CallError> {
        let deadline = os::time::deadline(CHANGE_TIMEOUT);
        let vmi_json = request.vmi.clone().unwrap_or_default().vmi_json;
        let vmi = self.vmi(request.vmi).await?;
        let options = request.options.unwrap_or_default();
        let plugins = self.decode(options.plugins_json.clone(), read_plugins);
        let plugins = plugins.await??;
        Ok(SyncRequest {
            vmi,
            vmi_json,
            options: Arc::new(options),
            plugins,
            deadline,
        })
    }

    /// Decodes input with `read`, on a blocking thread if it is large. That thread goes on, and keeps
    /// its turn, if the caller gives up.
    ///
    /// # Errors
    /// [`LauncherError::Worker`] when `read` panics.
    pub async fn decode<T: Send + 'static>(
        &self,
        input: Bytes,
        read: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        if input.len() <= SMALL_INPUT_BYTES {
            return Ok(read(&input));
        }
        // Never closed, so this waits, and does not fail.
        let permit = self.large_inputs.clone().acquire_owned().await;
        let decoded = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            failpoints::hit("request.decoding");
            let decoded = read(&input);
            libvirt::trim();
            decoded
        });
        let what = "decoding the request";
        Ok(decoded.await.map_err(|_| LauncherError::Worker { what })?)
    }

    fn last_vmi(&self) -> std::sync::MutexGuard<'_, Option<(Bytes, Arc<Vmi>)>> {
        self.last_vmi.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_vmi(json: &[u8]) -> Result<Vmi, InvalidVmi> {
    let vmi: Vmi = api::json::from_slice(json).map_err(InvalidVmi::Json)?;
    for (name, value) in [
        ("name", &vmi.metadata.name),
        ("namespace", &vmi.metadata.namespace),
    ] {
        if value.is_empty() {
            return Err(InvalidVmi::NoIdentity(name));
        }
    }
    Ok(vmi)
}

/// The plugins of the sync options.
fn read_plugins(json: &[u8]) -> Result<Pipeline, LauncherError> {
    Ok(Pipeline::from_json(json)?)
}

#[cfg(test)]
#[path = "tests/door.rs"]
mod tests;
