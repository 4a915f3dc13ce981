//! Paths of disks that have the VMI's namespace in them, when the VM moves to another namespace.

use api::vmi::Vmi;
use domain::xml::tree::Element;

/// Replaces the first `/<source namespace>/` of each path of a file by the target's.
pub(super) fn rewrite(domain: &mut Element, vmi: &Vmi) {
    let Some((old, new)) = namespaces(vmi) else {
        return;
    };
    for disk in super::devices_mut(domain, "disk") {
        let Some(source) = disk.child_mut("source") else {
            continue;
        };
        replace(source, &old, &new);
        let data_store = source.child_mut("dataStore");
        if let Some(source) = data_store.and_then(|store| store.child_mut("source")) {
            replace(source, &old, &new);
        }
    }
}

/// The parts of a path for the source's and the target's namespace; none if they are the same.
fn namespaces(vmi: &Vmi) -> Option<(String, String)> {
    let state = vmi.status.migration_state.as_ref()?;
    let target = state.target_state.as_ref()?.domain_namespace.as_deref()?;
    let source = state
        .source_state
        .as_ref()
        .and_then(|source| source.domain_namespace.as_deref())
        .unwrap_or(&vmi.metadata.namespace);
    let differ = !target.is_empty() && source != target;
    differ.then(|| (format!("/{source}/"), format!("/{target}/")))
}

fn replace(source: &mut Element, old: &str, new: &str) {
    for (name, path) in &mut source.attributes {
        if name == "file" && path.contains(old) {
            *path = path.replacen(old, new, 1);
        }
    }
}
