//! A sidecar against a virtual machine, without a launcher: for authors.

use std::path::Path;

use prost::bytes::Bytes;
use tokio::time::Instant;

use super::collect::{identified, unidentified};
use super::{Change, HookError, Point, Sidecars, call, diff};
use domain::xml::tree::Element;

/// What a sidecar did to a domain.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The sidecar, as in the launcher's log.
    pub sidecar: String,
    /// The points it wants to be called at.
    pub points: Vec<Point>,
    /// What it changed; nothing where it does not want to be called for a domain.
    pub changes: Vec<Change>,
    /// What it changes when it is given its own result. A sidecar should change nothing then.
    pub again: Vec<Change>,
    /// The domain as it returned it.
    pub xml: String,
}

/// Calls the sidecar at `socket` as a launcher would, with the same limits and checks.
///
/// # Errors
/// Those of the launcher.
pub async fn try_sidecar(
    socket: &Path,
    vmi_json: &Bytes,
    domain_xml: &str,
    deadline: Instant,
) -> Result<Tried, HookError> {
    let info = call::info(socket, deadline)
        .await
        .map_err(|reason| unidentified(socket, &reason))?;
    let sidecar = identified(socket.to_path_buf(), socket.display().to_string(), info)?;
    let points = sidecar.points.iter().map(|(point, _)| *point).collect();
    let name = sidecar.to_string();
    let sidecars = Sidecars {
        all: vec![sidecar],
        ..Sidecars::default()
    };
    let read = |xml: &str| Element::parse(xml).map_err(HookError::Input);
    let given = read(domain_xml)?;
    let once = sidecars
        .on_define_domain(domain_xml.to_owned(), vmi_json, deadline)
        .await?;
    let twice = sidecars
        .on_define_domain(once.clone(), vmi_json, deadline)
        .await?;
    let (first, second) = (read(&once)?, read(&twice)?);
    Ok(Tried {
        sidecar: name,
        points,
        changes: diff::diff(&given, &first),
        again: diff::diff(&first, &second),
        xml: once,
    })
}
