//! CPU hotplug (`SyncVirtualMachineCPUs`): how many vCPUs a running domain gets
//! (`virDomainSetVcpusFlags`), and the pins of its dedicated CPUs.

use crate::error::refuse;
use api::vmi::Vmi;
use domain::DomainSpec;

use crate::context::Context;
use crate::error::ConvertError;
use crate::{Input, parse_list};

/// The wanted CPUs of the running domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpus {
    /// How many vCPUs the guest has.
    pub count: u32,
    /// vCPUs and the host CPUs on which each may run; empty without dedicated CPUs.
    pub vcpu_pins: Vec<(u32, Vec<u32>)>,
    /// The host CPUs of QEMU's other threads, where they are isolated.
    pub emulator_pin: Option<Vec<u32>>,
}

/// The VMI's wish. `wanted` is its domain as the conversion makes it in `context`: which host CPU a
/// vCPU is pinned to is `crate::pinning`'s.
///
/// # Errors
/// When the VMI has no CPUs.
pub fn cpus(vmi: &Vmi, context: &Context, wanted: &DomainSpec) -> Result<Cpus, ConvertError> {
    let count = Input::new(vmi, context)?.cpu_topology.vcpus();
    if count == 0 {
        refuse!("spec.domain.cpu", "has 0 vCPUs; at least one is needed");
    }
    let tune = wanted.cputune.as_ref();
    let pins = tune.map_or(&[][..], |tune| &tune.vcpu_pins);
    let list = |text: &str| parse_list(text).unwrap_or_default();
    let vcpu_pins = pins.iter().map(|pin| (pin.vcpu, list(&pin.cpuset)));
    let emulator_pin = tune.and_then(|tune| tune.emulator_pin.as_ref());
    Ok(Cpus {
        count,
        vcpu_pins: vcpu_pins.collect(),
        emulator_pin: emulator_pin.map(|pin| list(&pin.cpuset)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(cpu: &serde_json::Value) -> Vmi {
        serde_json::from_value(json!({"spec": {"domain": {"cpu": cpu}}})).unwrap()
    }

    #[test]
    fn dedicated_cpus_come_from_the_converted_domain() {
        let wanted = DomainSpec::from_xml(
            "<domain type='kvm'><name>vm</name><cputune><vcpupin vcpu='0' cpuset='4'/>\
             <vcpupin vcpu='1' cpuset='9'/><emulatorpin cpuset='10-11,13'/></cputune></domain>",
        )
        .unwrap();
        let vmi = vmi(&json!({"sockets": 2, "cores": 1, "threads": 1}));
        let found = cpus(&vmi, &Context::default(), &wanted).unwrap();
        assert_eq!(found.count, 2);
        assert_eq!(found.vcpu_pins, [(0, vec![4]), (1, vec![9])]);
        assert_eq!(found.emulator_pin, Some(vec![10, 11, 13]));
    }

    #[test]
    fn other_cpus_are_counted_and_not_pinned() {
        let vmi = vmi(&json!({"sockets": 3, "cores": 2, "threads": 2}));
        let found = cpus(&vmi, &Context::default(), &DomainSpec::default()).unwrap();
        assert_eq!(
            (found.count, found.vcpu_pins, found.emulator_pin),
            (12, vec![], None)
        );
    }
}
