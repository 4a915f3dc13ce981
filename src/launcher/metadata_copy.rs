//! Copies the metadata into the domain's XML whenever they change, for a later launcher.

use std::sync::Arc;
use std::time::Duration;

use super::error::LauncherError;
use super::libvirt_domain::LibvirtDomain;
use super::vm::{JobKind, Vm};
use domain::metadata::KubeVirtMetadata;

/// Delay after a failed copy: the daemon may be on its way back.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The element's prefix in libvirt.
const PREFIX: &str = "kubevirt";

/// Writes one copy.
///
/// # Errors
/// libvirt's.
pub(super) async fn write(
    libvirt: &LibvirtDomain,
    metadata: &KubeVirtMetadata,
) -> Result<(), LauncherError> {
    let xml = metadata.to_xml();
    let write = move |domain: Option<libvirt::Domain>| {
        let Some(domain) = domain else { return Ok(()) };
        Ok(domain.set_metadata(&xml, PREFIX, KubeVirtMetadata::NAMESPACE)?)
    };
    libvirt.unlimited("writing the metadata", write).await
}

/// Writes for the launcher's life, one copy at a time, however many changes come meanwhile.
// D-sup-16 (docs/differences.md).
pub(super) async fn run(libvirt: Arc<LibvirtDomain>, vm: Arc<Vm>) {
    // A start writes what is known then.
    let mut written = KubeVirtMetadata::default();
    let mut changes = vm.metadata_changes();
    while changes.changed().await.is_ok() {
        let metadata = vm.metadata().get().clone();
        let now = vm.snapshot();
        // libvirt refuses changes to a domain that is leaving or arriving; the end of either
        // changes the metadata.
        let is_migrating = now.arriving || now.jobs.contains(&JobKind::MigrationOut);
        if metadata == written || is_migrating || !now.phase.is_visible() {
            continue;
        }
        match write(&libvirt, &metadata).await {
            Ok(()) => written = metadata,
            Err(error) => {
                tracing::debug!(reason = %os::logging::chain(&error), "the domain's XML has not the newest metadata");
                tokio::time::sleep(RETRY_DELAY).await;
                changes.mark_changed();
            }
        }
    }
}
