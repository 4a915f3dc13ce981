//! Device metadata: the user tags a device in the VMI, the guest looks the tag up and finds the
//! address that the device has there.

use std::collections::BTreeMap;

use super::super::machine::Machine;
use super::data::DeviceData;
use api::vmi::Vmi;
use convert::parse_list;
use domain::DomainSpec;
use domain::address::{Address, AddressType};
use domain::host_devices::HostDevice;

/// Metadata of the VMI's tagged devices, with the addresses that libvirt has given them in
/// `domain`, as it is after definition. Reads the NUMA nodes of host devices from sysfs.
#[must_use]
pub fn device_metadata(vmi: &Vmi, domain: &DomainSpec) -> Vec<DeviceData> {
    device_metadata_with(&Machine::this(), vmi, domain)
}

// D-disk-21 (docs/differences.md).
fn device_metadata_with(machine: &Machine, vmi: &Vmi, domain: &DomainSpec) -> Vec<DeviceData> {
    let devices = &vmi.spec.domain.devices;
    // Alias in the domain → kind and tag.
    let mut tagged: BTreeMap<String, (&str, &str)> = BTreeMap::new();
    for interface in devices
        .interfaces
        .iter()
        .filter(|interface| !interface.tag.is_empty())
    {
        tagged.insert(interface.name.to_string(), ("nic", &interface.tag));
        tagged.insert(format!("sriov-{}", interface.name), ("nic", &interface.tag));
    }
    for device in devices
        .host_devices
        .iter()
        .filter(|device| !device.tag.is_empty())
    {
        tagged.insert(
            format!("hostdevice-{}", device.name),
            ("hostdev", &device.tag),
        );
        tagged.insert(
            format!("dra-hostdevice-{}", device.name),
            ("hostdev", &device.tag),
        );
    }
    for gpu in devices.gpus.iter().filter(|gpu| !gpu.tag.is_empty()) {
        tagged.insert(format!("gpu-{}", gpu.name), ("hostdev", &gpu.tag));
        tagged.insert(format!("dra-gpu-{}", gpu.name), ("hostdev", &gpu.tag));
    }

    let mut found = Vec::new();
    for interface in &domain.devices.interfaces {
        let tag = interface
            .alias
            .as_ref()
            .and_then(|alias| tagged.get(alias.name.as_str()));
        if let (Some((kind, tag)), Some(address)) = (tag, interface.address.as_ref().and_then(pci))
        {
            let mac = interface
                .mac
                .as_ref()
                .map(|mac| mac.mac.to_string())
                .unwrap_or_default();
            found.push(DeviceData {
                mac,
                ..data(kind, address, tag)
            });
        }
    }
    for device in &domain.devices.host_devices {
        let tag = device
            .alias
            .as_ref()
            .and_then(|alias| tagged.get(alias.name.as_str()));
        if let (Some((kind, tag)), Some(address)) = (tag, device.address.as_ref().and_then(pci)) {
            let (numa_node, aligned_cpus) =
                affinity(machine, vmi, domain, device).unwrap_or_default();
            found.push(DeviceData {
                numa_node,
                aligned_cpus,
                ..data(kind, address, tag)
            });
        }
    }
    found
}

fn data(kind: &str, address: String, tag: &str) -> DeviceData {
    DeviceData {
        r#type: kind.to_owned(),
        bus: "pci".to_owned(),
        address,
        tags: vec![tag.to_owned()],
        ..DeviceData::default()
    }
}

/// `0000:01:00.0`; only PCI devices have such addresses.
fn pci(address: &Address) -> Option<String> {
    let is_pci = address.r#type == AddressType::Pci;
    address.pci().filter(|_| is_pci).map(|it| it.to_string())
}

/// `numaNode` and `alignedCPUs`. With `guestMappingPassthrough`: the device's node. With
/// `dedicatedCpuPlacement` only: the vCPUs that run on CPUs of that node.
fn affinity(
    machine: &Machine,
    vmi: &Vmi,
    domain: &DomainSpec,
    device: &HostDevice,
) -> Option<(u32, Vec<u32>)> {
    let cpu = vmi.spec.domain.cpu.as_ref()?;
    let is_mapped = cpu
        .numa
        .as_ref()
        .is_some_and(|numa| numa.guest_mapping_passthrough.is_some());
    if !is_mapped && !cpu.dedicated_cpu_placement {
        return None;
    }
    // A mediated device has a UUID here.
    let host_address = device.source.address.as_ref()?.pci()?;
    let read = |path: &str| std::fs::read_to_string(machine.path(path)).ok();
    let node: u32 = read(&format!("/sys/bus/pci/devices/{host_address}/numa_node"))?
        .trim()
        .parse()
        .ok()?;
    if is_mapped {
        return Some((node, Vec::new()));
    }
    let cpus = parse_list(read(&format!("/sys/bus/node/devices/node{node}/cpulist"))?.trim())?;
    let pins = &domain.cputune.as_ref()?.vcpu_pins;
    let on_cpu = |cpu: &u32| {
        pins.iter()
            .rev()
            .find(|pin| pin.cpuset.parse() == Ok(*cpu))
            .map(|pin| pin.vcpu)
    };
    Some((0, cpus.iter().filter_map(on_cpu).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = r#"<domain>
        <cputune><vcpupin vcpu="0" cpuset="6"/><vcpupin vcpu="1" cpuset="2"/></cputune>
        <devices>
          <interface type="ethernet"><mac address="02:00:00:00:00:01"/><alias name="ua-red"/>
            <address type="pci" domain="0x0000" bus="0x01" slot="0x00" function="0x0"/></interface>
          <interface type="ethernet"><alias name="ua-blue"/>
            <address type="pci" domain="0x0000" bus="0x02" slot="0x00" function="0x0"/></interface>
          <hostdev type="pci" mode="subsystem" managed="no"><source><address domain="0x0000" bus="0x3b" slot="0x10" function="0x0"/></source>
            <alias name="ua-gpu-a100"/><address type="pci" domain="0x0000" bus="0x05" slot="0x00" function="0x0"/></hostdev>
        </devices></domain>"#;

    fn found(cpu: &str) -> Vec<DeviceData> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("sys/bus/pci/devices/0000:3b:10.0/numa_node", "1\n"),
            ("sys/bus/node/devices/node1/cpulist", "4-7\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine {
            root: dir.path().into(),
            environment: BTreeMap::new(),
        };
        let vmi = serde_json::from_str(&format!(
            r#"{{"spec":{{"domain":{{"cpu":{cpu},"devices":{{"interfaces":[{{"name":"red","tag":"front"}},{{"name":"blue"}}],
                "gpus":[{{"name":"a100","tag":"compute"}}]}}}}}}}}"#
        ));
        device_metadata_with(
            &machine,
            &vmi.unwrap(),
            &DomainSpec::from_xml(DOMAIN).unwrap(),
        )
    }

    #[test]
    fn only_tagged_devices_are_told() {
        let json = serde_json::to_string(&found("{}")).unwrap();
        assert_eq!(
            json,
            r#"[{"type":"nic","bus":"pci","address":"0000:01:00.0","mac":"02:00:00:00:00:01","tags":["front"]},{"type":"hostdev","bus":"pci","address":"0000:05:00.0","tags":["compute"]}]"#
        );
    }

    #[test]
    fn a_host_device_has_its_numa_node_or_its_vcpus() {
        assert_eq!(
            found(r#"{"numa":{"guestMappingPassthrough":{}}}"#)[1].numa_node,
            1
        );
        assert_eq!(
            found(r#"{"dedicatedCpuPlacement":true}"#)[1].aligned_cpus,
            [0]
        );
    }
}
