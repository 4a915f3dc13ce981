//! Calls a sidecar without a launcher, in the same way as a start, for
//! `launcherctl launcher hooks try`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::xml::tree::Element;
use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::Instant;

use super::conformance::program::{Process, Protocol};
use super::diff::{Changes, diff};
use super::error::{CallError, HookError, UnusableReason};
use super::sidecar::{HookPoint, Sidecar};
use super::timeout::hook_call_deadline;
use super::{client, cloud_init, discovery, sidecars::Sidecars, work};

#[derive(Debug, Clone)]
pub struct DryRunInput {
    /// The VMI's JSON as virt-handler sends it.
    pub vmi_json: Bytes,
    /// The domain XML made from the VMI.
    pub domain_xml: String,
    /// The VMI's cloud-init data, with the field names of KubeVirt's Go struct. Without it,
    /// `PreCloudInitIso` is not called.
    pub cloud_init: Option<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CloudInitDryRun {
    /// The changed fields with their sizes. The content may be secret, so it is left out.
    pub changes: Changes,
    pub data: Value,
    /// Names in the answer that KubeVirt does not have: they are not in the data.
    pub unknown: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    pub sidecar: String,
    pub points: Vec<HookPoint>,
    /// Changes by `OnDefineDomain`. Empty if the sidecar does not subscribe to it.
    pub changes: Changes,
    /// Changes by a second call with the first result, or why it is refused; see
    /// [`Self::is_idempotent`].
    pub second: Result<Changes, String>,
    /// The domain XML that the sidecar returns.
    pub xml: String,
    /// Elements in it that libvirt ignores for their namespace, and the remedy.
    pub ignored: Vec<String>,
    /// The result of `PreCloudInitIso`, if that was called.
    pub cloud_init: Option<CloudInitDryRun>,
}

impl DryRun {
    /// Whether a second call changes nothing. A launcher may pass a sidecar its own result.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.second.as_ref().is_ok_and(Changes::is_empty)
    }

    /// The result for programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let cloud_init = self.cloud_init.as_ref();
        let again = self.second.as_ref().map(|changes| changes.list.as_slice());
        json!({
            "sidecar": self.sidecar, "points": self.points, "changes": self.changes.list,
            "again": again.unwrap_or_default(), "againError": self.second.as_ref().err(),
            "xml": self.xml, "ignored": self.ignored,
            "cloudInitChanges": cloud_init.map(|tried| &tried.changes.list),
            "cloudInit": cloud_init.map(|tried| &tried.data),
            "cloudInitIgnored": cloud_init.map(|tried| &tried.unknown),
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The program does not start, exits, or has no socket that answers.
    #[error("the sidecar does not start")]
    Start(#[source] Box<dyn Error + Send + Sync>),
    /// A launcher would refuse the sidecar or its answer.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The socket of a plugin that runs.
    #[error("{}: a plugin's socket is in a directory var/run/kubevirt-plugin/<plugin>, as in its pod", .0.display())]
    Place(PathBuf),
}

/// Starts a program, calls it like [`dry_run`], and kills it. The program makes its socket in
/// `socket_dir`, which must be empty. `limit` applies to its start and again to its calls. Dropping
/// the future kills the program too.
///
/// # Errors
/// The errors of [`dry_run`], and [`ProgramError::Start`].
pub async fn dry_run_program(
    command: Command,
    socket_dir: PathBuf,
    input: DryRunInput,
    limit: Duration,
) -> Result<DryRun, ProgramError> {
    let mut process = Process::new(command, socket_dir, Protocol::Sidecar);
    let started = process.start(limit).await;
    let sidecar = started.map_err(|error| ProgramError::Start(Box::new(error)))?;
    let tried = call(sidecar, input, os::time::deadline(limit)).await;
    process.kill().await;
    Ok(tried?)
}

/// Calls the sidecar at `socket` as a launcher does at a start, with the same limits and checks:
/// first with the cloud-init data, then with the domain. Repeats `OnDefineDomain` with its result,
/// with as much time again.
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
    let limit = deadline.saturating_duration_since(Instant::now());
    let (name, points) = (sidecar.to_string(), &sidecar.points);
    let points: Vec<HookPoint> = points.iter().map(|(point, _)| *point).collect();

    let vmi_json = &input.vmi_json;
    let cloud_init = match input.cloud_init {
        Some(given) if points.contains(&HookPoint::PreCloudInitIso) => {
            let tried = call_cloud_init(&sidecar, &given, vmi_json, deadline).await;
            Some(tried.map_err(|reason| HookError::Call {
                sidecar: name.clone(),
                point: HookPoint::PreCloudInitIso,
                reason,
            })?)
        }
        _ => None,
    };
    let sidecars = Sidecars::of(vec![sidecar]);
    let define = |xml: String, deadline| sidecars.on_define_domain(xml, vmi_json, deadline);
    let first = define(input.domain_xml.clone(), deadline).await?;
    // A launcher would repeat it later: what the first calls took does not count.
    let deadline = os::time::deadline(limit);
    let second = define(first.clone(), deadline).await;
    let compare = move || {
        let parse = |xml: &str| Element::parse(xml).map_err(HookError::Input);
        let once = parse(&first)?;
        let changes = diff(&parse(&input.domain_xml)?, &once);
        let ignored = once.foreign().iter().map(ToString::to_string).collect();
        let second = match second {
            Ok(second) => Ok(diff(&once, &parse(&second)?)),
            Err(error) => Err(chain(&error)),
        };
        Ok(DryRun {
            sidecar: name,
            points,
            changes,
            second,
            ignored,
            xml: first,
            cloud_init,
        })
    };
    work::until(deadline, compare).await?
}

async fn call_cloud_init(
    sidecar: &Sidecar,
    given: &Value,
    vmi_json: &Bytes,
    deadline: Instant,
) -> Result<CloudInitDryRun, CallError> {
    let forms = cloud_init::encode(given);
    let deadline = hook_call_deadline(deadline);
    let answer = client::pre_cloud_init_iso(sidecar, forms, vmi_json.clone(), deadline).await?;
    let data = cloud_init::decode(given, &answer)?;
    Ok(CloudInitDryRun {
        changes: cloud_init::changes(given, &data),
        unknown: cloud_init::unknown_names(&answer, &data),
        data,
    })
}
