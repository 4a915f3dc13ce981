//! The disks of a guest that a backup leaves out, and why.

use serde::Serialize;
use serde_json::Value;

use crate::json::find_named;
use crate::manifest::config_data::GENERATED;
use domain::Domain;
use domain::disks::{Disk, DiskDevice};

/// The kinds of volumes whose data goes with the guest's end.
const LOST: [&str; 2] = ["containerDisk", "ephemeral"];

/// A disk without a file in the backup.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The volume's name in the VMI.
    pub volume: String,
    /// The disk's name in the domain, such as `vda`.
    pub target: String,
    pub reason: &'static str,
}

/// The disks of the domain without tracked changes, in its order. The VMI may lack its volumes.
pub fn left_out(domain: &Domain, vmi: &Value) -> Vec<LeftOut> {
    let disks = domain.spec.devices.disks.iter();
    let untracked = disks.filter(|disk| !is_tracked(disk));
    let left_out = untracked.map(|disk| LeftOut {
        volume: disk.volume().to_owned(),
        target: disk.target.device.clone(),
        reason: reason(disk, vmi),
    });
    left_out.collect()
}

/// Whether its changed blocks are tracked: then it has an overlay.
pub fn is_tracked(disk: &Disk) -> bool {
    disk.source.data_store.is_some()
}

fn reason(disk: &Disk, vmi: &Value) -> &'static str {
    let volume = find_named(vmi, "/spec/volumes", disk.volume());
    let has = |kind: &str| volume.is_some_and(|it| it.get(kind).is_some());
    if LOST.iter().any(|kind| has(kind)) {
        "what the guest writes to it goes with its end"
    } else if has("emptyDisk") {
        "what the guest writes to it goes with its end, but in a directory of --root"
    } else if GENERATED.iter().any(|kind| has(kind)) {
        "made from the manifest at each start"
    } else if disk.device == DiskDevice::CdRom {
        "a CD-ROM"
    } else {
        "its changes are not tracked"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_disk_without_an_overlay_has_a_reason() {
        let disk = |name: &str, device: &str, more: Value| {
            let mut disk =
                json!({"Alias": {"Name": name}, "Target": {"Device": "vdx"}, "Device": device});
            if let (Some(disk), Some(more)) = (disk.as_object_mut(), more.as_object()) {
                disk.extend(more.clone());
            }
            disk
        };
        let domain = crate::json::domain(json!({"Spec": {"Devices": {"Disks": [
            disk("root", "disk", json!({})),
            disk("data", "disk", json!({"Source": {"DataStore": {"Type": "file"}}})),
            disk("init", "disk", json!({})),
            disk("empty", "disk", json!({})),
            disk("iso", "cdrom", json!({"ReadOnly": {}})),
            disk("ro", "disk", json!({"ReadOnly": {}})),
            disk("lun", "lun", json!({})),
            disk("plain", "disk", json!({"ReadOnly": null})),
        ]}}}));
        let vmi = json!({"spec": {"volumes": [
            {"name": "root", "containerDisk": {}}, {"name": "init", "cloudInitNoCloud": {}},
            {"name": "iso", "persistentVolumeClaim": {}}, {"name": "empty", "emptyDisk": {}}]}});
        let all = left_out(&domain, &vmi);
        let reasons: Vec<_> = all.iter().map(|it| (&*it.volume, it.reason)).collect();
        let expected = [
            ("root", "what the guest writes to it goes with its end"),
            ("init", "made from the manifest at each start"),
            (
                "empty",
                "what the guest writes to it goes with its end, but in a directory of --root",
            ),
            ("iso", "a CD-ROM"),
            ("ro", "its changes are not tracked"),
            ("lun", "its changes are not tracked"),
            ("plain", "its changes are not tracked"),
        ];
        assert_eq!(reasons, expected);
        // In a pod with an unknown VMI.
        assert_eq!(
            left_out(&domain, &Value::Null)[0].reason,
            "its changes are not tracked"
        );
    }
}
