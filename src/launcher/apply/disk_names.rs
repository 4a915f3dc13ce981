//! Keeps the target names (`sda`, `sdb`) of hotplugged disks. virt-handler records them as `target`
//! in `status.volumeStatus`, but may send an older VMI. The conversion would then choose new names,
//! and a disk listed after a removed one would move.
//!
//! D-disk-3 (docs/differences.md).

use std::borrow::Cow;

use api::vmi::Vmi;
use domain::DomainSpec;

/// Adds target names from the `live` domain to the volumes in the VMI's status that lack one.
pub(super) fn with_live_targets<'v>(vmi: &'v Vmi, live: &DomainSpec) -> Cow<'v, Vmi> {
    let mut known = Cow::Borrowed(vmi);
    for (at, status) in vmi
        .status
        .volume_status
        .iter()
        .enumerate()
        .filter(|(_, status)| status.target.is_empty())
    {
        let target =
            live_target(vmi, live, &status.name).filter(|target| !is_recorded(vmi, target));
        if let Some(target) = target
            && let Some(status) = known.to_mut().status.volume_status.get_mut(at)
        {
            status.target = target.clone();
        }
    }
    known
}

/// The target name of the volume's disk, if the disk is still on the bus that the VMI wants.
fn live_target<'d>(vmi: &Vmi, live: &'d DomainSpec, volume: &String) -> Option<&'d String> {
    let wanted = vmi
        .spec
        .domain
        .devices
        .disks
        .iter()
        .find(|disk| disk.name == *volume)?;
    let disk = live.devices.disks.iter().find(|disk| {
        disk.alias
            .as_ref()
            .is_some_and(|alias| alias.name == *volume)
    })?;
    (disk.target.bus.as_str() == wanted.bus().as_str()).then_some(&disk.target.device)
}

fn is_recorded(vmi: &Vmi, target: &String) -> bool {
    vmi.status
        .volume_status
        .iter()
        .any(|status| status.target == *target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: &str = r#"<domain><devices>
        <disk type="file" device="disk"><source file="/a"/><target dev="sda" bus="scsi"/><alias name="ua-a"/></disk>
        <disk type="file" device="disk"><source file="/b"/><target dev="sdb" bus="scsi"/><alias name="ua-b"/></disk>
    </devices></domain>"#;

    /// The status's target of `b`, for a VMI without `a`.
    fn target(bus: &str, status: &str) -> String {
        let vmi: Vmi = serde_json::from_str(&format!(
            r#"{{"spec":{{"domain":{{"devices":{{"disks":[{{"name":"b","disk":{{"bus":"{bus}"}}}}]}}}}}},"status":{{"volumeStatus":[{status}]}}}}"#
        ))
        .unwrap();
        let known = with_live_targets(&vmi, &DomainSpec::from_xml(LIVE).unwrap());
        known
            .status
            .volume_status
            .iter()
            .find(|status| status.name == "b")
            .map(|status| status.target.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_disk_keeps_the_name_that_the_status_does_not_know_yet() {
        assert_eq!(target("scsi", r#"{"name":"b"}"#), "sdb");
    }

    #[test]
    fn what_the_status_says_counts() {
        assert_eq!(target("scsi", r#"{"name":"b","target":"sdc"}"#), "sdc");
        assert_eq!(
            target("scsi", r#"{"name":"b"},{"name":"c","target":"sdb"}"#),
            ""
        );
        assert_eq!(target("scsi", ""), "");
    }

    #[test]
    fn a_disk_that_goes_to_another_bus_gets_a_name_of_that_bus() {
        assert_eq!(target("virtio", r#"{"name":"b"}"#), "");
    }
}
