//! `<sysinfo>`: facts about its machine that the guest reads from SMBIOS.

use super::{ConvertError, DomainSpec, Input};
use domain::sysinfo::{SysInfo, SysInfoEntry};

fn entry(name: &'static str, value: &str) -> SysInfoEntry {
    SysInfoEntry {
        name: String::from(name),
        value: value.to_owned(),
    }
}

/// UUID and serial number of the VMI's firmware, the cluster's name of the product
/// (`VirtualMachineSMBios`), and the chassis. libvirt takes the domain's `<uuid>` from here, as no
/// rule writes one.
pub(super) fn sysinfo(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let spec = &input.spec;
    let mut system = Vec::new();
    if let Some(firmware) = &spec.firmware {
        system.push(entry("uuid", &firmware.uuid));
        if !firmware.serial.is_empty() {
            system.push(entry("serial", &firmware.serial));
        }
    }
    if let Some(smbios) = &input.ctx.smbios {
        system.extend([
            entry("manufacturer", &smbios.manufacturer),
            entry("family", &smbios.family),
            entry("product", &smbios.product),
            entry("sku", &smbios.sku),
            entry("version", &smbios.version),
        ]);
    }
    let chassis = spec.chassis.as_ref().map_or_else(Vec::new, |chassis| {
        vec![
            entry("manufacturer", &chassis.manufacturer),
            entry("version", &chassis.version),
            entry("serial", &chassis.serial),
            entry("asset", &chassis.asset),
            entry("sku", &chassis.sku),
        ]
    });
    domain.sys_info = Some(SysInfo {
        r#type: String::from("smbios"),
        system,
        chassis,
        ..SysInfo::default()
    });
    Ok(())
}
