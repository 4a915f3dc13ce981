//! `<hostdev>`: devices of the node that were given to the pod, and the IOMMU descriptor for them.

use super::context::HostDeviceSpec;
use super::{ConvertError, DomainSpec, Input};
use domain::YesNo;
use domain::address::{Address, BootOrder};
use domain::alias::Alias;
use domain::host_devices::{AcpiHostDev, HostDevDriver, HostDevice, HostDeviceSource};
use domain::spec::Iommufd;

/// The name under which the launcher gives libvirt the open `/dev/iommu` (`virDomainFDAssociate`).
pub const IOMMUFD_GROUP: &str = "iommu";

/// Host devices, then GPUs, then SR-IOV functions.
pub(super) fn host_devices(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let ctx = input.ctx;
    let all = [
        &ctx.generic_host_devices,
        &ctx.gpu_host_devices,
        &ctx.sriov_devices,
    ]
    .into_iter()
    .flatten();
    domain.devices.host_devices.extend(all.map(host_device));
    Ok(())
}

pub(super) fn host_device(spec: &HostDeviceSpec) -> HostDevice {
    let alias = if spec.alias.is_empty() {
        (!spec.libvirt_alias.is_empty()).then(|| Alias::libvirt(spec.libvirt_alias.clone()))
    } else {
        Some(Alias::user(spec.alias.clone()))
    };
    HostDevice {
        source: HostDeviceSource {
            address: spec.source_address.as_ref().map(Address::from),
        },
        r#type: spec.r#type.as_str().into(),
        boot_order: spec.boot_order.map(|order| BootOrder { order }),
        managed: spec.managed.as_str().into(),
        mode: spec.mode.clone(),
        model: spec.model.clone(),
        address: spec.guest_address.as_ref().map(Address::from),
        alias,
        display: spec.display.as_str().into(),
        ram_fb: spec.ram_fb.as_str().into(),
        driver: (!spec.driver_iommufd.is_empty()).then(|| HostDevDriver {
            iommufd: spec.driver_iommufd.as_str().into(),
        }),
        acpi: (!spec.acpi_node_set.is_empty()).then(|| AcpiHostDev {
            node_set: spec.acpi_node_set.clone(),
        }),
    }
}

/// Host devices use the IOMMU descriptor that the pod offers, if there is one.
pub(super) fn iommufd(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    domain.iommufd = input.ctx.iommufd_enabled.then(|| Iommufd {
        enabled: YesNo::Yes,
        fd_group: String::from(IOMMUFD_GROUP),
    });
    Ok(())
}
