//! `devices.hostDevices`.

use super::super::error::unusable;
use super::super::machine::Machine;
use super::super::{PodError, Root};
use super::claims::Claimed;
use super::pool::Pool;
use super::{all_there, mdev, pci};
use api::vmi::Vmi;
use api::vmi::host_devices::HostDevice;
use convert::context::{AddressSpec, HostDeviceSpec};

/// PCI devices, then mediated ones, then USB ones, then claimed ones; each in the VMI's order.
pub(super) fn devices(
    root: &Root,
    machine: &Machine,
    vmi: &Vmi,
) -> Result<Vec<HostDeviceSpec>, PodError> {
    let wanted = &vmi.spec.domain.devices.host_devices;
    let claimed =
        |device: &&HostDevice| device.device_name.is_empty() && !device.claim_name.is_empty();
    let pool = |prefix| {
        Pool::new(
            machine,
            prefix,
            wanted.iter().map(|device| device.device_name.as_str()),
        )
    };

    let mut found = Vec::new();
    let mut addresses = pool("PCI_RESOURCE");
    for device in wanted {
        if let Some(address) = addresses.take(&device.device_name) {
            found.push(pci(&format!("hostdevice-{}", device.name), &address)?);
        }
    }
    let mut uuids = pool("MDEV_PCI_RESOURCE");
    for device in wanted {
        if let Some(uuid) = uuids.take(&device.device_name) {
            found.push(mdev(
                &format!("hostdevice-{}", device.name),
                &uuid,
                "vfio-pci",
            ));
        }
    }
    let mut ports = pool("USB_RESOURCE");
    for device in wanted {
        if let Some(port) = ports.take(&device.device_name) {
            found.push(usb(&device.name, &port)?);
        }
    }
    let plugged: Vec<&str> = wanted
        .iter()
        .filter(|device| !claimed(device))
        .map(|device| device.name.as_str())
        .collect();
    all_there("host devices", &plugged, &found)?;

    for device in wanted.iter().filter(claimed) {
        let alias = format!("dra-hostdevice-{}", device.name);
        found.push(
            match super::claims::find(
                root,
                vmi,
                &device.name,
                &device.claim_name,
                &device.request_name,
            )? {
                Claimed::Mdev(uuid) => mdev(
                    &alias,
                    &uuid,
                    if vmi.spec.architecture == "s390x" {
                        "vfio-ap"
                    } else {
                        "vfio-pci"
                    },
                ),
                Claimed::Pci(address) => pci(&alias, &address)?,
            },
        );
    }
    Ok(found)
}

/// A USB device of the host, at `bus:device`.
fn usb(name: &str, address: &str) -> Result<HostDeviceSpec, PodError> {
    let Some((bus, device)) = address
        .split_once(':')
        .filter(|(_, device)| !device.contains(':'))
    else {
        return Err(unusable!(
            "device {name:?}: {address:?} is not a USB address such as 1:4 (bus and device)"
        ));
    };
    Ok(HostDeviceSpec {
        r#type: String::from("usb"),
        mode: String::from("subsystem"),
        alias: format!("usb-host-{name}"),
        source_address: Some(AddressSpec {
            bus: bus.into(),
            device: device.into(),
            ..AddressSpec::default()
        }),
        ..HostDeviceSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        variables: &[(&str, &str)],
        devices_json: &str,
    ) -> Result<Vec<HostDeviceSpec>, String> {
        let machine = Machine {
            root: "/".into(),
            environment: variables
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        };
        let vmi = serde_json::from_str(&format!(
            r#"{{"spec":{{"domain":{{"devices":{{"hostDevices":{devices_json}}}}}}}}}"#
        ))
        .unwrap();
        devices(&Root::default(), &machine, &vmi).map_err(|e| e.to_string())
    }

    const ONE: &str = r#"[{"name":"card","deviceName":"vendor.com/card"}]"#;

    #[test]
    fn the_kind_is_that_of_the_variable() {
        let pci = &found(&[("PCI_RESOURCE_VENDOR_COM_CARD", "0000:3b:10.0")], ONE).unwrap()[0];
        assert_eq!(
            (
                pci.r#type.as_str(),
                pci.alias.as_str(),
                pci.managed.as_str()
            ),
            ("pci", "hostdevice-card", "no")
        );
        let mdev = &found(
            &[("MDEV_PCI_RESOURCE_VENDOR_COM_CARD", "11111111-aaaa")],
            ONE,
        )
        .unwrap()[0];
        assert_eq!(
            (
                mdev.r#type.as_str(),
                mdev.mode.as_str(),
                mdev.model.as_str()
            ),
            ("mdev", "subsystem", "vfio-pci")
        );
        assert_eq!(mdev.source_address.as_ref().unwrap().uuid, "11111111-aaaa");
        let usb = &found(&[("USB_RESOURCE_VENDOR_COM_CARD", "1:4")], ONE).unwrap()[0];
        assert_eq!(
            (usb.r#type.as_str(), usb.alias.as_str()),
            ("usb", "usb-host-card")
        );
    }

    #[test]
    fn a_device_that_was_not_given_is_named() {
        let error = found(&[], ONE).unwrap_err();
        assert!(
            error.contains("the VMI has 1 host devices (card), but the pod was given 0"),
            "{error}"
        );
    }

    #[test]
    fn a_usb_address_has_two_parts() {
        for bad in ["1", "1:2:3"] {
            assert!(
                found(&[("USB_RESOURCE_VENDOR_COM_CARD", bad)], ONE)
                    .unwrap_err()
                    .contains("is not a USB address"),
                "{bad}"
            );
        }
    }
}
