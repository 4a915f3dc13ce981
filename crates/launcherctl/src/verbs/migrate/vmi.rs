//! The VMI as both virt-handlers would see it during the migration.

use serde_json::{Value, json};

use crate::json::{find_named, is_object_at, is_true_at, list_at, list_mut, push, set, text_at};
use crate::manifest::config_data::GENERATED;
use crate::manifest::random_uuid;
use domain::Domain;

/// The VMI migrating between two launchers of one machine, which share the files of host disks.
pub fn migrating(vmi: &Value, is_paused: bool) -> Value {
    let mut vmi = vmi.clone();
    for volume in list_mut(&mut vmi, "/spec/volumes") {
        if is_object_at(volume, "/hostDisk") {
            set(volume, "/hostDisk/shared", json!(true));
        }
    }
    set(&mut vmi, "/status/phase", json!("Running"));
    set(&mut vmi, "/status/migrationTransport", json!("Unix"));
    set(&mut vmi, "/status/migratedVolumes", json!([]));
    let method = if has_local_disks(&vmi) {
        "BlockMigration"
    } else {
        "LiveMigration"
    };
    set(&mut vmi, "/status/migrationMethod", json!(method));
    let state = json!({
        "migrationUid": random_uuid(), "sourceNode": "source", "targetNode": "target",
        "sourcePod": "source", "targetPod": "target",
    });
    set(&mut vmi, "/status/migrationState", state);
    if is_paused {
        let paused = json!({"type": "Paused", "status": "True"});
        push(&mut vmi, "/status/conditions", paused);
    }
    vmi
}

/// Whether libvirt has to copy disks, as virt-handler decides it.
fn has_local_disks(vmi: &Value) -> bool {
    let is_shared = |volume: &Value| {
        is_object_at(volume, "/persistentVolumeClaim")
            || is_object_at(volume, "/dataVolume")
            || is_true_at(volume, "/hostDisk/shared")
    };
    let mut volumes = list_at(vmi, "/spec/volumes").iter();
    volumes.any(|volume| !is_shared(volume))
}

/// Adds the sizes of the images that the source's launcher has generated.
pub fn add_image_sizes(vmi: &mut Value, domain: &Domain) {
    let is_generated = |name: &str| {
        let volume = find_named(vmi, "/spec/volumes", name);
        let has = |kind: &str| volume.is_some_and(|it| is_object_at(it, &format!("/{kind}")));
        GENERATED.iter().any(|kind| has(kind))
    };
    let disks = domain.spec.devices.disks.iter();
    let sizes: Vec<(String, u64)> = disks
        .filter_map(|disk| {
            let metadata = std::fs::metadata(&disk.source.file).ok()?;
            is_generated(disk.volume()).then(|| (disk.volume().to_owned(), metadata.len()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn method(volumes: Value) -> Value {
        let vmi = json!({"spec": {"volumes": volumes}});
        migrating(&vmi, false)["status"]["migrationMethod"].clone()
    }

    #[test]
    fn disks_are_copied_where_the_target_does_not_have_them() {
        let claim = json!({"name": "root", "persistentVolumeClaim": {"claimName": "c"}});
        let shared = json!({"name": "nfs", "hostDisk": {"path": "/d", "shared": true}});
        let both = json!([claim, shared]);
        assert_eq!(method(both), "LiveMigration");
        let own = json!([{"name": "disk", "hostDisk": {"path": "/d"}}]);
        assert_eq!(method(own), "LiveMigration");
        let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "x"}});
        assert_eq!(method(json!([claim, seed])), "BlockMigration");
        assert_eq!(
            method(json!([{"name": "e", "emptyDisk": {}}])),
            "BlockMigration"
        );
    }

    #[test]
    fn each_migration_has_its_uid_and_a_paused_guest_stays_paused() {
        let (first, second) = (migrating(&json!({}), false), migrating(&json!({}), true));
        let uid = |vmi: &Value| vmi["status"]["migrationState"]["migrationUid"].clone();
        assert_ne!(uid(&first), uid(&second));
        assert_eq!(second["status"]["conditions"][0]["type"], "Paused");
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
        let path = file.path();
        let disk = |name| json!({"Alias": {"Name": name}, "Source": {"File": path}});
        let disks = json!({"Spec": {"Devices": {"Disks": [disk("seed"), disk("root")]}}});
        let domain = crate::json::domain(disks);
        let expected = json!([{"name": "root"}, {"name": "seed", "size": 3000}]);
        for _ in 0..2 {
            add_image_sizes(&mut vmi, &domain);
            assert_eq!(vmi["status"]["volumeStatus"], expected);
        }
    }
}
