//! Attaches the devices of SR-IOV interfaces that were plugged into the pod, in the background.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{LibvirtDomain, read_spec};
use crate::launcher::pod_backend::PodBackend;
use crate::launcher::vm::{JobKind, Refusal};
use api::vmi::Vmi;
use convert::plan;
use libvirt::XmlKind;

/// Names the job in errors.
const WHAT: &str = "attaching host devices";

/// Attaches host devices to the running domain.
pub struct HostDevices {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    pub(in crate::launcher) pod: Arc<dyn PodBackend>,
    /// Held by a hotplug from its request to its end.
    pub(in crate::launcher) in_progress: Arc<Mutex<()>>,
}

impl HostDevices {
    /// `HotplugHostDevices`: starts attaching the devices that the VMI has and the domain lacks
    /// (`plan::host_devices`), once the jobs that exclude it have ended. A failure is logged and
    /// does not stop the others; virt-handler asks again at its next sync.
    ///
    /// # Errors
    /// An earlier call is still in progress.
    pub fn begin(self: &Arc<Self>, vmi: Arc<Vmi>) -> Result<(), Refusal> {
        let place = self.in_progress.clone().try_lock_owned();
        let place = place.map_err(|_| Refusal::Job(JobKind::HostDeviceHotplug))?;
        tokio::spawn(self.clone().attach_all(vmi, place));
        Ok(())
    }

    async fn attach_all(self: Arc<Self>, vmi: Arc<Vmi>, _place: OwnedMutexGuard<()>) {
        if let Err(error) = self.attach(vmi).await {
            tracing::error!(reason = %os::logging::chain(&error), "Host devices cannot be attached");
        }
        self.libvirt.vm.refresh();
    }

    async fn attach(&self, vmi: Arc<Vmi>) -> Result<(), LauncherError> {
        // The waits have no limit, because no caller waits for an answer.
        let job = self
            .libvirt
            .vm
            .begin_after_others(JobKind::HostDeviceHotplug);
        let job = job.await?;
        let turn = job.turn().await;
        let pod = self.pod.clone();
        let attached = self.libvirt.change_in_any_time(&turn, WHAT, move |domain| {
            let domain = domain.ok_or(LauncherError::NoDomain)?;
            let wanted = pod.hotplug_devices(&vmi)?;
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
        attached.await
    }
}
