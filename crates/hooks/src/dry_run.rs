//! One start's calls of a sidecar without a launcher, for `launcherctl hooks try`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::xml::tree::Element;
use prost::bytes::Bytes;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::Instant;

use super::conformance::program::Process;
use super::diff::{Changes, diff};
use super::error::{HookError, UnusableReason};
use super::sidecar::{HookPoint, Sidecar};
use super::{client, cloud_init, discovery, sidecars::Sidecars, work};

/// What a sidecar is called with.
#[derive(Debug, Clone)]
pub struct DryRunInput {
    /// The VMI, as virt-handler sends it.
    pub vmi_json: Bytes,
    /// The domain that it becomes.
    pub domain_xml: String,
    /// The VMI's cloud-init data, with the names of KubeVirt's Go struct. Without it, `PreCloudInitIso` is not called.
    pub cloud_init: Option<Value>,
}

/// What a sidecar makes of the cloud-init data.
#[derive(Debug, Clone, PartialEq)]
pub struct CloudInitDryRun {
    /// The fields that it changes, with their sizes: the content may be secret.
    pub changes: Changes,
    /// The data that it returns.
    pub data: Value,
}

/// What a sidecar does to a domain.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// The sidecar's name and socket.
    pub sidecar: String,
    /// The hook points that it subscribes to.
    pub points: Vec<HookPoint>,
    /// What it changes. Nothing if it does not subscribe to `OnDefineDomain`.
    pub changes: Changes,
    /// What it changes in its own result; see [`Self::is_idempotent`].
    pub second_changes: Changes,
    /// The domain XML that it returns.
    pub xml: String,
    /// What it does to the cloud-init data, if `PreCloudInitIso` was called.
    pub cloud_init: Option<CloudInitDryRun>,
}

impl DryRun {
    /// Whether a second call changes nothing. A launcher may call a sidecar again with its own result.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.second_changes.is_empty()
    }
}

/// Why a sidecar's program cannot be tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It does not start, ends, or has no socket that answers.
    #[error("the sidecar does not start")]
    Start(#[source] Box<dyn Error + Send + Sync>),
    /// It does what a launcher refuses.
    #[error(transparent)]
    Hook(#[from] HookError),
}

/// As [`dry_run`], with a program that is started for it and killed afterwards. It makes its socket in `socket_dir`, which has
/// to be empty, and may take `limit` to start, and as long for its calls. It is killed too if this is given up (dropped).
///
/// # Errors
/// If it does not start; else those of [`dry_run`].
pub async fn dry_run_program(
    command: Command,
    socket_dir: PathBuf,
    input: DryRunInput,
    limit: Duration,
) -> Result<DryRun, ProgramError> {
    let mut process = Process::new(command, socket_dir);
    let started = process.start(limit).await;
    let sidecar = started.map_err(|error| ProgramError::Start(Box::new(error)))?;
    let tried = call(sidecar, input, os::time::deadline(limit)).await;
    process.kill().await;
    Ok(tried?)
}

/// Calls the sidecar at `socket` as a launcher does at a start, with its limits and checks: with the cloud-init data, and then
/// with the domain. `OnDefineDomain` is called a second time, with its own result.
///
/// # Errors
/// The error with which a launcher would refuse to start the virtual machine.
pub async fn dry_run(
    socket: &Path,
    input: DryRunInput,
    deadline: Instant,
) -> Result<DryRun, HookError> {
    let id = socket.display().to_string();
    let info = client::info(socket, deadline)
        .await
        .map_err(|reason| HookError::Unusable {
            sidecar: id.clone(),
            reason: UnusableReason::Info(reason),
        })?;
    let sidecar = discovery::from_info(socket.to_path_buf(), id, info)?;
    call(sidecar, input, deadline).await
}

async fn call(
    sidecar: Sidecar,
    input: DryRunInput,
    deadline: Instant,
) -> Result<DryRun, HookError> {
    let (name, points) = (sidecar.to_string(), &sidecar.points);
    let points: Vec<HookPoint> = points.iter().map(|(point, _)| *point).collect();

    let sidecars = Sidecars::of(vec![sidecar]);
    let vmi_json = &input.vmi_json;
    let cloud_init = match input.cloud_init {
        Some(given) if points.contains(&HookPoint::PreCloudInitIso) => {
            let data = sidecars.pre_cloud_init_iso(given.clone(), vmi_json, deadline);
            let data = data.await?;
            let changes = cloud_init::changes(&given, &data);
            Some(CloudInitDryRun { changes, data })
        }
        _ => None,
    };
    let define = |xml: String| sidecars.on_define_domain(xml, vmi_json, deadline);
    let first = define(input.domain_xml.clone()).await?;
    let second = define(first.clone()).await?;
    let compare = move || {
        let parse = |xml: &str| Element::parse(xml).map_err(HookError::Input);
        let once = parse(&first)?;
        let changes = diff(&parse(&input.domain_xml)?, &once);
        let second_changes = diff(&once, &parse(&second)?);
        Ok(DryRun {
            sidecar: name,
            points,
            changes,
            second_changes,
            xml: first,
            cloud_init,
        })
    };
    work::until(deadline, compare).await?
}
