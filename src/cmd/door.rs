//! Decodes and checks the VMI of each request into a type.
//!
//! ```text
//!   VMI ──► the bytes of the last one? ──yes──────────────────────────► Arc<Vmi>
//!                └─no─► small: decoded at once           ┐
//!                       large: on a blocking thread,     ├─► name? ours? ─► Arc<Vmi>, and the last one
//!                              one at a time, then trim  ┘
//! ```
//!
//! virt-handler sends the same VMI many times. [`api::json`] limits the cost of decoding.

use std::sync::{Arc, Mutex};

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::launcher::{CHANGE_TIMEOUT, LauncherError, SevError, SyncRequest};
use api::STILL_IN_PROGRESS;
use api::proto::cmd::v1::{self, VirtualMachineOptions};
use api::vmi::Vmi;
use hooks::plugins::Pipeline;
use hooks::{HOOKS_TIMEOUT, RequestId};
use os::failpoints;
use os::lock::lock;
use os::serving_thread::SMALL_INPUT_BYTES;

/// Limit of a sync's options, in bytes. Plugins do not count: they have their own limits. An empty
/// NUMA cell takes two bytes, and 112 when decoded.
const MAX_OPTIONS_BYTES: usize = 256 << 10;

/// Limit of the requests waiting for a large input to be decoded. Each holds its bytes in memory.
const MAX_WAITING: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The VMI is missing or cannot be decoded. virt-handler matches on the text; the log has the
    /// reason.
    #[error("No valid vmi object present in command server request")]
    InvalidVmi,
    /// This launcher was started for another VMI.
    #[error("this launcher owns the VMI {ours}; the request is about {theirs}")]
    // D-start-5 (docs/differences.md).
    ForeignVmi {
        /// `<namespace>_<name>` from the flags.
        ours: String,
        /// `<namespace>_<name>` from the request.
        theirs: String,
    },
    #[error("the options of the request cannot be read: {0}")]
    Options(#[from] InvalidOptions),
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// Too many large requests wait, or the turn does not come in time.
    #[error(
        "decoding the request: another large one {STILL_IN_PROGRESS}; nothing was done, send it again"
    )]
    Busy,
    /// The launch secret cannot be read, or the attestation fails.
    #[error(transparent)]
    Sev(#[from] SevError),
}

#[derive(Debug, thiserror::Error)]
pub enum InvalidOptions {
    /// Larger than [`MAX_OPTIONS_BYTES`].
    #[error("they have {0} bytes without the plugins; at most {MAX_OPTIONS_BYTES} are read")]
    TooLarge(usize),
    /// Not a `VirtualMachineOptions`.
    #[error(transparent)]
    Protobuf(#[from] prost::DecodeError),
}

/// Only the plugins of a `VirtualMachineOptions`. The decoder skips the rest.
#[derive(Clone, PartialEq, Message)]
struct PluginsOption {
    #[prost(bytes = "bytes", tag = "10")]
    plugins_json: Bytes,
}

/// Decodes the input of requests.
pub(super) struct Door {
    /// `<namespace>_<name>` of the launcher's VMI.
    domain_name: String,
    /// The last decoded VMI and its bytes.
    last_vmi: Mutex<Option<(Bytes, Arc<Vmi>)>>,
    /// Allows one large input at a time: several together would take more memory than a pod has to
    /// spare.
    large_inputs: Arc<Semaphore>,
    /// One permit for each request that waits for its turn.
    waiting: Semaphore,
}

impl Door {
    pub fn new(domain_name: &str) -> Self {
        Self {
            domain_name: domain_name.to_owned(),
            last_vmi: Mutex::default(),
            large_inputs: Arc::new(Semaphore::new(1)),
            waiting: Semaphore::new(MAX_WAITING),
        }
    }

    /// The VMI of a request, which must be ours.
    ///
    /// # Errors
    /// [`DoorError::InvalidVmi`], also without a VMI, and [`DoorError::ForeignVmi`].
    pub async fn vmi(&self, vmi: Option<v1::Vmi>) -> Result<Arc<Vmi>, DoorError> {
        let json = vmi.unwrap_or_default().vmi_json;
        if let Some((bytes, vmi)) = &*lock(&self.last_vmi)
            && *bytes == json
        {
            return Ok(vmi.clone());
        }
        let vmi = self.decode(json.clone(), read_vmi).await?;
        let vmi = vmi.map_err(|reason| {
            tracing::error!(%reason, "No valid VMI in the request");
            DoorError::InvalidVmi
        })?;
        let theirs = vmi.domain_name();
        if theirs != self.domain_name {
            return Err(DoorError::ForeignVmi {
                ours: self.domain_name.clone(),
                theirs,
            });
        }
        let vmi = Arc::new(vmi);
        *lock(&self.last_vmi) = Some((json, vmi.clone()));
        Ok(vmi)
    }

    /// Decodes a request for the domain that its VMI and options describe.
    ///
    /// # Errors
    /// Those of [`Self::vmi`] and [`Self::options`], and unreadable plugins.
    pub async fn sync_request(&self, request: v1::VmiRequest) -> Result<SyncRequest, DoorError> {
        let hooks_deadline = os::time::deadline(HOOKS_TIMEOUT);
        let vmi_json = request.vmi.clone().unwrap_or_default().vmi_json;
        let vmi = self.vmi(request.vmi).await?;
        let options = self.options(request.options).await?;
        let plugins = self.decode(options.plugins_json.clone(), read_plugins);
        let plugins = plugins.await??;
        Ok(SyncRequest {
            vmi,
            vmi_json,
            options: Arc::new(options),
            plugins,
            id: RequestId::unique(),
            hooks_deadline,
        })
    }

    pub async fn options(&self, options: Bytes) -> Result<VirtualMachineOptions, DoorError> {
        Ok(self.decode(options, read_options).await??)
    }

    /// Decodes input with `read`, on a blocking thread if it is large. If the caller gives up, the
    /// thread goes on and keeps its turn.
    ///
    /// # Errors
    /// [`LauncherError::Worker`] if `read` panics, and [`DoorError::Busy`].
    pub async fn decode<T: Send + 'static>(
        &self,
        input: Bytes,
        read: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, DoorError> {
        if input.len() <= SMALL_INPUT_BYTES {
            return Ok(read(&input));
        }
        let what = "decoding the request";
        let turn = async {
            let _place = self.waiting.try_acquire().ok()?;
            let turn = self.large_inputs.clone().acquire_owned();
            timeout(CHANGE_TIMEOUT, turn).await.ok()?.ok()
        };
        let turn = turn.await.ok_or(DoorError::Busy)?;
        let decoded = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            failpoints::hit("request.decoding");
            let decoded = read(&input);
            libvirt::trim();
            decoded
        });
        Ok(decoded.await.map_err(|_| LauncherError::Worker { what })?)
    }
}

/// The error is for the log.
fn read_vmi(json: &[u8]) -> Result<Vmi, String> {
    let vmi: Vmi = api::json::from_slice(json).map_err(|error| error.to_string())?;
    for (name, value) in [
        ("name", &vmi.metadata.name),
        ("namespace", &vmi.metadata.namespace),
    ] {
        if value.is_empty() {
            return Err(format!("metadata.{name} is empty"));
        }
    }
    Ok(vmi)
}

fn read_options(options: &[u8]) -> Result<VirtualMachineOptions, InvalidOptions> {
    let plugins = PluginsOption::decode(options)?.plugins_json;
    let size = options.len().saturating_sub(plugins.len());
    if size > MAX_OPTIONS_BYTES {
        return Err(InvalidOptions::TooLarge(size));
    }
    Ok(VirtualMachineOptions::decode(options)?)
}

fn read_plugins(json: &[u8]) -> Result<Pipeline, LauncherError> {
    Ok(Pipeline::from_json(json)?)
}

#[cfg(test)]
#[path = "tests/door.rs"]
mod tests;
