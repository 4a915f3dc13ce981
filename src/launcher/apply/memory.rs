//! Memory hotplug: resizes a running guest's virtio-mem device (`spec.domain.memory.guest`).

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::launcher::admit;
use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::{LibvirtDomain, read_spec};
use api::vmi::Vmi;
use convert::plan::{self, MemoryChange};
use libvirt::{ChangeableDomain, XmlKind};

/// A functional test of KubeVirt sets this annotation to make the change fail with this text.
const FAIL_MEMORY_HOTPLUG: &str = "kubevirt.io/func-test-memory-hotplug-fail";

/// Serves `SyncVirtualMachineMemory`.
pub struct MemoryHotplug {
    pub(in crate::launcher) libvirt: Arc<LibvirtDomain>,
    pub(in crate::launcher) in_progress: Arc<Mutex<()>>,
}

impl MemoryHotplug {
    /// Asks the guest to take or release memory until it has what the VMI says, and does not wait:
    /// each `VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE` sends virt-handler what it has.
    ///
    /// # Errors
    /// Those of [`admit::resize`]: libvirt refuses the change, or the VMI lacks a needed field.
    pub async fn sync(&self, vmi: Arc<Vmi>) -> Result<(), LauncherError> {
        let what = "changing the guest's memory";
        if vmi.metadata.annotations.contains_key(FAIL_MEMORY_HOTPLUG) {
            return Err(LauncherError::FunctionalTest(FAIL_MEMORY_HOTPLUG));
        }
        let change = move |domain: ChangeableDomain| {
            set_memory(&domain, &vmi)?;
            tracing::info!("guest memory has been updated");
            Ok(())
        };
        admit::resize(&self.libvirt, &self.in_progress, what, change).await
    }
}

fn set_memory(domain: &ChangeableDomain, vmi: &Vmi) -> Result<(), LauncherError> {
    match plan::memory(&read_spec(domain, XmlKind::Live)?, vmi)? {
        MemoryChange::Nothing => Ok(()),
        MemoryChange::Attach(device) => Ok(domain.attach_device(&device.to_xml())?),
        MemoryChange::Update(device) => Ok(domain.update_device_live(&device.to_xml())?),
    }
}
