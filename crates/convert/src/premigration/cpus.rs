//! Dedicated CPUs: the guest's vCPUs and helper threads on the CPUs of this pod.

use super::PreMigrationError;
use crate::{Context, CpuTopology, DomainSpec, Input, numa, pinning};
use api::vmi::Vmi;
use api::vmi::cpu::Cpu;
use domain::cpu::Vcpu;
use domain::vocabulary::YesNo;
use domain::xml::tree::Element;
use domain::xml::{XmlElement, to_string};

/// Pins a guest with dedicated CPUs anew. Topology, `<vcpu>`, `<cputune>`, `<numatune>` and the
/// features that depend on the pinning are this pod's; which vCPUs are plugged in is the guest's.
pub(crate) fn rewrite(
    xml: &str,
    domain: &mut Element,
    vmi: &Vmi,
    ctx: &Context,
) -> Result<(), PreMigrationError> {
    let cpu = vmi.spec.domain.cpu.as_ref();
    let Some(cpu) = cpu.filter(|cpu| cpu.dedicated_cpu_placement) else {
        return Ok(());
    };
    let input = Input::new(vmi, ctx)?;
    let mut pinned = DomainSpec::from_xml(xml)?;
    let maximum = maximum(cpu, input.cpu_topology);
    let guest = plugged_in(maximum, cpu, &pinned);
    pinning::pin(&input, &mut pinned, cpu, guest)?;
    numa::numa(&input, &mut pinned)?;
    write(domain, maximum, &pinned)
}

/// All vCPUs that the guest can have.
fn maximum(cpu: &Cpu, requested: CpuTopology) -> CpuTopology {
    match cpu.max_sockets {
        0 => requested,
        sockets => CpuTopology {
            sockets,
            ..requested
        },
    }
}

/// Those that the guest has now, as its document says: only they are pinned.
fn plugged_in(maximum: CpuTopology, cpu: &Cpu, domain: &DomainSpec) -> CpuTopology {
    let (Some(vcpus), 1..) = (&domain.vcpus, cpu.max_sockets) else {
        return maximum;
    };
    let unplugged = vcpus.vcpu.iter().filter(|vcpu| vcpu.enabled != YesNo::Yes);
    let unplugged = u32::try_from(unplugged.count()).unwrap_or(u32::MAX);
    let socket = maximum.cores.saturating_mul(maximum.threads).max(1);
    CpuTopology {
        sockets: maximum.sockets.saturating_sub(unplugged / socket),
        ..maximum
    }
}

fn write(
    domain: &mut Element,
    maximum: CpuTopology,
    pinned: &DomainSpec,
) -> Result<(), PreMigrationError> {
    let topology = domain::cpu::CpuTopology {
        sockets: maximum.sockets,
        cores: maximum.cores,
        threads: maximum.threads,
    };
    let vcpu = Vcpu {
        placement: "static".to_owned(),
        cpus: maximum.vcpus(),
    };
    let topology = element("topology", &topology)?;
    edit(domain, "cpu", |cpu| replace(cpu, topology));
    replace(domain, element("vcpu", &vcpu)?);
    if let Some(tune) = &pinned.cputune {
        replace(domain, element("cputune", tune)?);
    }
    if let Some(tune) = &pinned.numa_tune {
        replace(domain, element("numatune", tune)?);
    }
    let features = pinned.features.as_ref();
    let kvm = features.and_then(|features| features.kvm.as_ref());
    if kvm.is_some_and(|kvm| kvm.hint_dedicated.is_some()) {
        let hint = state("hint-dedicated", "on");
        edit(domain, "features", |features| {
            edit(features, "kvm", |kvm| replace(kvm, hint));
        });
    }
    if features.is_some_and(|features| features.pmu.is_some()) {
        edit(domain, "features", |features| {
            replace(features, state("pmu", "off"))
        });
    }
    Ok(())
}

fn state(name: &str, state: &str) -> Element {
    Element::new(name).with_attribute("state", state)
}

fn element(name: &'static str, value: &impl XmlElement) -> Result<Element, PreMigrationError> {
    Ok(Element::parse(&to_string(name, value))?)
}

/// Changes the element inside, which is made if it is not there.
fn edit(parent: &mut Element, name: &str, change: impl FnOnce(&mut Element)) {
    if let Some(child) = parent.child_mut(name) {
        return change(child);
    }
    let mut child = Element::new(name);
    change(&mut child);
    parent.push(child);
}

/// Puts the element in the place of the one of its name.
fn replace(parent: &mut Element, new: Element) {
    match parent.child_mut(&new.name) {
        Some(old) => *old = new,
        None => parent.push(new),
    }
}
