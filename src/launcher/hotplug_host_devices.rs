//! SR-IOV interfaces that were plugged into the pod: their devices are attached, in the background.

use std::sync::Arc;

use super::libvirt_domain::{CHANGE_TIMEOUT, blocking, within};
use super::sync::read_spec;
use super::vm::JobKind;
use super::{Launcher, LauncherError};
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use convert::plan;
use libvirt::XmlKind;

impl Launcher {
    /// Begins to attach the devices that the VMI has and the domain lacks. What fails is logged, and does not stop the
    /// others; virt-handler asks again at its next sync.
    ///
    /// # Errors
    /// Another job runs, or there is no domain.
    pub async fn hotplug_host_devices(
        self: &Arc<Self>,
        vmi: Arc<Vmi>,
        options: VirtualMachineOptions,
    ) -> Result<(), LauncherError> {
        let what = "attaching host devices";
        within(what, CHANGE_TIMEOUT, self.known()).await?;
        let job = self.vm.begin(JobKind::HostDeviceHotplug)?;
        let launcher = self.clone();
        tokio::spawn(async move {
            let pod = launcher.pod.clone();
            let attach = move |domain: Option<libvirt::Domain>| {
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
            };
            // However long that takes: nobody waits for an answer.
            let _turn = launcher.vm.turn().await;
            let (connection, name) = (launcher.domain.connection(), launcher.domain.name().clone());
            let attached = blocking(what, move || attach(connection.lookup(&name)?)).await;
            if let Err(error) = attached {
                tracing::error!(reason = %os::logging::chain(&error), "Host devices cannot be attached");
            }
            drop(job);
            launcher.refresh();
        });
        Ok(())
    }
}
