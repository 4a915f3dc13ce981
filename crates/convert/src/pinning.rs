//! `<cputune>`, vCPU pinning: dedicated CPUs for vCPUs, IOThreads and the emulator.
//!
//! vCPUs take their host threads first, then supplemental IOThreads, then the emulator; ordinary
//! IOThreads share the host threads of the vCPUs or of the emulator.

use super::cpu::cpu_list;
use super::cpu_pool::{CpuPool, Unfitted};
use super::{ConvertError, CpuTopology, DomainSpec, Input};
use crate::error::refuse;
use api::vmi::Vmi;
use api::vmi::cpu::Cpu;
use domain::cpu::{CpuEmulatorPin, CpuTune, CpuTuneIoThreadPin, CpuTuneVcpuPin};

const DEDICATED: &str = "spec.domain.cpu.dedicatedCpuPlacement";

/// The emulator gets a second CPU where the guest's are even, so that whole cores are used. The
/// annotation counts by presence.
const EVEN_PARITY: &str = "alpha.kubevirt.io/EmulatorThreadCompleteToEvenParity";

/// The guest gets the host's NUMA cells that its vCPUs run on.
pub(super) fn is_numa_passthrough(cpu: &Cpu) -> bool {
    cpu.numa
        .as_ref()
        .is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}

/// Pins vCPUs, IOThreads and the emulator of a VMI with dedicated CPUs.
pub(super) fn pinning(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    match input.dedicated_cpu() {
        Some(cpu) => pin(input, domain, cpu, enabled_topology(input, cpu)?),
        None => Ok(()),
    }
}

/// Pins the vCPUs of `guest`, IOThreads and the emulator. `guest` counts the vCPUs that are plugged
/// in.
pub(super) fn pin(
    input: &Input<'_>,
    domain: &mut DomainSpec,
    cpu: &Cpu,
    guest: CpuTopology,
) -> Result<(), ConvertError> {
    let vmi = input.vmi;
    let Some(host) = &input.ctx.topology else {
        refuse!(
            DEDICATED,
            "is true, but the topology of the node is not known"
        );
    };
    let mut pool = CpuPool::new(
        host,
        &input.ctx.cpu_set,
        guest.threads,
        !is_numa_passthrough(cpu),
    );
    let mut tune = CpuTune {
        vcpu_pins: vcpus(&mut pool, guest, input.ctx.cpu_set.len(), cpu)?,
        ..CpuTune::default()
    };

    let supplemental = input
        .iothreads
        .and_then(|threads| threads.pool)
        .unwrap_or(0);
    if supplemental > 0 {
        tune.iothread_pins = supplemental_iothreads(&mut pool, supplemental)?;
    }
    if cpu.isolate_emulator_thread {
        let pinned = u64::from(requested_vcpus(cpu)) + u64::from(supplemental);
        tune.emulator_pin = Some(CpuEmulatorPin {
            cpuset: emulator(&mut pool, vmi, pinned)?,
        });
    }
    if supplemental == 0 && input.iothreads.is_some() {
        let threads = domain
            .iothreads
            .as_ref()
            .map_or(0, |threads| threads.iothreads);
        tune.iothread_pins =
            shared_iothreads(threads, cpu, tune.emulator_pin.as_ref(), &input.ctx.cpu_set)?;
    }
    domain.cputune = Some(tune);
    tune_features(vmi, cpu, domain);
    Ok(())
}

/// vCPUs that `spec.domain.cpu` asks for: the product of sockets, cores and threads, without those
/// that are unset; 0 if all are. Helper threads are pinned by this number.
fn requested_vcpus(cpu: &Cpu) -> u32 {
    [cpu.cores, cpu.sockets, cpu.threads]
        .into_iter()
        .filter(|&n| n != 0)
        .reduce(u32::wrapping_mul)
        .unwrap_or(0)
}

/// The vCPUs that are there from the start; those that can be plugged later are not pinned.
fn enabled_topology(input: &Input<'_>, cpu: &Cpu) -> Result<CpuTopology, ConvertError> {
    let mut guest = input.cpu_topology;
    if cpu.max_sockets != 0 && input.arch.cpu_hotplug {
        guest.sockets = guest.sockets.min(cpu.max_sockets);
    }
    if guest.vcpus() == 0 {
        refuse!(
            "spec.domain.cpu",
            "asks for dedicated CPUs, but has 0 vCPUs; at least one is needed"
        );
    }
    Ok(guest)
}

/// `<vcpupin>`: a host thread for each vCPU.
fn vcpus(
    pool: &mut CpuPool,
    guest: CpuTopology,
    available: usize,
    cpu: &Cpu,
) -> Result<Vec<CpuTuneVcpuPin>, ConvertError> {
    let threads = pool.fit_cores(guest).map_err(|Unfitted(cores)| {
        if is_numa_passthrough(cpu) && available >= guest.vcpus() as usize {
            ConvertError::new(
                "spec.domain.cpu.numa.guestMappingPassthrough",
                format!("{cores} core(s) of {} thread(s) do not fit into one NUMA cell of the pod's {available} CPUs", guest.threads),
            )
        } else {
            ConvertError::new(
                DEDICATED,
                format!("the VM needs {} vCPUs, and the pod has {available} CPUs; {cores} core(s) cannot be placed", guest.vcpus()),
            )
        }
    })?;
    Ok(threads
        .into_iter()
        .zip(0..)
        .map(|(thread, vcpu)| CpuTuneVcpuPin {
            vcpu,
            cpuset: thread.to_string(),
        })
        .collect())
}

/// `<iothreadpin>` of the supplemental pool: a CPU for each thread.
fn supplemental_iothreads(
    pool: &mut CpuPool,
    count: u32,
) -> Result<Vec<CpuTuneIoThreadPin>, ConvertError> {
    let pin = |iothread| {
        let Some(thread) = pool.take_thread() else {
            refuse!(
                "spec.domain.ioThreads.supplementalPoolThreadCount",
                "{count} IOThreads need a CPU each; after the vCPUs the pod has {} left",
                iothread - 1
            );
        };
        Ok(CpuTuneIoThreadPin {
            iothread,
            cpuset: thread.to_string(),
        })
    };
    (1..=count).map(pin).collect()
}

/// `<emulatorpin>`: the CPUs of an isolated emulator thread; a second one by
/// `EmulatorThreadCompleteToEvenParity`, if vCPUs and I/O threads are an even number.
fn emulator(pool: &mut CpuPool, vmi: &Vmi, pinned: u64) -> Result<String, ConvertError> {
    let wanted = if vmi.metadata.annotations.contains_key(EVEN_PARITY) && pinned.is_multiple_of(2) {
        2
    } else {
        1
    };
    let threads: Vec<u32> = std::iter::from_fn(|| pool.take_thread())
        .take(wanted)
        .collect();
    if threads.len() < wanted {
        refuse!(
            "spec.domain.cpu.isolateEmulatorThread",
            "the emulator needs {wanted} dedicated CPU(s); after the vCPUs the pod has {} left",
            threads.len()
        );
    }
    Ok(cpu_list(threads))
}

/// IOThreads next to the emulator if it is isolated; else one CPU for each, or a share of the CPUs
/// for each where there are more CPUs than threads. CPUs are those of the pod, in its order.
fn shared_iothreads(
    threads: u64,
    cpu: &Cpu,
    emulator: Option<&CpuEmulatorPin>,
    cpus: &[u32],
) -> Result<Vec<CpuTuneIoThreadPin>, ConvertError> {
    if threads == 0 {
        refuse!(
            "spec.domain.ioThreadsPolicy",
            "asks for IOThreads, but there is no disk to run on one"
        );
    }
    if let Some(emulator) = emulator {
        return Ok(vec![CpuTuneIoThreadPin {
            iothread: 1,
            cpuset: emulator.cpuset.clone(),
        }]);
    }
    // More vCPUs than the pod has CPUs were refused before.
    let vcpus = requested_vcpus(cpu) as usize;
    let cpus = cpus
        .get(..vcpus)
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| {
            ConvertError::new(
                "spec.domain.cpu",
                format!(
                    "IOThreads are pinned to CPUs of {vcpus} vCPUs, and the pod has {} CPUs",
                    cpus.len()
                ),
            )
        })?;
    let threads = u32::try_from(threads).unwrap_or(u32::MAX);
    Ok(if threads as usize >= vcpus {
        one_cpu_each(threads, cpus)
    } else {
        a_share_each(threads, cpus)
    })
}

/// One CPU for each thread, round robin.
fn one_cpu_each(threads: u32, cpus: &[u32]) -> Vec<CpuTuneIoThreadPin> {
    let pin = |iothread: u32| CpuTuneIoThreadPin {
        iothread,
        cpuset: (iothread as usize)
            .checked_rem(cpus.len())
            .and_then(|index| cpus.get(index))
            .map_or_else(String::default, ToString::to_string),
    };
    (1..=threads).map(pin).collect()
}

/// As many CPUs for each thread as there are; the first threads get the rest.
fn a_share_each(threads: u32, cpus: &[u32]) -> Vec<CpuTuneIoThreadPin> {
    let count = threads.max(1) as usize;
    let (share, larger) = (cpus.len() / count, cpus.len() % count);
    let mut rest = cpus;
    let pins = (1..=threads).map(|iothread| {
        let size = if iothread as usize <= larger {
            share + 1
        } else {
            share
        };
        let (mine, others) = rest.split_at_checked(size).unwrap_or((rest, &[]));
        rest = others;
        CpuTuneIoThreadPin {
            iothread,
            cpuset: cpu_list(mine.iter().copied()),
        }
    });
    pins.collect()
}

/// KVM's `hint-dedicated` on amd64, and no `<pmu>` with `realtime`. No rule writes `<vcpusched>`:
/// virt-handler runs the vCPUs of `realtime.mask` under SCHED_FIFO.
fn tune_features(vmi: &Vmi, cpu: &Cpu, domain: &mut DomainSpec) {
    let features = domain.features.get_or_insert_default();
    if vmi.spec.architecture == "amd64" {
        features.kvm.get_or_insert_default().hint_dedicated = Some(true.into());
    }
    if cpu.realtime.is_some() {
        // Performance counters disturb latency.
        features.pmu = Some(false.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pins(threads: u64, vcpus: u32, cpus: &[u32]) -> Vec<String> {
        let cpu = Cpu {
            cores: vcpus,
            ..Cpu::default()
        };
        shared_iothreads(threads, &cpu, None, cpus)
            .unwrap()
            .into_iter()
            .map(|pin| pin.cpuset.to_string())
            .collect()
    }

    #[test]
    fn few_iothreads_share_the_cpus_and_the_first_get_the_rest() {
        assert_eq!(
            pins(3, 8, &[10, 11, 12, 13, 14, 15, 16, 17]),
            ["10,11,12", "13,14,15", "16,17"]
        );
    }

    #[test]
    fn many_iothreads_go_round_from_the_second_cpu() {
        assert_eq!(pins(4, 3, &[5, 6, 7]), ["6", "7", "5", "6"]);
    }

    #[test]
    fn beside_an_isolated_emulator_only_the_first_iothread_is_pinned() {
        let emulator = CpuEmulatorPin { cpuset: "7".into() };
        let pins = shared_iothreads(
            4,
            &Cpu {
                cores: 2,
                ..Cpu::default()
            },
            Some(&emulator),
            &[5, 6, 7],
        )
        .unwrap();
        assert_eq!(
            pins,
            [CpuTuneIoThreadPin {
                iothread: 1,
                cpuset: "7".into()
            }]
        );
    }

    #[test]
    fn iothreads_without_a_topology_of_the_vmi_are_refused() {
        assert!(shared_iothreads(1, &Cpu::default(), None, &[5, 6]).is_err());
    }
}
