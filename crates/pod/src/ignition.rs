//! Ignition: first-boot configuration from an annotation, which QEMU gives to the guest (fw_cfg).

use super::safe_path::{Dir, checked_name};
use super::{LauncherFlags, PodError, staged};
use api::pod_paths::IGNITION_FILE;
use api::vmi::Vmi;

const ANNOTATION: &str = "kubevirt.io/ignitiondata";

/// Writes the annotation's data to the file that the domain names.
pub(super) fn prepare(cfg: &LauncherFlags, vmi: &Vmi) -> Result<(), PodError> {
    let metadata = &vmi.metadata;
    let Some(data) = metadata
        .annotations
        .get(ANNOTATION)
        .filter(|data| !data.is_empty())
    else {
        return Ok(());
    };
    let name = checked_name("the VMI's name", &metadata.name)?;
    let namespace = if metadata.namespace.is_empty() {
        ""
    } else {
        checked_name("the VMI's namespace", &metadata.namespace)?
    };
    let dir = Dir::of_pod_made(
        &cfg.root,
        &format!("{}/{namespace}/{name}", cfg.ignition_dir()),
    )?;
    staged::write(&dir, IGNITION_FILE, data.as_bytes(), 0o644)
}
