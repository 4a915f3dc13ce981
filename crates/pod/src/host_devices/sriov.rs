//! SR-IOV interfaces: which virtual function (VF) of the host each is. Its PCI address is in the
//! pod's file `network-info`, or in a resource claim (DRA).

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::super::error::unusable;
use super::super::safe_path::{Dir, optional};
use super::super::{PodError, Root};
use super::claims::Claimed;
use super::{pci, pci_address};
use api::pod_paths;
use api::vmi::Vmi;
use api::vmi::interfaces::Interface;
use api::vmi::networks::Network;
use convert::context::HostDeviceSpec;

/// Limit of the wait for the file's content. The kubelet fills the file some time after the pod has
/// started.
const MAP_FILE_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit of the file's size, in bytes: more than any list of interfaces has.
const LARGEST: u64 = 4 << 20;

/// Devices of interfaces on Multus networks, then of interfaces on claimed networks.
pub(super) fn devices(root: &Root, vmi: &Vmi) -> Result<Vec<HostDeviceSpec>, PodError> {
    let mut found = on_multus(root, vmi)?;
    for interface in interfaces(vmi) {
        let claim = vmi
            .spec
            .networks
            .iter()
            .find(|network| network.name == interface.name)
            .and_then(|network| claim(network));
        let Some((claim, request)) = claim else {
            continue;
        };
        match super::claims::find(root, vmi, &interface.name, claim, request)? {
            Claimed::Pci(address) => found.push(device(interface, &address)?),
            Claimed::Mdev(_) => {
                return Err(unusable!(
                    "interface {:?}: claim {claim:?} does not have a PCI device",
                    interface.name
                ));
            }
        }
    }
    Ok(found)
}

/// Devices of interfaces on Multus networks. Needs only the VMI and `network-info`.
pub(super) fn on_multus(root: &Root, vmi: &Vmi) -> Result<Vec<HostDeviceSpec>, PodError> {
    let mut interfaces = interfaces(vmi)
        .filter(|interface| is_in_multus_status(vmi, &interface.name))
        .peekable();
    if interfaces.peek().is_none() {
        return Ok(Vec::new());
    }
    let mut addresses = addresses_by_network(root)?;
    let found = interfaces.map(|interface| {
        let address = addresses.remove(interface.name.as_str()).ok_or_else(|| {
            let (dir, name) = pod_paths::NETWORK_INFO;
            unusable!(
                "interface {:?}: {dir}/{name} does not have a PCI address for its network; has the SR-IOV plugin published device information?",
                interface.name
            )
        })?;
        device(interface, &address)
    });
    found.collect()
}

fn interfaces(vmi: &Vmi) -> impl Iterator<Item = &Interface> {
    let interfaces = vmi.spec.domain.devices.interfaces.iter();
    interfaces.filter(|interface| interface.sriov.is_some())
}

fn claim(network: &Network) -> Option<(&str, &str)> {
    network
        .resource_claim
        .as_ref()
        .map(|claim| (claim.claim_name.as_str(), claim.request_name.as_str()))
}

/// The cluster has seen the interface in Multus' network status.
fn is_in_multus_status(vmi: &Vmi, name: &str) -> bool {
    let status = vmi
        .status
        .interfaces
        .iter()
        .find(|status| status.name == name);
    status.is_some_and(|status| {
        status
            .info_source
            .split(',')
            .any(|source| source.trim() == "multus-status")
    })
}

fn device(interface: &Interface, address: &str) -> Result<HostDeviceSpec, PodError> {
    let mut device = pci(&format!("sriov-{}", interface.name), address)?;
    if !interface.pci_address.is_empty() {
        device.guest_address = Some(pci_address(&interface.name, &interface.pci_address)?);
    }
    device.boot_order = interface.boot_order;
    Ok(device)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NetworkInfo {
    interfaces: Vec<InterfaceInfo>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InterfaceInfo {
    network: String,
    device_info: Option<DeviceInfo>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeviceInfo {
    pci: Option<PciInfo>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PciInfo {
    #[serde(rename = "pci-address")]
    address: String,
}

fn addresses_by_network(root: &Root) -> Result<BTreeMap<String, String>, PodError> {
    let shown = root
        .path(pod_paths::NETWORK_INFO.0)
        .join(pod_paths::NETWORK_INFO.1);
    let text = read_when_filled(root)?;
    let info: NetworkInfo = serde_json::from_slice(&text)
        .map_err(|e| PodError::invalid(shown.clone(), format!("no network information: {e}")))?;
    let addresses: BTreeMap<String, String> = info
        .interfaces
        .into_iter()
        .filter_map(|interface| Some((interface.network, interface.device_info?.pci?.address)))
        .filter(|(_, address)| !address.is_empty())
        .collect();
    if addresses.is_empty() {
        let reason = "it names no PCI address of any SR-IOV network; is the pod on the networks that the VMI asks for?".to_owned();
        return Err(PodError::invalid(shown, reason));
    }
    Ok(addresses)
}

fn read_when_filled(root: &Root) -> Result<Vec<u8>, PodError> {
    let (dir, name) = pod_paths::NETWORK_INFO;
    let give_up = os::time::deadline(MAP_FILE_TIMEOUT).into_std();
    loop {
        let file = Dir::of_pod(root, dir).and_then(|dir| dir.find_within(name));
        let Some(file) = optional(file)? else {
            // The file is not mounted, so it will not come.
            return Ok(b"{}".to_vec());
        };
        let text = file.content(LARGEST)?;
        if !text.is_empty() {
            return Ok(text);
        }
        if Instant::now() >= give_up {
            let reason = "still empty after a second; the cluster fills it with the pod's networks, try again".to_owned();
            return Err(PodError::invalid(root.path(dir).join(name), reason));
        }
        // The kubelet replaces the file's directory by a link. A watch of the file would not see
        // that.
        #[expect(
            clippy::disallowed_methods,
            reason = "for a second at most, in a sync or a hotplug of host devices"
        )]
        sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi() -> Vmi {
        serde_json::from_str(
            r#"{"spec":{"domain":{"devices":{"interfaces":[
                    {"name":"fast","sriov":{},"pciAddress":"0000:81:01.0","bootOrder":2},{"name":"default","masquerade":{}}]}},
                 "networks":[{"name":"fast","multus":{"networkName":"n"}}]},
                "status":{"interfaces":[{"name":"fast","infoSource":"multus-status, domain"}]}}"#,
        )
        .unwrap()
    }

    fn root(info: Option<&str>) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        if let Some(info) = info {
            std::fs::create_dir_all(dir.path().join("etc/podinfo")).unwrap();
            std::fs::write(dir.path().join("etc/podinfo/network-info"), info).unwrap();
        }
        let root = Root::new(dir.path());
        (dir, root)
    }

    #[test]
    fn an_interface_is_the_device_of_its_network() {
        let info = r#"{"interfaces":[{"network":"fast","deviceInfo":{"type":"pci","pci":{"pci-address":"0000:3b:10.2"}}}]}"#;
        let (_dir, root) = root(Some(info));
        let found = devices(&root, &vmi()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].alias, "sriov-fast");
        assert_eq!(found[0].source_address.as_ref().unwrap().slot, "0x10");
        assert_eq!(found[0].guest_address.as_ref().unwrap().bus, "0x81");
        assert_eq!(found[0].boot_order, Some(2));
    }

    #[test]
    fn an_interface_that_is_not_up_yet_has_no_device() {
        let mut vmi = vmi();
        vmi.status.interfaces.clear();
        let (_dir, root) = root(None);
        assert_eq!(devices(&root, &vmi).unwrap(), []);
    }

    #[test]
    fn what_is_missing_is_named() {
        let (_dir, none) = root(None);
        assert!(
            devices(&none, &vmi())
                .unwrap_err()
                .to_string()
                .contains("network-info: it names no PCI address")
        );
        let (_dir, other) = root(Some(
            r#"{"interfaces":[{"network":"slow","deviceInfo":{"pci":{"pci-address":"0000:3b:10.2"}}}]}"#,
        ));
        assert!(
            devices(&other, &vmi())
                .unwrap_err()
                .to_string()
                .contains("interface \"fast\"")
        );
        let (_dir, bad) = root(Some("{"));
        assert!(
            devices(&bad, &vmi())
                .unwrap_err()
                .to_string()
                .contains("no network information")
        );
    }

    /// Claimed networks come with the pod. Only interfaces on Multus networks are plugged in later.
    #[test]
    fn an_interface_on_a_claimed_network_is_not_plugged_in() {
        let info = r#"{"interfaces":[{"network":"fast","deviceInfo":{"pci":{"pci-address":"0000:3b:10.2"}}}]}"#;
        let (_dir, root) = root(Some(info));
        let vmi: Vmi = serde_json::from_value(serde_json::json!({
            "spec": {
                "domain": {"devices": {"interfaces": [{"name": "fast", "sriov": {}}, {"name": "dra", "sriov": {}}]}},
                "networks": [{"name": "dra", "resourceClaim": {"claimName": "c", "requestName": "r"}}]},
            "status": {"interfaces": [{"name": "fast", "infoSource": "multus-status"}]}}))
        .unwrap();
        let found = on_multus(&root, &vmi).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].alias.as_str(), &found[0].guest_address),
            ("sriov-fast", &None)
        );
        devices(&root, &vmi).unwrap_err();
    }
}
