//! What several rules need to know, worked out once from the VMI and the context.

use super::iothreads::count::{IoThreads, count};
use super::{Arch, Context, ConvertError};
use api::pod_paths::PodPaths;
use api::vmi::cpu::Cpu;
use api::vmi::devices::Devices;
use api::vmi::{Vmi, spec};
use domain::OnOff;

/// The most vCPUs that libvirt describes (`VIR_DOMAIN_CPUMASK_LEN`); QEMU can have fewer. libvirt's
/// memory grows with their number before it refuses them.
// D-conv-3 (docs/differences.md).
const MAX_VCPUS: u32 = 16_384;

/// The input of the rules.
#[derive(Debug)]
pub struct Input<'a> {
    pub vmi: &'a Vmi,
    /// Its `spec.domain`.
    pub spec: &'a spec::DomainSpec,
    /// Its `spec.domain.devices`.
    pub devices: &'a Devices,
    pub ctx: &'a Context,
    /// Rules of the guest's architecture.
    pub arch: &'static Arch,
    /// Where things are in the pod.
    pub paths: PodPaths<'a>,
    /// `model` of controllers, interfaces, rng and balloon: follows the VMI.
    pub virtio_model: String,
    /// `model` of disks: follows the context's `useVirtioTransitional`.
    pub disk_virtio_model: String,
    /// virtio devices go through the IOMMU, because the host must not read the guest's memory
    /// (SEV, Secure Execution; TDX does not need it).
    pub iommu: bool,
    /// Sockets, cores and threads that the VMI asks for.
    pub cpu_topology: CpuTopology,
    /// Threads for disk I/O; `None` without a policy and without a dedicated thread.
    pub iothreads: Option<IoThreads>,
}

/// Guest CPUs as the VMI asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTopology {
    pub sockets: u32,
    /// Cores of a socket.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
}

impl CpuTopology {
    /// Number of vCPUs.
    #[must_use]
    pub fn vcpus(self) -> u32 {
        self.cores
            .saturating_mul(self.sockets)
            .saturating_mul(self.threads)
    }
}

impl<'a> Input<'a> {
    /// Derives it from the VMI and the context.
    ///
    /// # Errors
    /// When a value cannot be used, such as a malformed quantity.
    pub fn new(vmi: &'a Vmi, ctx: &'a Context) -> Result<Self, ConvertError> {
        let arch = Arch::named(&ctx.architecture);
        let devices = &vmi.spec.domain.devices;
        Ok(Self {
            vmi,
            spec: &vmi.spec.domain,
            devices,
            ctx,
            arch,
            paths: ctx.paths(),
            virtio_model: arch.virtio_model(devices.use_virtio_transitional == Some(true)),
            disk_virtio_model: arch.virtio_model(ctx.use_virtio_transitional),
            iommu: ctx.use_launch_security_sev || ctx.use_launch_security_pv,
            cpu_topology: cpu_topology(vmi)?,
            iothreads: count(vmi)?,
        })
    }

    /// Value of an annotation of the VMI; empty if it has none.
    #[must_use]
    pub fn annotation(&self, name: &str) -> &'a str {
        self.vmi
            .metadata
            .annotations
            .get(name)
            .map_or("", String::as_str)
    }

    /// The VMI's CPU, if it is a dedicated one.
    #[must_use]
    pub fn dedicated_cpu(&self) -> Option<&'a Cpu> {
        let cpu = self.spec.cpu.as_ref();
        cpu.filter(|cpu| cpu.dedicated_cpu_placement)
    }

    /// One queue for each vCPU, for devices with several queues.
    #[must_use]
    pub fn queues(&self) -> u64 {
        u64::from(self.cpu_topology.vcpus().max(1))
    }

    /// `iommu` of virtio devices: `on` where they go through the IOMMU, else left out.
    #[must_use]
    pub fn virtio_iommu(&self) -> OnOff {
        if self.iommu { OnOff::On } else { OnOff::Unset }
    }
}

/// Topology as `spec.domain.cpu` has it. Without any of its numbers the CPU limit, or else the
/// request, becomes the number of sockets.
///
/// # Errors
/// With `maxSockets` or without, there are more vCPUs than libvirt describes.
fn cpu_topology(vmi: &Vmi) -> Result<CpuTopology, ConvertError> {
    let none = Cpu::default();
    let cpu = vmi.spec.domain.cpu.as_ref().unwrap_or(&none);
    let (field, sockets) = match (cpu.sockets, cpu.cores, cpu.threads) {
        (0, 0, 0) => cpu_resource(vmi)?,
        _ => ("spec.domain.cpu.sockets", cpu.sockets.max(1)),
    };
    let topology = CpuTopology {
        sockets,
        cores: cpu.cores.max(1),
        threads: cpu.threads.max(1),
    };
    let maximum = CpuTopology {
        sockets: sockets.max(cpu.max_sockets),
        ..topology
    };
    let largest = [
        (field, sockets),
        ("spec.domain.cpu.cores", cpu.cores),
        ("spec.domain.cpu.threads", cpu.threads),
        ("spec.domain.cpu.maxSockets", cpu.max_sockets),
    ];
    let largest = largest.into_iter().max_by_key(|&(_, number)| number);
    match largest {
        Some((field, _)) if maximum.vcpus() > MAX_VCPUS => {
            let CpuTopology {
                sockets,
                cores,
                threads,
            } = maximum;
            let reason = format!(
                "{sockets} socket(s) of {cores} core(s) of {threads} thread(s) are too many; libvirt describes up to {MAX_VCPUS} vCPUs"
            );
            Err(ConvertError::new(field, reason))
        }
        _ => Ok(topology),
    }
}

/// The CPU limit, or else the request, as a number of sockets, with its field.
fn cpu_resource(vmi: &Vmi) -> Result<(&'static str, u32), ConvertError> {
    let resources = &vmi.spec.domain.resources;
    let (field, quantity) = match (resources.limits.get("cpu"), resources.requests.get("cpu")) {
        (Some(limit), _) => ("spec.domain.resources.limits.cpu", limit),
        (None, Some(request)) => ("spec.domain.resources.requests.cpu", request),
        (None, None) => return Ok(("", 1)),
    };
    let cpus = quantity.value().map_err(ConvertError::of(field))?;
    let too_many = |_| {
        ConvertError::new(
            field,
            format!("is {cpus}; libvirt describes up to {MAX_VCPUS} vCPUs"),
        )
    };
    Ok((field, u32::try_from(cpus).map_err(too_many)?))
}
