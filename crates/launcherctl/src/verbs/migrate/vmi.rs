//! The VMI as both virt-handlers would see it during the migration.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::json::{find_named, is_object_at, is_true_at, list_at, list_mut, push, set, text_at};
use crate::manifest::config_data::GENERATED;
use crate::manifest::random_uuid;
use crate::verbs::volume_table::find_disk;
use domain::Domain;
use pod::Root;

/// The VMI between two launchers of one machine: both have the files of its host disks.
pub fn with_shared_host_disks(vmi: &Value) -> Value {
    let mut vmi = vmi.clone();
    for volume in list_mut(&mut vmi, "/spec/volumes") {
        if is_object_at(volume, "/hostDisk") {
            set(volume, "/hostDisk/shared", json!(true));
        }
    }
    vmi
}

/// The VMI with the values that the guest was started with, for the fields of a plan that wait for
/// a restart: the target takes what it gets for the guest's.
pub fn without_pending(vmi: &Value, fields: &[Value]) -> Value {
    let mut vmi = vmi.clone();
    for field in fields {
        let before = field.get("before").filter(|before| !before.is_null());
        let Some((parent, key)) = parent_of(&mut vmi, text_at(field, "/field")) else {
            continue;
        };
        // An item of a list comes or goes as a whole.
        if let Some((list, name)) = key.trim_end_matches(']').split_once('[') {
            if let Some(Value::Array(items)) = parent.get_mut(list) {
                items.retain(|item| text_at(item, "/name") != name);
                items.extend(before.cloned());
            }
        } else {
            match before {
                None => parent.remove(key),
                Some(before) => parent.insert(key.to_owned(), before.clone()),
            };
        }
    }
    vmi
}

/// The object with a field such as `spec.domain.devices.disks[data].cache`, and the field's key.
fn parent_of<'a, 'f>(
    vmi: &'a mut Value,
    field: &'f str,
) -> Option<(&'a mut Map<String, Value>, &'f str)> {
    let (parents, key) = field.rsplit_once('.')?;
    let mut at = vmi;
    for step in parents.split('.') {
        let (key, item) = step.split_once('[').unwrap_or((step, ""));
        at = at.get_mut(key)?;
        if let Some(name) = item.strip_suffix(']') {
            let mut items = at.as_array_mut()?.iter_mut();
            at = items.find(|item| text_at(item, "/name") == name)?;
        }
    }
    Some((at.as_object_mut()?, key))
}

/// The VMI migrating to the pod of this name.
pub fn migrating(vmi: &Value, target_pod: &str, is_paused: bool) -> Value {
    let mut vmi = vmi.clone();
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
        "sourcePod": "source", "targetPod": target_pod,
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

/// Gives the empty disks the sizes that they have: one that an earlier run has left may be larger
/// than the VMI says, and the target's have to be equal.
pub fn keep_empty_disks(vmi: &mut Value, domain: &Domain, root: &Root) {
    for volume in list_mut(vmi, "/spec/volumes") {
        if is_object_at(volume, "/emptyDisk")
            && let Some(disk) = find_disk(domain, text_at(volume, "/name"))
            && let Ok(bytes) = pod::virtual_size(root, &disk.source.file, "qcow2")
        {
            set(volume, "/emptyDisk/capacity", json!(bytes.to_string()));
        }
    }
}

/// Adds the sizes of the images that the source's launcher has generated; `path` locates a
/// launcher's path.
pub fn add_image_sizes(vmi: &mut Value, domain: &Domain, path: impl Fn(&str) -> PathBuf) {
    let is_generated = |name: &str| {
        let volume = find_named(vmi, "/spec/volumes", name);
        let has = |kind: &str| volume.is_some_and(|it| is_object_at(it, &format!("/{kind}")));
        GENERATED.iter().any(|kind| has(kind))
    };
    let disks = domain.spec.devices.disks.iter();
    let sizes: Vec<(String, u64)> = disks
        .filter_map(|disk| {
            let metadata = std::fs::metadata(path(&disk.source.file)).ok()?;
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
        migrating(&vmi, "", false)["status"]["migrationMethod"].clone()
    }

    #[test]
    fn what_waits_for_a_restart_is_not_taken_for_the_guests() {
        let vmi = json!({"spec": {"domain": {"cpu": {"sockets": 2, "model": "max"},
            "devices": {"disks": [{"name": "a"}, {"name": "b", "cache": "none"}, {"name": "cd"}]}}}});
        let fields = [
            json!({"field": "spec.domain.cpu.sockets", "before": 1, "after": 2}),
            json!({"field": "spec.domain.cpu.model", "before": null, "after": "max"}),
            json!({"field": "spec.domain.devices.disks[b].cache", "before": "writeback"}),
            json!({"field": "spec.domain.devices.disks[cd]", "after": {"name": "cd"}}),
            json!({"field": "spec.domain.devices.disks[old]", "before": {"name": "old"}}),
            json!({"field": "spec.volumes[new]", "after": {}}),
            json!({"field": "spec.gone.x", "before": 1}),
        ];
        assert_eq!(
            without_pending(&vmi, &fields),
            json!({"spec": {"domain": {"cpu": {"sockets": 1},
                "devices": {"disks": [{"name": "a"}, {"name": "b", "cache": "writeback"}, {"name": "old"}]}}}})
        );
    }

    #[test]
    fn disks_are_copied_where_the_target_does_not_have_them() {
        let claim = json!({"name": "root", "persistentVolumeClaim": {"claimName": "c"}});
        let shared = json!({"name": "nfs", "hostDisk": {"path": "/d", "shared": true}});
        let both = json!([claim, shared]);
        assert_eq!(method(both), "LiveMigration");
        let own = json!([{"name": "disk", "hostDisk": {"path": "/d"}}]);
        assert_eq!(method(own.clone()), "BlockMigration");
        let here = with_shared_host_disks(&json!({"spec": {"volumes": own}}));
        assert_eq!(method(here["spec"]["volumes"].clone()), "LiveMigration");
        let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "x"}});
        assert_eq!(method(json!([claim, seed])), "BlockMigration");
        assert_eq!(
            method(json!([{"name": "e", "emptyDisk": {}}])),
            "BlockMigration"
        );
    }

    #[test]
    fn each_migration_has_its_uid_and_a_paused_guest_stays_paused() {
        let (first, second) = (
            migrating(&json!({}), "target", false),
            migrating(&json!({}), "target", true),
        );
        let uid = |vmi: &Value| vmi["status"]["migrationState"]["migrationUid"].clone();
        assert_ne!(uid(&first), uid(&second));
        assert_eq!(first["status"]["migrationState"]["targetPod"], "target");
        assert_eq!(second["status"]["conditions"][0]["type"], "Paused");
    }

    #[test]
    fn an_empty_disk_has_the_size_that_it_has() {
        let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let file = dir.path().join("a.qcow2");
        let mut create = std::process::Command::new("qemu-img");
        let create = create.args(["create", "-q", "-f", "qcow2"]);
        let created = create.arg(&file).arg("3M").status();
        assert!(created.is_ok_and(|it| it.success()));
        let volume =
            |name: &str, size: &str| json!({"name": name, "emptyDisk": {"capacity": size}});
        let vmi =
            |size: &str| json!({"spec": {"volumes": [volume("a", size), volume("b", "2Mi")]}});
        let mut kept = vmi("2Mi");
        let disk = json!({"Alias": {"Name": "a"}, "Source": {"File": file}});
        let domain = crate::json::domain(json!({"Spec": {"Devices": {"Disks": [disk]}}}));
        keep_empty_disks(&mut kept, &domain, &Root::new(dir.path()));
        assert_eq!(kept, vmi("3145728"));
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
        let disks = json!({"Spec": {"Devices": {"Disks": [disk("seed"), disk("root")]}}});
        let domain = crate::json::domain(disks);
        let expected = json!([{"name": "root"}, {"name": "seed", "size": 3000}]);
        for _ in 0..2 {
            add_image_sizes(&mut vmi, &domain, |_| file.path().to_owned());
            assert_eq!(vmi["status"]["volumeStatus"], expected);
        }
    }
}
