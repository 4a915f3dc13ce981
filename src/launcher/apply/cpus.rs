//! CPU hotplug: sets how many vCPUs a guest has (`spec.domain.cpu.sockets`), and pins them.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::launcher::admit;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use crate::launcher::pod_backend::{ConvertFor, PodBackend};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::plan::{self, Cpus};
use libvirt::ChangeableDomain;

/// Serves `SyncVirtualMachineCPUs`.
pub struct CpuHotplug {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    pub(in crate::launcher) pod: Arc<dyn PodBackend>,
    pub(in crate::launcher) in_progress: Arc<Mutex<()>>,
}

impl CpuHotplug {
    /// Gives the guest as many vCPUs as the VMI says. Pins dedicated ones again, because the pod's
    /// CPUs may have changed.
    ///
    /// # Errors
    /// Those of [`admit::resize`]: libvirt refuses the change, or the VMI cannot be converted.
    pub async fn sync(
        &self,
        vmi: Arc<Vmi>,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        let what = "changing the guest's CPUs";
        let pod = self.pod.clone();
        let change = move |domain: ChangeableDomain| {
            let (wanted, context) = pod.collect_and_convert(&vmi, &options, ConvertFor::ThisPod)?;
            set_cpus(&domain, &plan::cpus(&vmi, &context, &wanted)?)?;
            tracing::info!("VMI vCPUs has been updated");
            Ok(())
        };
        admit::resize(&self.libvirt, &self.in_progress, what, change).await
    }
}

/// Plugs or unplugs vCPUs and pins them (`virDomainPinVcpuFlags`, `virDomainPinEmulator`);
/// [`plan::cpus`] decides how many. Fewer sockets are not refused here: libvirt asks the guest.
fn set_cpus(domain: &ChangeableDomain, cpus: &Cpus) -> Result<(), LauncherError> {
    domain.set_vcpus(cpus.count)?;
    for (vcpu, host_cpus) in &cpus.vcpu_pins {
        domain.pin_vcpu(*vcpu, host_cpus)?;
    }
    if let Some(host_cpus) = &cpus.emulator_pin {
        domain.pin_emulator(host_cpus)?;
    }
    Ok(())
}
