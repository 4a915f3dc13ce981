//! SR-IOV devices of interfaces that came while the guest runs.

use domain::DomainSpec;
use domain::host_devices::HostDevice;

/// The prefix of these devices' names.
const SRIOV: &str = "sriov-";

/// The SR-IOV devices that the `wanted` domain has and the `live` one lacks, by name. None is ever
/// taken away: virt-handler does not ask for that.
#[must_use]
pub fn host_devices(live: &DomainSpec, wanted: &DomainSpec) -> Vec<HostDevice> {
    let name = |device: &HostDevice| {
        let alias = device.alias.as_ref()?;
        alias.name.starts_with(SRIOV).then(|| alias.name.clone())
    };
    let attached: Vec<_> = live.devices.host_devices.iter().filter_map(name).collect();
    let is_missing = |device: &&HostDevice| name(device).is_some_and(|it| !attached.contains(&it));
    let wanted = wanted.devices.host_devices.iter();
    wanted.filter(is_missing).cloned().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn domain(aliases: &[&str]) -> DomainSpec {
        let devices: String = aliases
            .iter()
            .map(|alias| {
                format!(
                    "<hostdev type='pci' mode='subsystem'><source><address domain='0x0000' bus='0x81' \
                     slot='0x01' function='0x2'/></source><alias name='ua-{alias}'/></hostdev>"
                )
            })
            .collect();
        DomainSpec::from_xml(&format!(
            "<domain type='kvm'><name>vm</name><devices>{devices}</devices></domain>"
        ))
        .unwrap()
    }

    #[test]
    fn devices_of_new_sriov_interfaces_are_attached_and_no_other_ones() {
        let live = domain(&["sriov-blue", "gpu-0"]);
        let wanted = domain(&["sriov-blue", "sriov-green", "gpu-1"]);
        let missing = host_devices(&live, &wanted);
        let xml: String = missing.iter().map(HostDevice::to_xml).collect();
        assert_eq!(missing.len(), 1);
        assert!(
            xml.starts_with("<hostdev") && xml.contains("ua-sriov-green"),
            "{xml}"
        );
        assert!(host_devices(&wanted, &live).is_empty());
    }
}
