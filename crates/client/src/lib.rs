//! Calls of a launcher's cmd socket, as virt-handler makes them.
#![forbid(unsafe_code)]

mod domain_changes;
mod guest_calls;
mod guest_state;
mod migration_calls;
pub mod problems;
pub mod refusal;
pub mod running;
mod until;

pub use domain_changes::{DomainChanges, is_down};
pub use guest_calls::exit_code;
pub use guest_state::{GuestState, has_arrived, is_starting};
pub use until::Until;

use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use prost::bytes::Bytes;
use serde_json::Value;
use tonic::transport::Channel;

use api::proto::cmd::v1::cmd_client::CmdClient;
use api::proto::cmd::v1::{EmptyRequest, Response, VirtualMachineOptions, Vmi, VmiRequest};
use api::proto::inspect::v1::inspect_client::InspectClient;
use api::proto::inspect::v1::{
    DebugRequest, DebugResponse, LastSyncRequest, MetricsRequest, TimelineRequest, TimelineResponse,
};
use api::proto::preview::v1::PlanRequest;
use api::proto::preview::v1::preview_client::PreviewClient;
use api::{Action, STILL_IN_PROGRESS};
use domain::Domain;
use domain::stats::DomainStats;

/// virt-handler's timeout of calls that only read.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// virt-handler's timeout of calls that change something.
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
/// tonic's default, 4 MiB, is too small for a large domain document.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No connection to the socket.
    #[error("no launcher answers on {path}: {why}", path = path.display(), why = refusal::no_connection(path, cause))]
    Connect {
        path: PathBuf,
        /// Not a source: the error's text already explains it.
        cause: os::grpc::ConnectError,
    },
    /// The call got no answer or is not implemented.
    #[error("{asked}: {why}", asked = refusal::asked(call), why = refusal::no_answer(status))]
    Status {
        call: &'static str,
        /// Not a source: its text repeats the message.
        status: Box<tonic::Status>,
    },
    /// The launcher answered with a failure.
    #[error("{asked}: {why}", asked = refusal::asked(call), why = refusal::plain(message))]
    Refused { call: &'static str, message: String },
    /// The answer cannot be read.
    #[error("{asked}: the answer is not the JSON that it should be", asked = refusal::asked(call))]
    Answer {
        call: &'static str,
        source: serde_json::Error,
    },
}

impl CallError {
    /// Whether nothing serves the socket, as far as this user may know.
    #[must_use]
    pub fn has_no_server(&self) -> bool {
        use os::grpc::ConnectError::Connect;
        let Self::Connect { cause, .. } = self else {
            return false;
        };
        !matches!(cause, Connect(error) if error.kind() == std::io::ErrorKind::PermissionDenied)
    }

    /// Whether the requested work may be in progress, so that the call can be repeated.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        match self {
            Self::Refused { message, .. } => message.contains(STILL_IN_PROGRESS),
            // This program's own timeout.
            Self::Status { status, .. } => matches!(
                status.code(),
                tonic::Code::DeadlineExceeded | tonic::Code::Cancelled
            ),
            _ => false,
        }
    }
}

/// The request of the launcher's last sync.
#[derive(Debug, Clone)]
pub struct LastSync {
    pub vmi: Value,
    pub options: VirtualMachineOptions,
}

#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
}

impl Client {
    /// Connects to the socket.
    ///
    /// # Errors
    /// Nothing accepts connections there.
    pub async fn connect(socket: &Path) -> Result<Self, CallError> {
        let channel = os::grpc::connect(socket)
            .await
            .map_err(|cause| CallError::Connect {
                path: socket.to_owned(),
                cause,
            })?;
        Ok(Self { channel })
    }

    pub(crate) fn cmd(&self) -> CmdClient<Channel> {
        CmdClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn inspect(&self) -> InspectClient<Channel> {
        InspectClient::new(self.channel.clone())
    }

    fn preview(&self) -> PreviewClient<Channel> {
        PreviewClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Checks that the launcher answers. libvirt is not asked.
    ///
    /// # Errors
    /// It does not.
    pub async fn ping(&self) -> Result<(), CallError> {
        let call = "Ping";
        let answer = self
            .cmd()
            .ping(with_timeout(EmptyRequest {}, READ_TIMEOUT))
            .await;
        accepted(call, message(call, answer)?)
    }

    /// The domain, if there is one.
    ///
    /// # Errors
    /// The call fails.
    pub async fn domain(&self) -> Result<Option<Domain>, CallError> {
        let call = "GetDomain";
        let answer = self
            .cmd()
            .get_domain(with_timeout(EmptyRequest {}, READ_TIMEOUT))
            .await;
        let answer = message(call, answer)?;
        accepted(call, answer.response.unwrap_or_default())?;
        if answer.domain.is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&answer.domain)
            .map(Some)
            .map_err(|source| CallError::Answer { call, source })
    }

    /// Sends the VMI.
    ///
    /// # Errors
    /// The launcher refuses it.
    pub async fn sync(&self, vmi: &Value, options: VirtualMachineOptions) -> Result<(), CallError> {
        let call = "SyncVirtualMachine";
        let request = request(vmi).with_options(&options);
        let answer = self
            .cmd()
            .sync_virtual_machine(with_timeout(request, CHANGE_TIMEOUT))
            .await;
        accepted(call, message(call, answer)?)
    }

    /// What a sync of the VMI would change.
    ///
    /// # Errors
    /// The launcher refuses it or lacks this call (KubeVirt's does).
    pub async fn plan(&self, vmi: &Value) -> Result<Value, CallError> {
        let call = "Plan";
        let request = PlanRequest {
            vmi_json: Bytes::from(vmi.to_string()),
        };
        let answer = self
            .preview()
            .plan(with_timeout(request, CHANGE_TIMEOUT))
            .await;
        let answer = message(call, answer)?;
        accepted(
            call,
            Response {
                success: answer.success,
                message: answer.message,
            },
        )?;
        serde_json::from_slice(&answer.plan_json)
            .map_err(|source| CallError::Answer { call, source })
    }

    /// The last sync's request; `None` before the first sync, or if the launcher lacks this call
    /// (KubeVirt's does).
    ///
    /// # Errors
    /// The call fails, or the answer is unreadable.
    pub async fn last_sync(&self) -> Result<Option<LastSync>, CallError> {
        let call = "LastSync";
        let answer = InspectClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .last_sync(with_timeout(LastSyncRequest {}, READ_TIMEOUT))
            .await;
        let answer = match answer {
            Err(status) if status.code() == tonic::Code::Unimplemented => return Ok(None),
            answer => message(call, answer)?,
        };
        if answer.vmi_json.is_empty() {
            return Ok(None);
        }
        let vmi = serde_json::from_slice(&answer.vmi_json)
            .map_err(|source| CallError::Answer { call, source })?;
        // A newer launcher's options may have unknown members.
        let options = VirtualMachineOptions::decode(answer.options).unwrap_or_default();
        Ok(Some(LastSync { vmi, options }))
    }

    /// The steps of the start, with their times.
    ///
    /// # Errors
    /// The launcher lacks this call (KubeVirt's does).
    pub async fn timeline(&self) -> Result<TimelineResponse, CallError> {
        let answer = InspectClient::new(self.channel.clone())
            .timeline(with_timeout(TimelineRequest {}, READ_TIMEOUT))
            .await;
        message("Timeline", answer)
    }

    /// What the launcher knows of itself and its VM. May contain secrets.
    ///
    /// # Errors
    /// The launcher lacks this call (KubeVirt's does).
    pub async fn debug(&self) -> Result<DebugResponse, CallError> {
        let answer = InspectClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .debug(with_timeout(DebugRequest {}, READ_TIMEOUT))
            .await;
        message("Debug", answer)
    }

    /// A picture of the guest's screen: MIME type and data.
    ///
    /// # Errors
    /// The launcher has none.
    pub async fn screenshot(&self) -> Result<(String, Vec<u8>), CallError> {
        let call = "GetScreenshot";
        let request = with_timeout(VmiRequest::default(), READ_TIMEOUT);
        let answer = message(call, self.cmd().get_screenshot(request).await)?;
        accepted(call, answer.response.unwrap_or_default())?;
        Ok((answer.mime, answer.data.into()))
    }

    /// Statistics of the running domain.
    ///
    /// # Errors
    /// The launcher has none.
    pub async fn domain_stats(&self) -> Result<DomainStats, CallError> {
        let call = "GetDomainStats";
        let request = with_timeout(EmptyRequest {}, READ_TIMEOUT);
        let answer = message(call, self.cmd().get_domain_stats(request).await)?;
        accepted(call, answer.response.unwrap_or_default())?;
        serde_json::from_str(&answer.domain_stats)
            .map_err(|source| CallError::Answer { call, source })
    }

    /// The launcher's metrics, as OpenMetrics text.
    ///
    /// # Errors
    /// The launcher lacks this call (KubeVirt's does).
    pub async fn metrics(&self) -> Result<String, CallError> {
        let answer = InspectClient::new(self.channel.clone())
            .metrics(with_timeout(MetricsRequest {}, READ_TIMEOUT))
            .await;
        Ok(message("Metrics", answer)?.open_metrics_text)
    }

    /// Makes a lifecycle call for the VMI.
    ///
    /// # Errors
    /// The launcher refuses it.
    pub async fn act(&self, action: Action, vmi: &Value) -> Result<(), CallError> {
        let (mut cmd, request) = (self.cmd(), with_timeout(request(vmi), CHANGE_TIMEOUT));
        let (call, answer) = match action {
            Action::Pause => (
                "PauseVirtualMachine",
                cmd.pause_virtual_machine(request).await,
            ),
            Action::Unpause => (
                "UnpauseVirtualMachine",
                cmd.unpause_virtual_machine(request).await,
            ),
            Action::Reset => (
                "ResetVirtualMachine",
                cmd.reset_virtual_machine(request).await,
            ),
            Action::SoftReboot => (
                "SoftRebootVirtualMachine",
                cmd.soft_reboot_virtual_machine(request).await,
            ),
            Action::Shutdown => (
                "ShutdownVirtualMachine",
                cmd.shutdown_virtual_machine(request).await,
            ),
            Action::Kill => (
                "KillVirtualMachine",
                cmd.kill_virtual_machine(request).await,
            ),
            Action::Delete => (
                "DeleteVirtualMachine",
                cmd.delete_virtual_machine(request).await,
            ),
        };
        accepted(call, message(call, answer)?)
    }
}

/// Unwraps the answer's message.
pub(crate) fn message<T>(
    call: &'static str,
    answer: Result<tonic::Response<T>, tonic::Status>,
) -> Result<T, CallError> {
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| CallError::Status {
            call,
            status: Box::new(status),
        })
}

/// Fails if the launcher answered with a failure.
pub(crate) fn accepted(call: &'static str, response: Response) -> Result<(), CallError> {
    if response.success {
        Ok(())
    } else {
        Err(CallError::Refused {
            call,
            message: response.message,
        })
    }
}

pub(crate) fn with_timeout<T>(message: T, timeout: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(timeout);
    request
}

pub(crate) fn request(vmi: &Value) -> VmiRequest {
    VmiRequest {
        vmi: Some(Vmi {
            vmi_json: Bytes::from(vmi.to_string()),
        }),
        options: Bytes::new(),
    }
}
