//! Dedicated CPUs: the source's numbers mean nothing on the target, which has told its own.

use std::borrow::Cow;

use api::vmi::Vmi;
use domain::DomainSpec;
use domain::cpu::{CpuTune, NumaTune};
use domain::vocabulary::YesNo;
use domain::xml::tree::Element;
use domain::xml::{XmlElement, to_string};

use super::document::DocumentError;
use crate::context::Topology;
use crate::{Context, Draft, Input, numa, pinning};

/// Pins vCPUs, I/O threads and the emulator to the CPUs of the target, which are in `status.migrationState`, and takes
/// the memory from the target's NUMA nodes. A VMI without dedicated CPUs stays as it is. What the guest sees does not
/// change.
///
/// # Errors
/// When the target's CPUs are not known, or are too few.
pub fn pin_to_target_cpus(domain: &mut Element, vmi: &Vmi) -> Result<(), DocumentError> {
    let cpu = vmi.spec.domain.cpu.as_ref();
    if !cpu.is_some_and(|cpu| cpu.dedicated_cpu_placement) {
        return Ok(());
    }
    let live = DomainSpec::from_xml(&domain.to_xml()).map_err(DocumentError::Xml)?;
    let vmi = with_enabled_sockets(vmi, &live);
    let context = target_context(&vmi)?;
    let input = Input::new(&vmi, &context).map_err(DocumentError::Convert)?;
    let mut draft = Draft { domain: live };
    pinning::pinning(&input, &mut draft).map_err(DocumentError::Convert)?;
    draft.domain.numa_tune = None;
    numa::numa(&input, &mut draft).map_err(DocumentError::Convert)?;
    if let Some(tune) = &draft.domain.cputune {
        replace_pins(domain, tune)?;
    }
    replace_numa_tune(domain, draft.domain.numa_tune.as_ref())
}

/// What the target has said of its CPUs.
fn target_context(vmi: &Vmi) -> Result<Context, DocumentError> {
    let state = vmi.status.migration_state.as_ref();
    let state = state.ok_or(DocumentError::NoTargetCpus)?;
    let topology: Topology =
        serde_json::from_str(&state.target_node_topology).map_err(DocumentError::Topology)?;
    Ok(Context {
        architecture: vmi.spec.architecture.clone(),
        cpu_set: state.target_cpu_set.clone(),
        topology: Some(topology),
        ..Context::default()
    })
}

/// The VMI with as many sockets as the guest has now: those that are to be plugged in follow after the migration.
fn with_enabled_sockets<'v>(vmi: &'v Vmi, live: &DomainSpec) -> Cow<'v, Vmi> {
    let mut vmi = Cow::Borrowed(vmi);
    let (Some(vcpus), Some(cpu)) = (&live.vcpus, &vmi.spec.domain.cpu) else {
        return vmi;
    };
    let enabled = vcpus
        .vcpu
        .iter()
        .filter(|it| it.enabled == YesNo::Yes)
        .count();
    let per_socket = cpu.cores.max(1).saturating_mul(cpu.threads.max(1));
    let sockets = u32::try_from(enabled).unwrap_or(u32::MAX) / per_socket;
    if cpu.max_sockets != 0
        && sockets != 0
        && let Some(cpu) = &mut vmi.to_mut().spec.domain.cpu
    {
        cpu.sockets = sockets;
    }
    vmi
}

/// Everything else that `<cputune>` has stays.
fn replace_pins(domain: &mut Element, tune: &CpuTune) -> Result<(), DocumentError> {
    let written = written("cputune", tune)?;
    if domain.child("cputune").is_none() {
        domain.push(Element::new("cputune"));
    }
    if let Some(cputune) = domain.child_mut("cputune") {
        cputune.retain_children(|child| {
            !matches!(
                child.name.as_str(),
                "vcpupin" | "iothreadpin" | "emulatorpin"
            )
        });
        cputune.nodes.splice(0..0, written.nodes);
    }
    Ok(())
}

fn replace_numa_tune(domain: &mut Element, tune: Option<&NumaTune>) -> Result<(), DocumentError> {
    let Some(tune) = tune else { return Ok(()) };
    domain.retain_children(|child| child.name != "numatune");
    domain.push(written("numatune", tune)?);
    Ok(())
}

fn written(name: &str, element: &impl XmlElement) -> Result<Element, DocumentError> {
    Element::parse(&to_string(name, element)).map_err(DocumentError::Xml)
}
