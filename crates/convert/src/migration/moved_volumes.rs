//! Volumes that move to another claim: the target's file or device may be larger than the source's,
//! and of the other kind.

use std::collections::BTreeMap;

use api::pod_paths::PodPaths;
use api::vmi::Vmi;
use api::vmi::volumes::PersistentVolumeClaimInfo;
use domain::xml::tree::Element;

use super::error::DocumentError;
use super::volumes::{Place, place};
use super::{disks_mut, set_attribute, volume_of};

/// The kind of a disk's source on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Block,
}

/// Writes size, path and kind of the target's volumes into the document. `sizes` has the bytes that
/// the guest sees, by the disk's target.
pub(super) fn move_volumes(
    domain: &mut Element,
    vmi: &Vmi,
    sizes: &BTreeMap<String, u64>,
    paths: &PodPaths<'_>,
) -> Result<(), DocumentError> {
    for disk in disks_mut(domain) {
        let Some(volume) = volume_of(disk) else {
            continue;
        };
        if place(vmi, &volume) != Place::Moved {
            continue;
        }
        let target = disk.child("target").and_then(|it| it.attribute("dev"));
        let size = target.and_then(|target| sizes.get(target));
        let size = *size.ok_or_else(|| DocumentError::UnknownSize(volume.clone()))?;
        let kind = kind_on_target(vmi, &volume);
        let path = kind.map(|kind| path(vmi, &volume, kind, paths));
        move_disk(disk, &volume, size, kind.zip(path))?;
    }
    Ok(())
}

fn move_disk(
    disk: &mut Element,
    volume: &str,
    size: u64,
    replaced: Option<(Kind, String)>,
) -> Result<(), DocumentError> {
    let no_source = || DocumentError::NoSource(volume.to_owned());
    // With changed block tracking the data is behind the overlay.
    let is_tracked = disk
        .child("source")
        .and_then(|source| source.child("dataStore"))
        .is_some_and(|data| data.child("source").is_some());
    let owner = if is_tracked {
        let source = disk.child_mut("source").ok_or_else(no_source)?;
        source.child_mut("dataStore").ok_or_else(no_source)?
    } else {
        disk
    };
    if let Some((kind, _)) = &replaced {
        let word = match kind {
            Kind::File => "file",
            Kind::Block => "block",
        };
        set_attribute(owner, "type", word);
    }
    let source = owner.child_mut("source").ok_or_else(no_source)?;
    if let Some((kind, path)) = &replaced {
        let name = match kind {
            Kind::File => "file",
            Kind::Block => "dev",
        };
        source
            .attributes
            .retain(|(name, _)| name != "file" && name != "dev");
        source.attributes.insert(0, (name.into(), path.clone()));
    }
    // A target that is larger is used up to the size that the guest knows.
    if source.child("slices").is_none() {
        let slice = Element::new("slice")
            .with_attribute("type", "storage")
            .with_attribute("offset", "0")
            .with_attribute("size", size.to_string());
        source.push(Element::new("slices").with_child(slice));
    }
    Ok(())
}

/// The volume's kind on the target, where it differs from the source.
fn kind_on_target(vmi: &Vmi, volume: &str) -> Option<Kind> {
    let mut moved = vmi.status.migrated_volumes.iter();
    let moved = moved.find(|moved| moved.volume_name == volume)?;
    let mode = |claim: &Option<PersistentVolumeClaimInfo>| claim.as_ref()?.volume_mode.clone();
    let (from, to) = (
        mode(&moved.source_pvc_info)?,
        mode(&moved.destination_pvc_info)?,
    );
    match (from.as_str(), to.as_str()) {
        ("Filesystem", "Block") => Some(Kind::Block),
        ("Block", "Filesystem") => Some(Kind::File),
        _ => None,
    }
}

fn path(vmi: &Vmi, volume: &str, kind: Kind, paths: &PodPaths<'_>) -> String {
    let mut status = vmi.status.volume_status.iter();
    let is_hotplugged =
        status.any(|status| status.name == volume && status.hotplug_volume.is_some());
    match (kind, is_hotplugged) {
        (Kind::Block, true) => paths.hotplug_device(volume),
        (Kind::Block, false) => paths.claim_device(volume),
        (Kind::File, true) => paths.hotplug_image(volume),
        (Kind::File, false) => paths.claim_image(volume),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(from: &str, to: &str, hotplugged: bool) -> Vmi {
        let status = if hotplugged {
            json!([{"name": "data", "hotplugVolume": {}}])
        } else {
            json!([{"name": "data"}])
        };
        serde_json::from_value(json!({
            "spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]},
            "status": {
                "volumeStatus": status,
                "migratedVolumes": [{
                    "volumeName": "data",
                    "sourcePVCInfo": {"volumeMode": from},
                    "destinationPVCInfo": {"volumeMode": to},
                }],
            },
        }))
        .unwrap()
    }

    const FILE: &str = "<disk type='file'><source file='/d/disk.img' index='1'/><target dev='vda'/><alias name='ua-data'/></disk>";
    const BLOCK: &str = "<disk type='block'><source dev='/dev/data'/><target dev='vda'/><alias name='ua-data'/></disk>";
    const SLICE: &str = "<slices><slice type='storage' offset='0' size='4096'/></slices>";

    fn moved(disk: &str, vmi: &Vmi) -> Element {
        let text = format!("<domain><devices>{disk}</devices></domain>");
        let mut domain = Element::parse(&text).unwrap();
        let sizes = BTreeMap::from([("vda".to_owned(), 4096)]);
        move_volumes(&mut domain, vmi, &sizes, &PodPaths::default()).unwrap();
        domain
            .child("devices")
            .unwrap()
            .child("disk")
            .unwrap()
            .clone()
    }

    fn disk(kind: &str, source: &str) -> Element {
        Element::parse(&format!(
            "<disk type='{kind}'>{source}<target dev='vda'/><alias name='ua-data'/></disk>"
        ))
        .unwrap()
    }

    #[test]
    fn a_volume_of_the_same_kind_gets_its_size_alone() {
        let expected = disk(
            "file",
            &format!("<source file='/d/disk.img' index='1'>{SLICE}</source>"),
        );
        assert_eq!(
            moved(FILE, &vmi("Filesystem", "Filesystem", false)),
            expected
        );
        let sliced = expected.to_xml();
        assert_eq!(
            moved(&sliced, &vmi("Filesystem", "Filesystem", false)),
            expected
        );
    }

    #[test]
    fn a_file_becomes_a_device_and_a_device_a_file() {
        for (hotplugged, path) in [
            (false, "/dev/data"),
            (true, "/var/run/kubevirt/hotplug-disks/data"),
        ] {
            let source = format!("<source dev='{path}' index='1'>{SLICE}</source>");
            assert_eq!(
                moved(FILE, &vmi("Filesystem", "Block", hotplugged)),
                disk("block", &source)
            );
        }
        for (hotplugged, path) in [
            (false, "/var/run/kubevirt-private/vmi-disks/data/disk.img"),
            (true, "/var/run/kubevirt/hotplug-disks/data.img"),
        ] {
            let source = format!("<source file='{path}'>{SLICE}</source>");
            assert_eq!(
                moved(BLOCK, &vmi("Block", "Filesystem", hotplugged)),
                disk("file", &source)
            );
        }
    }

    #[test]
    fn the_data_behind_an_overlay_moves_and_the_overlay_stays() {
        let tracked = "<disk type='file'><source file='/cbt/a.qcow2'><dataStore type='file'><format type='raw'/>\
             <source file='/d/disk.img'/></dataStore></source><target dev='vda'/><alias name='ua-data'/></disk>";
        let source = format!(
            "<source file='/cbt/a.qcow2'><dataStore type='block'><format type='raw'/>\
             <source dev='/dev/data'>{SLICE}</source></dataStore></source>"
        );
        assert_eq!(
            moved(tracked, &vmi("Filesystem", "Block", false)),
            disk("file", &source)
        );
    }

    #[test]
    fn a_volume_whose_size_is_unknown_is_refused_by_name() {
        let mut domain =
            Element::parse(&format!("<domain><devices>{FILE}</devices></domain>")).unwrap();
        let vmi = vmi("Filesystem", "Filesystem", false);
        let refused = move_volumes(&mut domain, &vmi, &BTreeMap::new(), &PodPaths::default());
        assert!(refused.unwrap_err().to_string().contains("data"));
    }
}
