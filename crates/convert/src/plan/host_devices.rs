//! SR-IOV devices of interfaces that came while the guest runs (`HotplugHostDevices`).

use domain::DomainSpec;
use domain::host_devices::HostDevice;

use crate::context::HostDeviceSpec;
use crate::host_devices::host_device;

/// The `wanted` devices that the `live` domain lacks, by alias. None is ever taken away:
/// virt-handler does not ask for that.
#[must_use]
pub fn host_devices(live: &DomainSpec, wanted: &[HostDeviceSpec]) -> Vec<HostDevice> {
    let attached = &live.devices.host_devices;
    let is_missing = |wanted: &HostDevice| attached.iter().all(|it| it.alias != wanted.alias);
    wanted.iter().map(host_device).filter(is_missing).collect()
}

#[cfg(test)]
mod tests {
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
    fn devices_that_the_domain_lacks_are_attached() {
        let live = domain(&["sriov-blue", "gpu-0"]);
        let wanted = ["sriov-blue", "sriov-green"].map(|alias| HostDeviceSpec {
            alias: alias.into(),
            ..HostDeviceSpec::default()
        });
        let missing = host_devices(&live, &wanted);
        let xml: String = missing.iter().map(HostDevice::to_xml).collect();
        assert_eq!(missing.len(), 1);
        assert!(
            xml.starts_with("<hostdev") && xml.contains("ua-sriov-green"),
            "{xml}"
        );
        assert!(host_devices(&live, &wanted[..1]).is_empty());
    }
}
