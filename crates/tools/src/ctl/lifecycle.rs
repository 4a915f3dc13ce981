//! `sync`, `pause`, `shutdown`, …: calls that change the domain and send its VMI.

use std::process::ExitCode;

use serde_json::json;

use super::error::{CtlError, TargetError};
use super::output::{Format, print};
use super::target::VmiTarget;
use api::Action;
use api::proto::cmd::v1::VirtualMachineOptions;

/// `sync`: sends the VMI again, or a changed one.
///
/// # Errors
/// If there is no launcher, or it refuses the VMI.
pub async fn sync(target: &VmiTarget, format: Format) -> Result<ExitCode, CtlError> {
    let (launcher, client, vmi) = target.connect().await?;
    client.sync(&vmi, VirtualMachineOptions::default()).await?;
    if let Some(dir) = &launcher.dir {
        dir.store_vmi(&vmi)?;
    }
    print(format, &json!({"success": true}), || "synced".into());
    Ok(ExitCode::SUCCESS)
}

/// `pause`, `unpause`, `reset`, `soft-reboot`, `shutdown`, `kill`, `delete`.
///
/// # Errors
/// If there is no launcher, or it refuses.
pub async fn act(action: Action, target: &VmiTarget, format: Format) -> Result<ExitCode, CtlError> {
    let (client, vmi) = target.connect_by_identity().await?;
    client
        .act(action, &vmi.ok_or(TargetError::NoDomain)?)
        .await?;
    print(format, &json!({"success": true}), || "done".into());
    Ok(ExitCode::SUCCESS)
}
