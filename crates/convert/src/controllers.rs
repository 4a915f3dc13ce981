//! `<controller>`: USB, SCSI, virtio-serial, and the PCI root with its 64-bit hole turned off.

use super::arch::Usb;
use super::{ConvertError, DomainSpec, Input, character, iothreads};
use domain::controllers::{Controller, ControllerDriver, ControllerType, PciHole64};

/// Annotation that turns off the 64-bit PCI hole.
pub(super) const DISABLE_PCI_HOLE64: &str = "kubevirt.io/disablePCIHole64";
/// Prefix of the variables by which a device plugin announces USB devices of a resource.
const USB_RESOURCE: &str = "USB_RESOURCE_";

/// The controllers that other devices need.
pub(super) fn apply(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let controllers = &mut domain.devices.controllers;
    let driver = input.iommu.then(|| ControllerDriver {
        iommu: input.virtio_iommu(),
        ..ControllerDriver::default()
    });

    let usb = if needs_usb(input) {
        "qemu-xhci"
    } else {
        "none"
    };
    controllers.push(controller(ControllerType::Usb, String::from(usb)));
    if needs_scsi(input) {
        let model = match input.arch.scsi_controller {
            "" => input.virtio_model.clone(),
            model => String::from(model),
        };
        controllers.push(Controller {
            driver: scsi_driver(input, driver.clone()),
            ..controller(ControllerType::Scsi, model)
        });
    }
    if input.arch.pci_hole64
        && input
            .annotation(DISABLE_PCI_HOLE64)
            .eq_ignore_ascii_case("true")
    {
        let hole = PciHole64 {
            value: 0,
            unit: String::from("KiB"),
        };
        controllers.push(Controller {
            pci_hole64: Some(hole),
            ..controller(ControllerType::Pci, String::from("pcie-root"))
        });
    }
    if character::has_serial_console(input) {
        controllers.push(Controller {
            driver,
            ..controller(ControllerType::VirtioSerial, input.virtio_model.clone())
        });
    }
    Ok(())
}

/// The first controller of a kind.
fn controller(kind: ControllerType, model: String) -> Controller {
    Controller {
        r#type: kind,
        index: String::from("0"),
        model,
        ..Controller::default()
    }
}

/// Whether anything sits on the USB bus. A CD-ROM drive or LUN there does not count.
fn needs_usb(input: &Input<'_>) -> bool {
    let devices = &input.devices;
    match input.arch.usb {
        Usb::Always => true,
        Usb::Never => false,
        Usb::WhenUsed => {
            devices
                .inputs
                .iter()
                .any(|device| matches!(device.bus.as_str(), "" | "usb"))
                || devices
                    .disks
                    .iter()
                    .filter_map(|disk| disk.disk.as_ref())
                    .any(|disk| disk.bus == "usb")
                || devices.client_passthrough.is_some()
                || devices
                    .host_devices
                    .iter()
                    .any(|device| is_usb_resource(input, &device.device_name))
        }
    }
}

/// Whether a device plugin has announced the resource as USB devices.
fn is_usb_resource(input: &Input<'_>, resource: &str) -> bool {
    let name = |variable: &str| {
        variable
            .strip_prefix(USB_RESOURCE)
            .is_some_and(|name| is_variable_of(name, resource))
    };
    input.ctx.environment.keys().any(|variable| name(variable))
}

/// Whether `name` is the resource's name as it is spelt in variables.
fn is_variable_of(name: &str, resource: &str) -> bool {
    let spelt = resource
        .chars()
        .flat_map(char::to_uppercase)
        .map(|c| if matches!(c, '/' | '.') { '_' } else { c });
    name.chars().eq(spelt)
}

/// Disks can be hotplugged to SCSI, so its controller (virtio-scsi) is there without
/// `disableHotplug`.
fn needs_scsi(input: &Input<'_>) -> bool {
    let devices = &input.devices;
    !devices.disable_hotplug || devices.disks.iter().any(|disk| disk.bus() == "scsi")
}

/// The SCSI controller's thread and queues, if a SCSI disk asks for a thread.
fn scsi_driver(input: &Input<'_>, driver: Option<ControllerDriver>) -> Option<ControllerDriver> {
    let disks = &input.devices.disks;
    let Some(thread) = input
        .iothreads
        .and_then(|threads| iothreads::of_scsi_controller(threads, disks))
    else {
        return driver;
    };
    Some(ControllerDriver {
        iothread: Some(thread),
        queues: Some(input.queues()),
        ..driver.unwrap_or_default()
    })
}
