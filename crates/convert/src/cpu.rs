//! `<cpu>`, `<vcpu>` and `<vcpus>`: model, features and topology, and the vCPUs that can be
//! hotplugged.

use super::{ConvertError, CpuTopology, DomainSpec, Input};
use domain::cpu::{Cpu, CpuFeature, Vcpu, Vcpus, VcpusVcpu};

/// Model, features and topology of the guest's CPUs.
pub(super) fn cpu(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    topology(input, domain);
    model(input, &mut domain.cpu);
    features(input, &mut domain.cpu);
    Ok(())
}

/// `<topology>`, and `<vcpu>` with the vCPUs that can be plugged later.
fn topology(input: &Input<'_>, domain: &mut DomainSpec) {
    let enabled = input.cpu_topology;
    let max_sockets = input.spec.cpu.as_ref().map_or(0, |cpu| cpu.max_sockets);
    let maximum = if max_sockets != 0 && input.arch.cpu_hotplug {
        let maximum = CpuTopology {
            sockets: max_sockets,
            ..enabled
        };
        domain.vcpus = Some(hotpluggable(enabled, maximum));
        maximum
    } else {
        enabled
    };
    domain.vcpu = Some(Vcpu {
        placement: String::from("static"),
        cpus: maximum.vcpus(),
    });
    domain.cpu.topology = Some(domain::cpu::CpuTopology {
        sockets: maximum.sockets,
        cores: maximum.cores,
        threads: maximum.threads,
    });
}

/// The list of all vCPUs up to `maximum`: those of `enabled` are on, and all behind the first
/// socket may be plugged and unplugged.
fn hotpluggable(enabled: CpuTopology, maximum: CpuTopology) -> Vcpus {
    let first_socket = maximum.cores.saturating_mul(maximum.threads);
    let vcpu = (0..maximum.vcpus())
        .map(|id| VcpusVcpu {
            id,
            enabled: (id < enabled.vcpus()).into(),
            hotpluggable: (id >= first_socket).into(),
            order: 0,
        })
        .collect();
    Vcpus { vcpu }
}

/// Models that stand for the CPU of the host.
fn is_host_model(model: &str) -> bool {
    matches!(model, "host-model" | "host-passthrough")
}

/// `<cpu mode='…'>`; the default CPU model is `host-model`. An emulated CPU of another architecture
/// cannot be the host's: it gets all that QEMU can emulate.
fn model(input: &Input<'_>, cpu: &mut Cpu) {
    let wanted = input.spec.cpu.as_ref().map_or("", |cpu| cpu.model.as_str());
    let (mode, model) = match wanted {
        "" | "host-model" | "host-passthrough" if input.ctx.allow_cross_arch_emulation => {
            ("custom", "max")
        }
        "" => ("host-model", ""),
        "host-model" | "host-passthrough" => (wanted, ""),
        _ => ("custom", wanted),
    };
    cpu.mode = mode.into();
    cpu.model = model.into();
}

/// `<feature policy='…'>` as asked for. libvirt's named amd64 models still list `mpx`, which QEMU
/// no longer has (<https://gitlab.com/libvirt/libvirt/-/issues/608>), so it is turned off unless it
/// is asked for.
fn features(input: &Input<'_>, cpu: &mut Cpu) {
    let Some(wanted) = &input.spec.cpu else {
        return;
    };
    cpu.features.reserve(wanted.features.len() + 1);
    cpu.features
        .extend(wanted.features.iter().map(|feature| CpuFeature {
            name: feature.name.clone(),
            policy: feature.policy.clone(),
        }));
    if input.arch.disable_mpx
        && !is_host_model(&wanted.model)
        && !wanted.features.iter().any(|feature| feature.name == "mpx")
    {
        cpu.features.push(CpuFeature {
            name: String::from("mpx"),
            policy: String::from("disable"),
        });
    }
}

/// A list of CPUs as libvirt writes it, `1,2,5`.
pub(super) fn cpu_list(cpus: impl IntoIterator<Item = u32>) -> String {
    let mut list = String::default();
    for cpu in cpus {
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&cpu.to_string());
    }
    list
}

/// Most numbers in a list such as `0-63,128`; a longer one is damaged.
const MAX_LIST: usize = 50_000;

/// A list of numbers and ranges, `0-3,8`.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if (last as usize).saturating_sub(first as usize) + numbers.len() > MAX_LIST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_BY_TWO: CpuTopology = CpuTopology {
        sockets: 2,
        cores: 2,
        threads: 1,
    };

    fn with_sockets(sockets: u32) -> CpuTopology {
        CpuTopology {
            sockets,
            ..TWO_BY_TWO
        }
    }

    #[test]
    fn vcpus_of_the_first_socket_stay_and_those_behind_the_enabled_ones_are_off() {
        let vcpus = hotpluggable(TWO_BY_TWO, with_sockets(3)).vcpu;
        let shown: Vec<_> = vcpus
            .iter()
            .map(|v| (v.id, v.enabled.as_str(), v.hotpluggable.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (0, "yes", "no"),
                (1, "yes", "no"),
                (2, "yes", "yes"),
                (3, "yes", "yes"),
                (4, "no", "yes"),
                (5, "no", "yes")
            ]
        );
    }
}
