//! Attaches the devices of SR-IOV interfaces that were plugged into the pod, in the background.

use std::sync::Arc;

use crate::launcher::admit::first_read;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{LibvirtDomain, read_spec};
use crate::launcher::pod_backend::PodBackend;
use crate::launcher::vm::{Job, JobKind, Vm};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::plan;
use libvirt::XmlKind;

/// Names the job in errors.
const WHAT: &str = "attaching host devices";

/// Attaches host devices to the running domain.
pub struct HostDevices {
    libvirt: Arc<LibvirtDomain>,
    vm: Arc<Vm>,
    pod: Arc<dyn PodBackend>,
}

impl HostDevices {
    pub(in crate::launcher) fn new(
        libvirt: Arc<LibvirtDomain>,
        vm: Arc<Vm>,
        pod: Arc<dyn PodBackend>,
    ) -> Arc<Self> {
        Arc::new(Self { libvirt, vm, pod })
    }

    /// `HotplugHostDevices`: starts attaching the devices that the VMI has and the domain lacks
    /// (`plan::host_devices`). A failure is logged and does not stop the others; virt-handler asks
    /// again at its next sync.
    ///
    /// # Errors
    /// Another job runs, or there is no domain.
    pub async fn begin(
        self: &Arc<Self>,
        vmi: Arc<Vmi>,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        first_read(&self.vm).await?;
        let job = self.vm.begin(JobKind::HostDeviceHotplug)?;
        tokio::spawn(self.clone().attach(vmi, options, job));
        Ok(())
    }

    async fn attach(self: Arc<Self>, vmi: Arc<Vmi>, options: VirtualMachineOptions, job: Job) {
        // The wait has no limit, because no caller waits for an answer.
        let turn = job.turn().await;
        let pod = self.pod.clone();
        let attached = self.libvirt.change_in_any_time(&turn, WHAT, move |domain| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            let (wanted, _) = pod.wanted(&vmi, &options)?;
            let live = read_spec(&domain, XmlKind::Live)?;
            for device in plan::host_devices(&live, &wanted) {
                let alias = device.alias.as_ref().map(|alias| alias.name.as_str());
                match domain.attach_device(&device.to_xml()) {
                    Ok(()) => tracing::info!(alias, "Attached host device"),
                    Err(error) => {
                        tracing::error!(alias, reason = %error, "The host device cannot be attached");
                    }
                }
            }
            Ok(())
        });
        if let Err(error) = attached.await {
            tracing::error!(reason = %os::logging::chain(&error), "Host devices cannot be attached");
        }
        drop(job);
        self.vm.refresh();
    }
}
