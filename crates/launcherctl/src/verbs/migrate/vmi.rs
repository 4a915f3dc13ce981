//! The VMI as both virt-handlers would see it during the migration.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::{TextError, fail};
use crate::host::registry::VmDir;
use crate::json::{find_named, is_object_at, list_at, list_mut, push, set, text_at};
use crate::manifest::config_data::GENERATED;
use crate::manifest::random_uuid;
use api::pod_paths::PodPaths;
use api::proto::cmd::v1::VirtualMachineOptions;

/// The VMI migrating to the pod of this name. `copied` are claims whose data the target lacks.
pub fn migrating(vmi: &Value, target_pod: &str, is_paused: bool, copied: &[String]) -> Value {
    let mut vmi = vmi.clone();
    set(&mut vmi, "/status/phase", json!("Running"));
    set(&mut vmi, "/status/migrationTransport", json!("Unix"));
    let moved = copied.iter().map(|name| json!({"volumeName": name}));
    set(&mut vmi, "/status/migratedVolumes", moved.collect());
    let method = if has_local_disks(&vmi, copied) {
        "BlockMigration"
    } else {
        "LiveMigration"
    };
    set(&mut vmi, "/status/migrationMethod", json!(method));
    let state = json!({
        "migrationUid": random_uuid(), "sourceNode": "source", "targetNode": "target",
        "sourcePod": "source", "targetPod": target_pod,
    });
    set(&mut vmi, "/status/migrationState", state);
    if is_paused {
        let paused = json!({"type": "Paused", "status": "True"});
        push(&mut vmi, "/status/conditions", paused);
    }
    vmi
}

/// Checks that the target has a file or device for each of the `copied`.
///
/// # Errors
/// One is missing.
pub fn check_copies(copied: &[String], target: &VmDir) -> Result<(), TextError> {
    let paths = PodPaths::default();
    for name in copied {
        let image = paths.claim_image(name);
        let places = [
            &image,
            &paths.claim_device(name),
            &paths.hotplug_image(name),
            &paths.hotplug_device(name),
        ];
        if !places.iter().any(|path| target.path(path).exists()) {
            fail!(
                "--copy-volume {name}: the target has no file to copy it to, {}; truncate -s SIZE makes one, as large as the volume",
                target.path(&image).display()
            );
        }
    }
    Ok(())
}

/// Whether `--copy-volume` may name the volume: it is a claim.
pub fn is_claim(volume: &Value) -> bool {
    is_object_at(volume, "/persistentVolumeClaim") || is_object_at(volume, "/dataVolume")
}

/// Whether libvirt has to copy disks, as virt-handler decides it.
fn has_local_disks(vmi: &Value, copied: &[String]) -> bool {
    let is_shared = |volume: &Value| {
        is_claim(volume) || volume.pointer("/hostDisk/shared") == Some(&json!(true))
    };
    let mut volumes = list_at(vmi, "/spec/volumes").iter();
    !copied.is_empty() || volumes.any(|volume| !is_shared(volume))
}

/// Adds the sizes of the images that the source's launcher has generated; `path` locates a
/// launcher's path.
pub fn add_image_sizes(vmi: &mut Value, domain: &Value, path: impl Fn(&str) -> PathBuf) {
    let is_generated = |name: &str| {
        let volume = find_named(vmi, "/spec/volumes", name);
        let has = |kind: &str| volume.is_some_and(|it| is_object_at(it, &format!("/{kind}")));
        GENERATED.iter().any(|kind| has(kind))
    };
    let disks = list_at(domain, "/Spec/Devices/Disks").iter();
    let sizes: Vec<(String, u64)> = disks
        .filter_map(|disk| {
            let name = text_at(disk, "/Alias/Name");
            let file = text_at(disk, "/Source/File");
            let metadata = std::fs::metadata(path(file)).ok()?;
            is_generated(name).then(|| (name.to_owned(), metadata.len()))
        })
        .collect();
    for (name, size) in sizes {
        let statuses = "/status/volumeStatus";
        let mut known = list_mut(vmi, statuses).iter_mut();
        match known.find(|status| text_at(status, "/name") == name) {
            Some(status) => set(status, "/size", json!(size)),
            None => push(vmi, statuses, json!({"name": name, "size": size})),
        }
    }
}

/// virt-handler's options, if unknown: a tap device for each interface that gets one.
pub fn target_options(vmi: &Value) -> VirtualMachineOptions {
    let interfaces = list_at(vmi, "/spec/domain/devices/interfaces").iter();
    let with_tap = interfaces.filter(|interface| {
        is_object_at(interface, "/masquerade") || is_object_at(interface, "/bridge")
    });
    let name = |interface| text_at(interface, "/name").to_owned();
    VirtualMachineOptions {
        interface_domain_attachment: with_tap.map(|it| (name(it), "tap".to_owned())).collect(),
        ..VirtualMachineOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(volumes: Value, copied: &[String]) -> Value {
        let vmi = json!({"spec": {"volumes": volumes}});
        migrating(&vmi, "", false, copied)["status"]["migrationMethod"].clone()
    }

    #[test]
    fn disks_are_copied_where_the_target_does_not_have_them() {
        let claim = json!({"name": "root", "persistentVolumeClaim": {"claimName": "c"}});
        let shared = json!({"name": "nfs", "hostDisk": {"path": "/d", "shared": true}});
        let both = json!([claim, shared]);
        assert_eq!(method(both.clone(), &[]), "LiveMigration");
        assert_eq!(method(both, &["root".to_owned()]), "BlockMigration");
        let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "x"}});
        assert_eq!(method(json!([claim, seed]), &[]), "BlockMigration");
        assert_eq!(
            method(json!([{"name": "e", "emptyDisk": {}}]), &[]),
            "BlockMigration"
        );
    }

    #[test]
    fn the_target_has_a_file_for_a_copied_volume() {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let target = VmDir::at(dir.path().to_owned());
        let check = || check_copies(&["data".to_owned()], &target);
        assert!(check_copies(&[], &target).is_ok());
        let refusal = check().err().map(|error| error.to_string());
        let refusal = refusal.unwrap_or_default();
        assert!(
            refusal.contains("vmi-disks/data/disk.img; truncate"),
            "{refusal}"
        );
        let image = target.path(&PodPaths::default().claim_image("data"));
        let directory = image.parent().unwrap_or(&image);
        std::fs::create_dir_all(directory).unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(&image, "").unwrap_or_else(|error| panic!("{error}"));
        assert!(check().is_ok());
    }

    #[test]
    fn each_migration_has_its_uid_and_a_paused_guest_stays_paused() {
        let (first, second) = (
            migrating(&json!({}), "target", false, &[]),
            migrating(&json!({}), "target", true, &["data".to_owned()]),
        );
        let uid = |vmi: &Value| vmi["status"]["migrationState"]["migrationUid"].clone();
        assert_ne!(uid(&first), uid(&second));
        assert_eq!(first["status"]["migrationState"]["targetPod"], "target");
        assert_eq!(second["status"]["conditions"][0]["type"], "Paused");
        assert_eq!(second["status"]["migratedVolumes"][0]["volumeName"], "data");
    }

    #[test]
    fn only_generated_images_have_a_size() {
        let file = tempfile::NamedTempFile::new().unwrap_or_else(|error| panic!("{error}"));
        file.as_file()
            .set_len(3000)
            .unwrap_or_else(|error| panic!("{error}"));
        let mut vmi = json!({"spec": {"volumes": [
            {"name": "seed", "cloudInitNoCloud": {}}, {"name": "root", "containerDisk": {}},
        ]}, "status": {"volumeStatus": [{"name": "root"}]}});
        let disk = |name| json!({"Alias": {"Name": name}, "Source": {"File": "/a.iso"}});
        let domain = json!({"Spec": {"Devices": {"Disks": [disk("seed"), disk("root")]}}});
        let expected = json!([{"name": "root"}, {"name": "seed", "size": 3000}]);
        for _ in 0..2 {
            add_image_sizes(&mut vmi, &domain, |_| file.path().to_owned());
            assert_eq!(vmi["status"]["volumeStatus"], expected);
        }
    }
}
