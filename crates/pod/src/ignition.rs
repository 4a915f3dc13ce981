//! Ignition: first-boot configuration from an annotation, which QEMU gives to the guest (fw_cfg).

use super::safe_path::{Dir, vmi_dir};
use super::{LauncherFlags, PodError, staged};
use api::pod_paths::IGNITION_FILE;
use api::vmi::Vmi;

const ANNOTATION: &str = "kubevirt.io/ignitiondata";

/// Writes the annotation's data to the file that the domain names.
pub(super) fn prepare(flags: &LauncherFlags, vmi: &Vmi) -> Result<(), PodError> {
    let metadata = &vmi.metadata;
    let Some(data) = metadata
        .annotations
        .get(ANNOTATION)
        .filter(|data| !data.is_empty())
    else {
        return Ok(());
    };
    let dir = vmi_dir(&flags.ignition_dir(), metadata)?;
    let dir = Dir::of_pod_made(&flags.root, &dir)?;
    staged::write(&dir, IGNITION_FILE, data.as_bytes(), 0o644)
}
