//! Paths of disks that have the VMI's namespace in them, when the VM moves to another namespace.

use crate::migration::move_to_namespace;
use api::vmi::Vmi;
use domain::xml::tree::Element;

/// Replaces the source's namespace by the target's `domainNamespace` in the paths of disks.
pub(crate) fn rewrite(domain: &mut Element, vmi: &Vmi) {
    let state = vmi.status.migration_state.as_ref();
    let target = state
        .and_then(|state| state.target_state.as_ref())
        .and_then(|target| target.domain_namespace.as_deref())
        .unwrap_or_default();
    let source = state
        .and_then(|state| state.source_state.as_ref())
        .and_then(|source| source.domain_namespace.as_deref())
        .unwrap_or(&vmi.metadata.namespace);
    if !target.is_empty() {
        move_to_namespace(domain, source, target);
    }
}
