//! Host devices that were given to the pod: by device plugins (environment variables), by the
//! network plugins (SR-IOV), or by resource claims.

mod claims;
mod generic;
mod gpu;
mod pool;
mod sriov;

use super::error::unusable;
use super::machine::Machine;
use super::{LauncherFlags, PodError, Root};
use api::vmi::Vmi;
use convert::context::{AddressSpec, Context, HostDeviceSpec};
use domain::PciAddress;

/// Puts the host devices of the VMI into the context.
pub(super) fn collect(
    root: &Root,
    machine: &Machine,
    vmi: &Vmi,
    ctx: &mut Context,
) -> Result<(), PodError> {
    ctx.generic_host_devices = generic::devices(root, machine, vmi)?;
    ctx.gpu_host_devices = gpu::devices(root, machine, vmi)?;
    ctx.sriov_devices = sriov::devices(root, vmi)?;
    Ok(())
}

/// The devices of SR-IOV interfaces on Multus networks. These can be plugged in.
///
/// # Errors
/// The pod's `network-info` lacks a device, or cannot be read.
pub fn hotplug_devices(flags: &LauncherFlags, vmi: &Vmi) -> Result<Vec<HostDeviceSpec>, PodError> {
    sriov::on_multus(&flags.root, vmi)
}

/// Puts the vGPU of a domain that arrives into the context, from which libvirt's hook takes it.
/// GPUs of other kinds do not migrate.
pub(super) fn collect_migratable_gpu(
    root: &Root,
    machine: &Machine,
    vmi: &Vmi,
    ctx: &mut Context,
) -> Result<(), PodError> {
    let gpus = gpu::devices(root, machine, vmi)?;
    if gpus.first().is_none_or(|gpu| gpu.r#type != "mdev") {
        return Ok(());
    }
    if gpus.len() > 1 {
        return Err(unusable!(
            "vGPU live migration currently only supports a single vGPU, found {}",
            gpus.len()
        ));
    }
    ctx.gpu_host_devices = gpus;
    Ok(())
}

/// A PCI device of the host.
fn pci(alias: &str, address: &str) -> Result<HostDeviceSpec, PodError> {
    Ok(HostDeviceSpec {
        r#type: String::from("pci"),
        managed: String::from("no"),
        alias: alias.into(),
        source_address: Some(pci_address(alias, address)?),
        ..HostDeviceSpec::default()
    })
}

/// A mediated device of the host.
fn mdev(alias: &str, uuid: &str, model: &'static str) -> HostDeviceSpec {
    HostDeviceSpec {
        r#type: String::from("mdev"),
        mode: String::from("subsystem"),
        model: String::from(model),
        alias: alias.into(),
        source_address: Some(AddressSpec {
            uuid: uuid.into(),
            ..AddressSpec::default()
        }),
        ..HostDeviceSpec::default()
    }
}

/// libvirt's address for `0000:3b:10.0`.
fn pci_address(device: &str, address: &str) -> Result<AddressSpec, PodError> {
    let parsed = address.parse::<PciAddress>();
    let parsed = parsed.map_err(|error| unusable!("device {device:?}: {error}"))?;
    Ok(parsed.into())
}

/// Refuses a VMI whose pod has not enough host devices or GPUs (fewer than requested), or too many.
fn all_there(kind: &str, wanted: &[&str], found: &[HostDeviceSpec]) -> Result<(), PodError> {
    if wanted.is_empty() || wanted.len() == found.len() {
        return Ok(());
    }
    let given: Vec<&str> = found.iter().map(|device| device.alias.as_str()).collect();
    Err(unusable!(
        "the VMI has {} {kind} ({}), but the pod was given {} ({}); does the node have enough of this resource, \
         and did its device plugin set the resource's variable?",
        wanted.len(),
        wanted.join(", "),
        given.len(),
        given.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_has_four_parts() {
        let address = pci_address("x", "0000:3b:1f.7").unwrap();
        assert_eq!(
            [address.domain, address.bus, address.slot, address.function],
            ["0x0000", "0x3b", "0x1f", "0x7"]
        );
        for bad in [
            "",
            "3b:10.0",
            "0000:3b:10.8",
            "0000:3b:1g.0",
            "0000:3b:10",
            "0000:3b:10.0:1",
            "00000:3b:10.0",
        ] {
            assert!(pci_address("x", bad).is_err(), "{bad:?}");
        }
    }
}
