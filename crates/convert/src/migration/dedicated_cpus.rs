//! Dedicated CPUs: the source's numbers mean nothing on the target; `status.migrationState` has the
//! target's.

use api::vmi::Vmi;
use domain::xml::tree::Element;

use super::error::DocumentError;
use crate::Context;
use crate::context::Topology;
use crate::premigration::cpus;

/// Pins the guest to the CPUs of the target (`targetCPUSet`, `targetNodeTopology`). A VMI without
/// dedicated CPUs stays as it is.
pub(super) fn pin_to_target_cpus(domain: &mut Element, vmi: &Vmi) -> Result<(), DocumentError> {
    let cpu = vmi.spec.domain.cpu.as_ref();
    if !cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement) {
        return Ok(());
    }
    let state = vmi.status.migration_state.as_ref();
    let state = state.ok_or(DocumentError::NoTargetCpus)?;
    let topology = state.target_node_topology.as_bytes();
    let topology: Topology = api::json::from_slice(topology).map_err(DocumentError::Topology)?;
    let context = Context {
        architecture: vmi.spec.architecture.clone(),
        cpu_set: state.target_cpu_set.clone(),
        topology: Some(topology),
        ..Context::default()
    };
    let xml = domain.to_xml();
    Ok(cpus::rewrite(&xml, domain, vmi, &context)?)
}
