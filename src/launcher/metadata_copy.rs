//! Copies the metadata into the domain's XML whenever they change, for a later launcher.

use std::sync::Arc;
use std::time::Duration;

use super::error::LauncherError;
use super::libvirt_domain::LibvirtDomain;
use super::vm::{Permission, Permit, Request};
use domain::metadata::KubeVirtMetadata;
use libvirt::ChangeableDomain;

/// Delay after a failed copy: the daemon may be on its way back.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The element's prefix in libvirt.
const PREFIX: &str = "kubevirt";

/// Writes one copy (`virDomainSetMetadata`), and returns it. Whoever waits for another copy writes
/// what is newest then.
///
/// # Errors
/// libvirt's.
pub(super) async fn write(
    libvirt: &LibvirtDomain,
    permit: &Permit,
) -> Result<KubeVirtMetadata, LauncherError> {
    let _turn = libvirt.metadata_copies.lock().await;
    let metadata = libvirt.vm.metadata().get().clone();
    let xml = metadata.to_xml();
    let write = move |domain: Option<ChangeableDomain>| {
        let Some(domain) = domain else { return Ok(()) };
        Ok(domain.set_metadata(&xml, PREFIX, KubeVirtMetadata::NAMESPACE)?)
    };
    libvirt
        .change_in_any_time(permit, "writing the metadata", write)
        .await?;
    Ok(metadata)
}

/// Writes for the launcher's life, however many changes come meanwhile.
// D-sup-16 (docs/differences.md).
pub(super) async fn run(libvirt: Arc<LibvirtDomain>) {
    let vm = &libvirt.vm;
    // A start has written them too; the first change after it writes them once more.
    let mut written = KubeVirtMetadata::default();
    let (mut changes, mut state) = (vm.metadata_changes(), vm.subscribe());
    loop {
        // What a start or a migration has refused is written when that is over.
        tokio::select! {
            _ = changes.changed() => {}
            _ = state.changed() => {}
        }
        if *vm.metadata().get() == written {
            continue;
        }
        let Ok(Permission::Granted(permit)) = vm.permit(Request::CopyMetadata).await else {
            continue;
        };
        match write(&libvirt, &permit).await {
            Ok(copy) => written = copy,
            Err(error) => {
                tracing::debug!(reason = %os::logging::chain(&error), "the domain's XML has not the newest metadata");
                tokio::time::sleep(RETRY_DELAY).await;
                changes.mark_changed();
            }
        }
    }
}
