//! Which disks libvirt copies: the target cannot open their data where the source has it.

use api::vmi::Vmi;
use api::vmi::volumes::{Volume, VolumeSource as Source};
use domain::DomainSpec;
use domain::disks::{Disk, DiskDevice, DiskType};

/// Where the data of a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Both pods have it.
    Shared,
    /// It moves from one claim to another.
    Moved,
    /// Each pod makes its own, and the target's is a file without data.
    Generated,
    /// In the pod.
    Local,
}

/// Where the data of the volume with this name is; a disk without a volume is local.
pub(super) fn place(vmi: &Vmi, volume: &str) -> Place {
    let mut volumes = vmi.spec.volumes.iter();
    match volumes.find(|candidate| candidate.name == volume) {
        Some(volume) => place_of(vmi, volume),
        None => Place::Local,
    }
}

fn place_of(vmi: &Vmi, volume: &Volume) -> Place {
    let mut moved = vmi.status.migrated_volumes.iter();
    let mut is_moved = || moved.any(|moved| moved.volume_name == volume.name);
    match volume.source() {
        Some(Source::PersistentVolumeClaim(_) | Source::DataVolume(_) | Source::HostDisk(_))
            if is_moved() =>
        {
            Place::Moved
        }
        Some(Source::PersistentVolumeClaim(_) | Source::DataVolume(_)) => Place::Shared,
        Some(Source::HostDisk(disk)) if disk.shared == Some(true) => Place::Shared,
        Some(
            Source::ConfigMap(_)
            | Source::Secret(_)
            | Source::DownwardApi(_)
            | Source::ServiceAccount(_)
            | Source::CloudInitNoCloud(_)
            | Source::CloudInitConfigDrive(_)
            | Source::ContainerDisk(_),
        ) => Place::Generated,
        _ => Place::Local,
    }
}

/// The targets (`vda`) of the disks of the `live` domain that libvirt copies (`migrate_disks`).
#[must_use]
pub fn disks_to_copy(live: &DomainSpec, vmi: &Vmi) -> Vec<String> {
    let is_copied = |disk: &&Disk| {
        let volume = disk.volume();
        let place = place(vmi, volume);
        disk.device != DiskDevice::CdRom
            && (disk.read_only.is_none() || place == Place::Generated)
            && matches!(disk.r#type, DiskType::File | DiskType::Block)
            && place != Place::Shared
    };
    let disks = live.devices.disks.iter().filter(is_copied);
    disks.map(|disk| disk.target.device.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(volumes: &serde_json::Value, moved: &[&str]) -> Vmi {
        let moved: Vec<_> = moved
            .iter()
            .map(|name| json!({"volumeName": name}))
            .collect();
        serde_json::from_value(
            json!({"spec": {"volumes": volumes}, "status": {"migratedVolumes": moved}}),
        )
        .unwrap()
    }

    fn domain(disks: &str) -> DomainSpec {
        DomainSpec::from_xml(&format!(
            "<domain type='kvm'><name>vm</name><devices>{disks}</devices></domain>"
        ))
        .unwrap()
    }

    fn disk(target: &str, volume: &str, more: &str) -> String {
        format!(
            "<disk type='file' device='disk'><source file='/{volume}'/><target dev='{target}' bus='virtio'/>{more}\
             <alias name='ua-{volume}'/></disk>"
        )
    }

    #[test]
    fn a_volume_is_where_its_source_says() {
        let vmi = vmi(
            &json!([
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "moving", "dataVolume": {"name": "c"}},
                {"name": "node", "hostDisk": {"path": "/disk.img"}},
                {"name": "nfs", "hostDisk": {"path": "/disk.img", "shared": true}},
                {"name": "moving-nfs", "hostDisk": {"path": "/disk.img", "shared": true}},
                {"name": "root", "containerDisk": {"image": "i"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "x"}},
                {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
            ]),
            &["moving", "moving-nfs"],
        );
        for (volume, expected) in [
            ("claim", Place::Shared),
            ("moving", Place::Moved),
            ("node", Place::Local),
            ("nfs", Place::Shared),
            ("moving-nfs", Place::Moved),
            ("root", Place::Generated),
            ("seed", Place::Generated),
            ("scratch", Place::Local),
            ("unknown", Place::Local),
        ] {
            assert_eq!(place(&vmi, volume), expected, "{volume}");
        }
    }

    #[test]
    fn what_the_target_has_is_not_copied() {
        let vmi = vmi(
            &json!([
                {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "root", "containerDisk": {"image": "i"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "x"}},
                {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}},
                {"name": "locked", "emptyDisk": {"capacity": "1Gi"}},
            ]),
            &[],
        );
        let disks = [
            disk("vda", "claim", ""),
            disk("vdb", "root", ""),
            disk("vdc", "seed", "<readonly/>"),
            disk("vdd", "scratch", ""),
            disk("vde", "locked", "<readonly/>"),
            disk("sda", "iso", "").replace("device='disk'", "device='cdrom'"),
            disk("vdf", "rbd", "").replace("type='file'", "type='network'"),
        ];
        let live = domain(&disks.concat());
        assert_eq!(disks_to_copy(&live, &vmi), ["vdb", "vdc", "vdd"]);
    }
}
