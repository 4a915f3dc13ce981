//! Calls of the cmd socket about the guest and its agent.

use std::process::ExitCode;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    CHANGE_TIMEOUT, CallError, Client, READ_TIMEOUT, accepted, message, request, with_timeout,
};
use api::proto::cmd::v1::{
    EmptyRequest, ExecRequest, ExecResponse, FreezeRequest, GuestPingRequest, Response,
};
use domain::guest_agent::GuestDocument;

/// virt-handler's timeout of a freeze.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(60);
/// virt-handler waits this much longer than the command's own timeout.
const EXEC_TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// The guest agent's report on the guest.
    ///
    /// # Errors
    /// The call fails.
    pub async fn guest_info(&self) -> Result<GuestDocument, CallError> {
        let call = "GetGuestInfo";
        let asked = self.cmd().get_guest_info(read()).await;
        let answer = message(call, asked)?;
        document(call, answer.response, &answer.guest_info_response)
    }

    /// Runs a command in the guest, and waits until it has ended.
    ///
    /// # Errors
    /// The command cannot be run or does not end in time. A nonzero exit status is not an error.
    pub async fn exec(&self, command: ExecRequest) -> Result<ExecResponse, CallError> {
        let timeout = timeout(command.timeout_seconds);
        let request = with_timeout(command, timeout);
        message("Exec", self.cmd().exec(request).await)
    }

    /// Checks that the guest agent answers.
    ///
    /// # Errors
    /// It does not.
    pub async fn guest_ping(&self, ping: GuestPingRequest) -> Result<(), CallError> {
        let timeout = timeout(ping.timeout_seconds);
        let request = with_timeout(ping, timeout);
        message("GuestPing", self.cmd().guest_ping(request).await).map(drop)
    }

    /// Freezes the guest's file systems. The launcher thaws them after `thaw_after` seconds; 0
    /// means never.
    ///
    /// # Errors
    /// The guest does not freeze them.
    pub async fn freeze(&self, vmi: &Value, thaw_after: i32) -> Result<(), CallError> {
        let freeze = FreezeRequest {
            vmi: request(vmi).vmi,
            unfreeze_timeout_seconds: thaw_after,
        };
        let request = with_timeout(freeze, FREEZE_TIMEOUT);
        let answer = self.cmd().freeze_virtual_machine(request).await;
        let call = "FreezeVirtualMachine";
        accepted(call, message(call, answer)?)
    }

    /// Thaws the guest's file systems.
    ///
    /// # Errors
    /// The guest does not thaw them.
    pub async fn unfreeze(&self, vmi: &Value) -> Result<(), CallError> {
        let request = with_timeout(request(vmi), CHANGE_TIMEOUT);
        let answer = self.cmd().unfreeze_virtual_machine(request).await;
        let call = "UnfreezeVirtualMachine";
        accepted(call, message(call, answer)?)
    }
}

fn read() -> tonic::Request<EmptyRequest> {
    with_timeout(EmptyRequest {}, READ_TIMEOUT)
}

/// The timeout of a call whose command may take `seconds`.
fn timeout(seconds: i32) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    Duration::from_secs(seconds).saturating_add(EXEC_TIMEOUT)
}

fn document<T: DeserializeOwned>(
    call: &'static str,
    response: Option<Response>,
    json: &str,
) -> Result<T, CallError> {
    accepted(call, response.unwrap_or_default())?;
    serde_json::from_str(json).map_err(|source| CallError::Answer { call, source })
}

/// Fits the guest's exit status into the 8 bits of this process's. A failure stays a failure.
#[must_use]
pub fn exit_code(code: i32) -> ExitCode {
    let byte = code.to_le_bytes()[0];
    ExitCode::from(if byte == 0 && code != 0 { 1 } else { byte })
}
