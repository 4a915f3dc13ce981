//! `<interface>`: network cards with a tap device or passt behind them. SR-IOV interfaces are host
//! devices, see `host_devices`. The bindings slirp and macvtap are ignored: KubeVirt removed them.

use super::passt::{ISTIO_INJECT, port_forward};
use super::{ConvertError, DomainSpec, Input};
use api::vmi::interfaces::Interface;
use domain::address::BootOrder;
use domain::alias::Alias;
use domain::interfaces::{
    Acpi, Interface as Card, InterfaceBackend, InterfaceDriver, InterfaceSource, LinkState, Mac,
    Model, Rom,
};
use domain::{PciAddress, YesNo};

/// The most queues of a tap device.
const MAX_QUEUES: u32 = 256;

/// A card for each interface that is not absent, unless it is a host device or its plugin adds its
/// own device.
pub(super) fn interfaces(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let spec = &input.vmi.spec;
    for (index, iface) in spec.domain.devices.interfaces.iter().enumerate() {
        if iface.state == "absent" {
            continue;
        }
        if !spec
            .networks
            .iter()
            .any(|network| network.name == iface.name)
        {
            return Err(refusal(
                index,
                "name",
                format!("there is no network {:?} in spec.networks", iface.name),
            ));
        }
        let plugin = iface.binding.is_some() && !has_tap(input, iface);
        if plugin || iface.sriov.is_some() {
            continue;
        }
        domain.devices.interfaces.push(card(input, index, iface)?);
    }
    Ok(())
}

fn refusal(index: usize, field: &str, reason: impl std::fmt::Display) -> ConvertError {
    ConvertError::new(
        format!("spec.domain.devices.interfaces[{index}].{field}"),
        reason,
    )
}

/// Whether `interfaceDomainAttachment` of the request names a tap device for it.
fn has_tap(input: &Input<'_>, iface: &Interface) -> bool {
    input
        .ctx
        .domain_attachment_by_interface_name
        .get(&iface.name)
        .is_some_and(|attachment| attachment == "tap")
}

/// Makes the card: model, `pciAddress`, `acpiIndex`, `macAddress`, and what is behind it. The
/// default model is `virtio`; the domain then has `virtio-non-transitional`, `virtio-transitional`
/// (`useVirtioTransitional`) or, on s390x, `virtio`. Others (`e1000e`) stay, without `<driver>`.
fn card(input: &Input<'_>, index: usize, iface: &Interface) -> Result<Card, ConvertError> {
    let mut card = Card {
        alias: Some(Alias::user(iface.name.clone())),
        ..Card::default()
    };
    let model = match iface.model.as_str() {
        "" | "virtio" => {
            card.driver = driver(input);
            &input.virtio_model
        }
        _ => &iface.model,
    };
    card.model = Some(Model {
        r#type: model.clone(),
    });
    if !iface.pci_address.is_empty() {
        let address: PciAddress = (iface.pci_address.parse())
            .map_err(|error: domain::PciAddressError| refusal(index, "pciAddress", error))?;
        card.address = Some(address.into());
    }
    card.acpi = u64::try_from(iface.acpi_index)
        .ok()
        .filter(|&index| index > 0)
        .map(|index| Acpi { index });
    card.mac = Some(&iface.mac_address)
        .filter(|mac| !mac.is_empty())
        .map(|mac| Mac { mac: mac.clone() });
    if has_tap(input, iface) {
        tap(input, iface, &mut card);
    } else if iface.passt_binding.is_some() {
        passt(input, index, iface, &mut card)?;
    }
    Ok(card)
}

/// vhost-net, with as many queues as vCPUs if `networkInterfaceMultiqueue` is on.
fn driver(input: &Input<'_>) -> Option<InterfaceDriver> {
    let multi_queue = input.devices.network_interface_multiqueue == Some(true);
    let queues = if multi_queue {
        input.cpu_topology.vcpus().min(MAX_QUEUES)
    } else {
        0
    };
    (queues > 0 || input.iommu).then(|| InterfaceDriver {
        name: String::from("vhost"),
        queues: (queues > 0).then_some(queues.into()),
        iommu: input.virtio_iommu(),
    })
}

/// A tap device that the pod has ready, and `<link state>`. Only a card that is booted from (PXE)
/// needs its option ROM (`<rom>`), and an encrypted guest must not load one.
fn tap(input: &Input<'_>, iface: &Interface, card: &mut Card) {
    card.r#type = String::from("ethernet");
    card.boot_order = iface.boot_order.map(|order| BootOrder { order });
    if input.arch.rom && (iface.boot_order.is_none() || input.iommu) {
        card.rom = Some(Rom { enabled: YesNo::No });
    }
    if iface.state == "down" {
        card.link_state = Some(LinkState {
            state: String::from("down"),
        });
    }
}

/// passt (`<interface type='vhostuser'>` with `<backend type='passt'>`) on the pod's interface that
/// the VMI's status names.
fn passt(
    input: &Input<'_>,
    index: usize,
    iface: &Interface,
    card: &mut Card,
) -> Result<(), ConvertError> {
    let status = input
        .vmi
        .status
        .interfaces
        .iter()
        .find(|status| status.name == iface.name);
    let Some(status) = status.filter(|status| !status.pod_interface_name.is_empty()) else {
        let reason = format!(
            "status.interfaces has no podInterfaceName for {:?}, on which passt would listen",
            iface.name
        );
        return Err(refusal(index, "passtBinding", reason));
    };
    card.r#type = String::from("vhostuser");
    card.source = InterfaceSource {
        device: status.pod_interface_name.clone(),
        ..InterfaceSource::default()
    };
    card.backend = Some(InterfaceBackend {
        r#type: String::from("passt"),
        log_file: input.paths.passt_log(),
    });
    card.port_forward = port_forward(
        iface,
        input.annotation(ISTIO_INJECT).eq_ignore_ascii_case("true"),
    );
    Ok(())
}
