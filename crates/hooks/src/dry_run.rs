//! One call of a sidecar's `OnDefineDomain` without a launcher, for `launcherctl hooks try`.

use std::path::Path;

use domain::xml::tree::Element;
use prost::bytes::Bytes;
use tokio::time::Instant;

use super::diff::{Change, diff};
use super::error::{HookError, UnusableReason};
use super::sidecar::HookPoint;
use super::{client, discovery, sidecars::Sidecars};

/// What a sidecar does to a domain.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// The sidecar's name and socket.
    pub sidecar: String,
    /// The hook points that it subscribes to.
    pub points: Vec<HookPoint>,
    /// What it changes. Nothing if it does not subscribe to `OnDefineDomain`.
    pub changes: Vec<Change>,
    /// What it changes in its own result; see [`Self::is_idempotent`].
    pub second_changes: Vec<Change>,
    /// The domain XML that it returns.
    pub xml: String,
}

impl DryRun {
    /// Whether a second call changes nothing. A launcher may call a sidecar again with its own result.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.second_changes.is_empty()
    }
}

/// Calls the sidecar at `socket` twice, the second time with its own result, with a launcher's limits and checks.
///
/// # Errors
/// The error with which a launcher would refuse to start the virtual machine.
pub async fn dry_run(
    socket: &Path,
    vmi_json: &Bytes,
    domain_xml: &str,
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
    let (name, points) = (sidecar.to_string(), &sidecar.points);
    let points = points.iter().map(|(point, _)| *point).collect();

    let sidecars = Sidecars::of(vec![sidecar]);
    let call = |xml: String| sidecars.on_define_domain(xml, vmi_json, deadline);
    let first = call(domain_xml.to_owned()).await?;
    let second = call(first.clone()).await?;
    let parse = |xml: &str| Element::parse(xml).map_err(HookError::Input);
    let trees = [parse(domain_xml)?, parse(&first)?, parse(&second)?];
    let [given, once, twice] = &trees;
    Ok(DryRun {
        sidecar: name,
        points,
        changes: diff(given, once),
        second_changes: diff(once, twice),
        xml: first,
    })
}
