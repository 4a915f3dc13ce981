//! What several steps need to know, worked out once from the VMI and the context.

use super::iothreads::count::{IoThreads, count};
use super::{Arch, Context, ConvertError};
use api::pod_paths::PodPaths;
use api::vmi::Vmi;
use domain::OnOff;

/// The input of the steps.
#[derive(Debug)]
pub struct Input<'a> {
    pub vmi: &'a Vmi,
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
    /// Number of vCPUs; it wraps around as the reference's does.
    #[must_use]
    pub fn vcpus(self) -> u32 {
        self.cores
            .wrapping_mul(self.sockets)
            .wrapping_mul(self.threads)
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

    /// The VMI has dedicated CPUs.
    #[must_use]
    pub fn dedicated_cpus(&self) -> bool {
        self.vmi
            .spec
            .domain
            .cpu
            .as_ref()
            .is_some_and(|cpu| cpu.dedicated_cpu_placement)
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
fn cpu_topology(vmi: &Vmi) -> Result<CpuTopology, ConvertError> {
    if let Some(cpu) = &vmi.spec.domain.cpu
        && (cpu.sockets, cpu.cores, cpu.threads) != (0, 0, 0)
    {
        return Ok(CpuTopology {
            sockets: cpu.sockets.max(1),
            cores: cpu.cores.max(1),
            threads: cpu.threads.max(1),
        });
    }
    let resources = &vmi.spec.domain.resources;
    let value = |list: &str, quantity: &api::vmi::Quantity| {
        quantity
            .value()
            .map_err(|error| ConvertError::new(format!("spec.domain.resources.{list}.cpu"), error))
    };
    let sockets = match (resources.limits.get("cpu"), resources.requests.get("cpu")) {
        (Some(limit), _) => value("limits", limit)?,
        (None, Some(request)) => value("requests", request)?,
        (None, None) => 1,
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "wraps around as the reference's does"
    )]
    Ok(CpuTopology {
        sockets: sockets as u32,
        cores: 1,
        threads: 1,
    })
}
