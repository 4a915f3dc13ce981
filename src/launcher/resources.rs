//! Plugs CPUs and memory of a running guest in and out, and pins its vCPUs again.

use std::sync::Arc;

use super::error::LauncherError;
use super::libvirt_domain::{CHANGE_TIMEOUT, LibvirtDomain, read_spec, within};
use super::pod_backend::PodBackend;
use super::vm::{Request, Vm};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::plan::{self, Cpus, MemoryChange};
use libvirt::{Domain, XmlKind};

/// One of KubeVirt's functional tests makes the change fail with it, with this text.
const FAIL_MEMORY_HOTPLUG: &str = "kubevirt.io/func-test-memory-hotplug-fail";

/// Changes the guest's number of CPUs and amount of memory.
pub struct Resources {
    libvirt: Arc<LibvirtDomain>,
    vm: Arc<Vm>,
    pod: Arc<dyn PodBackend>,
}

impl Resources {
    pub(super) fn new(libvirt: Arc<LibvirtDomain>, vm: Arc<Vm>, pod: Arc<dyn PodBackend>) -> Self {
        Self { libvirt, vm, pod }
    }

    /// Gives the guest the VMI's number of vCPUs, and pins them if they are dedicated: the pod's
    /// CPUs may have changed.
    ///
    /// # Errors
    /// libvirt's; the VMI cannot be converted.
    pub async fn sync_cpus(
        &self,
        vmi: Arc<Vmi>,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        let what = "changing the guest's CPUs";
        self.admit(what).await?;
        let pod = self.pod.clone();
        self.libvirt
            .in_turn(&self.vm, what, move |domain| {
                let domain = domain.ok_or(LauncherError::NoDomain)?;
                let (wanted, context) = pod.wanted(&vmi, &options)?;
                set_cpus(&domain, &plan::cpus(&vmi, &context, &wanted)?)
            })
            .await?;
        tracing::info!("VMI vCPUs has been updated");
        self.vm.refresh();
        Ok(())
    }

    /// Asks the guest to take or release memory until it has the VMI's amount. Events report the
    /// current amount.
    ///
    /// # Errors
    /// libvirt's; the VMI lacks the necessary fields.
    pub async fn sync_memory(&self, vmi: Arc<Vmi>) -> Result<(), LauncherError> {
        let what = "changing the guest's memory";
        self.admit(what).await?;
        if vmi.metadata.annotations.contains_key(FAIL_MEMORY_HOTPLUG) {
            return Err(LauncherError::FunctionalTest(FAIL_MEMORY_HOTPLUG));
        }
        self.libvirt
            .in_turn(&self.vm, what, move |domain| {
                set_memory(&domain.ok_or(LauncherError::NoDomain)?, &vmi)
            })
            .await?;
        tracing::info!("guest memory has been updated");
        self.vm.refresh();
        Ok(())
    }

    async fn admit(&self, what: &'static str) -> Result<(), LauncherError> {
        within(what, CHANGE_TIMEOUT, async {
            Ok(self.vm.wait_for_first_read().await)
        })
        .await?;
        self.vm.admit(Request::Resize)?;
        Ok(())
    }
}

fn set_cpus(domain: &Domain, cpus: &Cpus) -> Result<(), LauncherError> {
    domain.set_vcpus(cpus.count)?;
    for (vcpu, host_cpus) in &cpus.vcpu_pins {
        domain.pin_vcpu(*vcpu, host_cpus)?;
    }
    if let Some(host_cpus) = &cpus.emulator_pin {
        domain.pin_emulator(host_cpus)?;
    }
    Ok(())
}

fn set_memory(domain: &Domain, vmi: &Vmi) -> Result<(), LauncherError> {
    match plan::memory(&read_spec(domain, XmlKind::Live)?, vmi)? {
        MemoryChange::Nothing => Ok(()),
        MemoryChange::Attach(device) => Ok(domain.attach_device(&device.to_xml())?),
        MemoryChange::Update(device) => Ok(domain.update_device_live(&device.to_xml())?),
    }
}
