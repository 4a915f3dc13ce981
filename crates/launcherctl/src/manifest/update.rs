//! A later version of a sent VMI: which of its volumes a running guest can get, and the status.

use serde_json::Value;

use super::defaults::{DEFAULT_PHASE, default_volume_status};
use super::drives::is_drive;
use super::error::{FieldError, ManifestError};
use super::rules::VOLUME_SOURCES;
use super::{DISKS, Manifest, STATUS, VOLUMES};
use crate::json::{
    copy_at, find_named, is_object_at, is_true_at, list_at, list_mut, names_at, push, remove_named,
    set, set_default, text_at,
};

/// The kinds of volumes that can be plugged in.
const PLUGGABLE: [&str; 2] = ["/persistentVolumeClaim", "/dataVolume"];

impl Manifest {
    /// Makes it a later version of a sent VMI: parts of the status that its file lacks stay as
    /// sent.
    ///
    /// # Errors
    /// It is another VM.
    pub fn into_update_of(mut self, sent: &Value) -> Result<Self, ManifestError> {
        for field in ["namespace", "name"] {
            let pointer = format!("/metadata/{field}");
            let (wanted, running) = (text_at(&self.vmi, &pointer), text_at(sent, &pointer));
            if wanted != running {
                let message = format!("{wanted:?}, but the VM that runs has {running:?}");
                let error = FieldError::new(format!("metadata.{field}"), message);
                return Err(ManifestError::OtherVm(error));
            }
        }
        let uid = copy_at(sent, "/metadata/uid");
        set(&mut self.vmi, "/metadata/uid", uid);
        status_of(&mut self.vmi, sent);
        Ok(self)
    }

    /// Removes hotpluggable volumes that `sent` lacks: a cluster plugs them in once their images
    /// exist. An image of that name in the VM's directory belongs to an unplugged volume. Returns
    /// their names.
    pub fn leave_out_volumes(&mut self, sent: &Value) -> Vec<String> {
        leave_out(&mut self.vmi, sent, true)
    }

    /// Removes volumes that `sent` lacks and that only a start gives the guest: a cluster adds them
    /// to the VMI of the next start. Returns their names.
    pub fn leave_out_new_volumes(&mut self, sent: &Value) -> Vec<String> {
        leave_out(&mut self.vmi, sent, false)
    }

    /// Restores volumes of `sent` that the running guest keeps and that are missing or of another
    /// kind. Returns their names. All keep `sent`'s order, by which the guest's disks are named.
    pub fn keep_volumes(&mut self, sent: &Value) -> Vec<String> {
        let is_lost = |sent: &&Value| {
            let wanted = find_named(&self.vmi, VOLUMES, text_at(sent, "/name"));
            let is_wanted = wanted.is_some_and(|it| source_kinds(it).eq(source_kinds(sent)));
            !is_wanted && !may_be_plugged_in(sent)
        };
        let lost = list_at(sent, VOLUMES).iter().filter(is_lost);
        let names: Vec<String> = lost.map(|it| text_at(it, "/name").to_owned()).collect();
        for list in [VOLUMES, DISKS, STATUS] {
            for name in &names {
                if let Some(item) = find_named(sent, list, name) {
                    remove_named(&mut self.vmi, list, name);
                    push(&mut self.vmi, list, item.clone());
                }
            }
            // New ones follow.
            let order = names_at(sent, list);
            list_mut(&mut self.vmi, list).sort_by_key(|item| {
                let place = order.iter().position(|name| name == text_at(item, "/name"));
                place.unwrap_or(usize::MAX)
            });
        }
        names
    }

    /// Refuses a volume of `sent` that has lost its source, as `run` does.
    ///
    /// # Errors
    /// There is one.
    pub fn check_sources(&self, sent: &Value) -> Result<(), FieldError> {
        let has_source = |it: &Value| {
            VOLUME_SOURCES
                .split('|')
                .any(|source| it.get(source).is_some())
        };
        for (index, volume) in list_at(&self.vmi, VOLUMES).iter().enumerate() {
            let sent = find_named(sent, VOLUMES, text_at(volume, "/name"));
            if sent.is_some_and(has_source) && !has_source(volume) {
                let field = format!("spec.volumes[{index}]");
                let message = "it has no source that KubeVirt knows, such as containerDisk";
                return Err(FieldError::new(field, message));
            }
        }
        Ok(())
    }

    /// Restores CD-ROM drives of `sent` that are missing, without a medium that was inserted: the
    /// running guest keeps them. Returns their names.
    pub fn keep_drives(&mut self, sent: &Value) -> Vec<String> {
        let mut kept = Vec::new();
        let drives = list_at(sent, DISKS).iter();
        for drive in drives.filter(|disk| is_object_at(disk, "/cdrom")) {
            let name = text_at(drive, "/name");
            let medium = find_named(sent, VOLUMES, name);
            if medium.is_none_or(may_be_plugged_in) && find_named(&self.vmi, DISKS, name).is_none()
            {
                push(&mut self.vmi, DISKS, drive.clone());
                kept.push(name.to_owned());
            }
        }
        kept
    }

    /// Restores plugged-in volumes that only a start gives the guest here: it could not be rid of
    /// them. Returns the names of those of another kind.
    pub fn keep_plugged_volumes(&mut self, sent: &Value) -> Vec<String> {
        let mut kept = Vec::new();
        for volume in plugged_volumes(sent) {
            let name = text_at(volume, "/name");
            let mut volumes = list_mut(&mut self.vmi, VOLUMES).iter_mut();
            if let Some(here) = volumes.find(|here| text_at(here, "/name") == name)
                && !may_be_plugged_in(here)
            {
                if !PLUGGABLE.iter().any(|kind| is_object_at(here, kind)) {
                    kept.push(name.to_owned());
                }
                *here = volume.clone();
            }
        }
        kept
    }

    /// Restores the capacity of host disks: nobody gives a file that is there another size. Returns
    /// the names of those with another one.
    pub fn keep_host_disks(&mut self, sent: &Value) -> Vec<String> {
        let mut kept = Vec::new();
        for volume in list_mut(&mut self.vmi, VOLUMES) {
            let name = text_at(volume, "/name").to_owned();
            let before = find_named(sent, VOLUMES, &name);
            let before = before.and_then(|it| it.pointer("/hostDisk/capacity"));
            if let (Some(before), Some(now)) = (before, volume.pointer_mut("/hostDisk/capacity"))
                && now != before
            {
                *now = before.clone();
                kept.push(name);
            }
        }
        kept
    }

    /// Restores disks whose bus has changed: the guest would lose one that was plugged in, and a
    /// new disk would get the name that one of its start still has. Returns their names.
    pub fn keep_disks(&mut self, sent: &Value) -> Vec<String> {
        let mut kept = Vec::new();
        for had in list_at(sent, DISKS) {
            let name = text_at(had, "/name");
            let mut disks = list_mut(&mut self.vmi, DISKS).iter_mut();
            let disk = disks.find(|disk| text_at(disk, "/name") == name);
            if let Some(disk) = disk
                && device(had) != device(disk)
            {
                *disk = had.clone();
                kept.push(name.to_owned());
            }
        }
        kept
    }
}

/// The kind of a disk's device, such as `cdrom`, and its bus.
fn device(disk: &Value) -> Option<(&str, &str)> {
    let mut kinds = ["disk", "cdrom", "lun"].into_iter();
    let kind = kinds.find(|kind| is_object_at(disk, &format!("/{kind}")))?;
    Some((kind, text_at(disk, &format!("/{kind}/bus"))))
}

/// Takes from `sent` the parts of the status that [`of_admission`](super::defaults::of_admission)
/// has only guessed or that the VMI lacks.
fn status_of(vmi: &mut Value, sent: &Value) {
    if text_at(vmi, "/status/phase") == DEFAULT_PHASE {
        set(vmi, "/status/phase", copy_at(sent, "/status/phase"));
    }
    for status in list_mut(vmi, STATUS) {
        let name = text_at(status, "/name");
        if *status == default_volume_status(name)
            && let Some(known) = find_named(sent, STATUS, name)
        {
            *status = known.clone();
        }
    }
    let members = sent.pointer("/status").and_then(Value::as_object);
    for (name, value) in members.into_iter().flatten() {
        set_default(vmi, &format!("/status/{name}"), value.clone());
    }
}

/// Removes volumes that `sent` lacks, and everything that refers to them. Returns their names.
fn leave_out(vmi: &mut Value, sent: &Value, are_pluggable: bool) -> Vec<String> {
    let is_new = |volume: &&Value| {
        may_be_plugged_in(volume) == are_pluggable
            && find_named(sent, VOLUMES, text_at(volume, "/name")).is_none()
    };
    let new = list_at(vmi, VOLUMES).iter().filter(is_new);
    let names: Vec<String> = new.map(|it| text_at(it, "/name").to_owned()).collect();
    for name in &names {
        // The guest keeps a drive in its place, without its medium.
        let keeps_disk = are_pluggable && is_drive(sent, name);
        for list in [VOLUMES, DISKS, "/spec/domain/devices/filesystems", STATUS] {
            if list != DISKS || !keeps_disk {
                remove_named(vmi, list, name);
            }
        }
    }
    names
}

/// A volume's source kinds, such as `containerDisk`.
fn source_kinds(volume: &Value) -> impl Iterator<Item = &String> {
    let fields = volume.as_object().into_iter().flatten();
    let names = fields.map(|(field, _)| field);
    names.filter(|field| *field != "name")
}

fn plugged_volumes(sent: &Value) -> impl Iterator<Item = &Value> {
    let volumes = list_at(sent, VOLUMES).iter();
    volumes.filter(|volume| may_be_plugged_in(volume))
}

fn may_be_plugged_in(volume: &Value) -> bool {
    let mut kinds = PLUGGABLE.iter();
    kinds.any(|kind| is_true_at(volume, &format!("{kind}/hotpluggable")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::defaults::of_admission;
    use super::*;
    use serde_json::json;

    fn manifest(vmi: Value) -> Manifest {
        Manifest {
            vmi,
            others: Vec::new(),
        }
    }

    #[test]
    fn a_host_disk_keeps_its_capacity() {
        let vmi = |size: &str| json!({"spec": {"volumes": [{"name": "h", "hostDisk": {"capacity": size}}]}});
        let mut update = manifest(vmi("2Mi"));
        assert_eq!(update.keep_host_disks(&vmi("1Mi")), ["h"]);
        assert_eq!(update.vmi, vmi("1Mi"));
        assert_eq!(update.keep_host_disks(&vmi("1Mi")), [""; 0]);
    }

    #[test]
    fn a_volume_that_has_lost_its_source_is_refused() {
        let vmi = |source: &str| json!({"spec": {"volumes": [{"name": "h", source: {}}]}});
        let refused = |update: &str, sent: &str| {
            let checked = manifest(vmi(update)).check_sources(&vmi(sent));
            checked.map_err(|error| error.field)
        };
        assert_eq!(refused("secret", "emptyDisk"), Ok(()));
        let field = Err("spec.volumes[0]".to_owned());
        assert_eq!(refused("emptyDisc", "emptyDisk"), field);
        assert_eq!(refused("emptyDisc", "emptyDisc"), Ok(()));
    }

    #[test]
    fn a_new_volume_that_may_be_plugged_in_is_left_out_of_an_update() {
        let claim = |name: &str, hotpluggable| json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": hotpluggable}});
        let sent = json!({"spec": {"volumes": [claim("old", true)]}});
        let volumes = [("old", true), ("later", true), ("root", false)];
        let mut update = manifest(json!({"spec": {
            "volumes": volumes.map(|(name, hotpluggable)| claim(name, hotpluggable)),
            "domain": {"devices": {"disks": [{"name": "later"}, {"name": "root"}]}},
        }}));
        let left_out = update.leave_out_volumes(&sent);
        assert_eq!(left_out, ["later"]);
        assert_eq!(list_at(&update.vmi, "/spec/volumes").len(), 2);
        assert_eq!(
            update.vmi["spec"]["domain"]["devices"]["disks"],
            json!([{"name": "root"}])
        );
    }

    #[test]
    fn a_drive_stays_at_its_place_while_its_medium_is_not_there() {
        let disks =
            json!([{"name": "cd", "cdrom": {}}, {"name": "late", "disk": {}}, {"name": "root"}]);
        let sent = json!({"spec": {"domain": {"devices": {"disks": [{"name": "cd", "cdrom": {}}, {"name": "root"}]}}}});
        let claim =
            |name: &str| json!({"name": name, "persistentVolumeClaim": {"hotpluggable": true}});
        let mut update = manifest(
            json!({"spec": {"volumes": [claim("cd"), claim("late")], "domain": {"devices": {"disks": disks}}}}),
        );
        let left_out = update.leave_out_volumes(&sent);
        assert_eq!(left_out, ["cd", "late"]);
        assert!(list_at(&update.vmi, "/spec/volumes").is_empty());
        assert_eq!(update.vmi["spec"]["domain"], sent["spec"]["domain"]);
    }

    #[test]
    fn a_volume_that_only_a_start_gives_is_left_out_of_an_update() {
        let sent = json!({"spec": {"volumes": [{"name": "root", "containerDisk": {}}]}});
        let mut update = manifest(json!({"spec": {
            "volumes": [{"name": "root", "containerDisk": {}}, {"name": "late", "emptyDisk": {}},
                {"name": "files", "configMap": {}},
                {"name": "plugged", "dataVolume": {"hotpluggable": true}}],
            "domain": {"devices": {
                "disks": [{"name": "late"}, {"name": "plugged"}, {"name": "root"}],
                "filesystems": [{"name": "files"}],
            }},
        }, "status": {"volumeStatus": [{"name": "late"}, {"name": "root"}]}}));
        assert_eq!(update.leave_out_new_volumes(&sent), ["late", "files"]);
        let names = |pointer: &str| -> Vec<&str> {
            let items = list_at(&update.vmi, pointer).iter();
            items.map(|item| text_at(item, "/name")).collect()
        };
        assert_eq!(names("/spec/volumes"), ["root", "plugged"]);
        assert_eq!(names("/spec/domain/devices/disks"), ["plugged", "root"]);
        assert!(names("/spec/domain/devices/filesystems").is_empty());
        assert_eq!(names("/status/volumeStatus"), ["root"]);
    }

    #[test]
    fn a_volume_of_the_start_stays_as_long_as_the_guest_runs() {
        let sent = json!({"spec": {
            "volumes": [{"name": "root"}, {"name": "token", "secret": {}},
                {"name": "more", "persistentVolumeClaim": {"hotpluggable": true}}],
            "domain": {"devices": {"disks": [{"name": "root"}, {"name": "token", "serial": "T"}]}},
        }, "status": {"volumeStatus": [{"name": "root"}, {"name": "token", "target": "sda"}]}});
        let mut update = manifest(json!({"spec": {
            "volumes": [{"name": "root"}],
            "domain": {"devices": {"disks": [{"name": "root"}]}},
        }, "status": {"volumeStatus": [{"name": "root"}]}}));
        assert_eq!(update.keep_volumes(&sent), ["token"]);
        assert_eq!(update.vmi["spec"]["domain"], sent["spec"]["domain"]);
        assert_eq!(update.vmi["status"], sent["status"]);
        let volumes = list_at(&update.vmi, "/spec/volumes");
        assert_eq!(volumes, &list_at(&sent, "/spec/volumes")[..2]);
        assert!(update.keep_volumes(&sent).is_empty());
        let other_kind = json!([{"name": "root"}, {"name": "token", "configMap": {}}]);
        update.vmi["spec"]["volumes"] = other_kind;
        assert_eq!(update.keep_volumes(&sent), ["token"]);
        let volumes = list_at(&update.vmi, "/spec/volumes");
        assert_eq!(volumes, &list_at(&sent, "/spec/volumes")[..2]);
    }

    #[test]
    fn a_drive_stays_without_what_was_inserted() {
        let drive = |name: &str| json!({"name": name, "cdrom": {"bus": "sata"}});
        let inserted = json!({"name": "cd", "persistentVolumeClaim": {"hotpluggable": true}});
        let seed = json!({"name": "seed", "containerDisk": {}});
        let sent = json!({"spec": {
            "volumes": [inserted, seed],
            "domain": {"devices": {"disks": [drive("cd"), drive("empty"), drive("seed"), {"name": "root", "disk": {}}]}},
        }});
        let mut update = manifest(json!({"spec": {"domain": {"devices": {"disks": []}}}}));
        assert_eq!(update.keep_drives(&sent), ["cd", "empty"]);
        let disks = json!([drive("cd"), drive("empty")]);
        assert_eq!(update.vmi["spec"]["domain"]["devices"]["disks"], disks);
        assert!(list_at(&update.vmi, VOLUMES).is_empty());
        assert!(update.keep_drives(&sent).is_empty());
    }

    #[test]
    fn a_disk_keeps_its_bus() {
        let vmi = |bus: &str, serial: &str| {
            let disk = |name: &str| json!({"name": name, "disk": {"bus": bus}, "serial": serial});
            json!({"spec": {
                "volumes": [{"name": "root", "containerDisk": {}},
                    {"name": "more", "persistentVolumeClaim": {"hotpluggable": true}}],
                "domain": {"devices": {"disks": [disk("root"), disk("more")]}},
            }})
        };
        let sent = vmi("scsi", "S");
        let mut update = manifest(vmi("virtio", ""));
        assert_eq!(update.keep_disks(&sent), ["root", "more"]);
        assert_eq!(list_at(&update.vmi, DISKS), list_at(&sent, DISKS));
        let mut of_start = vmi("scsi", "");
        for (kind, kept) in [("persistentVolumeClaim", &[][..]), ("emptyDisk", &["more"])] {
            of_start["spec"]["volumes"][1] = json!({"name": "more", (kind): {}});
            let mut update = manifest(of_start.clone());
            assert_eq!(update.keep_plugged_volumes(&sent), kept);
            assert_eq!(update.vmi["spec"]["volumes"], sent["spec"]["volumes"]);
        }
        assert!(manifest(vmi("scsi", "")).keep_disks(&sent).is_empty());
    }

    #[test]
    fn disks_keep_the_order_in_which_the_guest_has_them() {
        let named =
            |names: &[&str]| -> Value { names.iter().map(|it| json!({"name": it})).collect() };
        let vmi = |names: &[&str]| json!({"spec": {"volumes": named(names), "domain": {"devices": {"disks": named(names)}}}});
        let sent = vmi(&["root", "seed", "data"]);
        let mut update = manifest(vmi(&["new", "data", "root", "other"]));
        assert_eq!(update.keep_volumes(&sent), ["seed"]);
        assert_eq!(update.vmi, vmi(&["root", "seed", "data", "new", "other"]));
    }

    #[test]
    fn an_update_keeps_the_status_that_its_file_does_not_say() {
        let sent = json!({"status": {
            "phase": "Running", "interfaces": [{"name": "blue"}],
            "volumeStatus": [{"name": "data", "target": "sda", "hotplugVolume": {}}],
        }});
        let volumes = json!([{"name": "data", "emptyDisk": {}}, {"name": "new", "emptyDisk": {}}]);
        let spec = json!({"domain": {"memory": {"guest": "1Gi"}}, "volumes": volumes});
        let mut update = json!({"metadata": {"name": "a"}, "spec": spec});
        of_admission(&mut update).unwrap();
        status_of(&mut update, &sent);
        assert_eq!(update["status"]["phase"], "Running");
        assert_eq!(update["status"]["interfaces"][0]["name"], "blue");
        assert_eq!(update["status"]["volumeStatus"][0]["target"], "sda");
        assert_eq!(update["status"]["volumeStatus"][1]["target"], "");
        // What the file says stays.
        let mut update = json!({"status": {"phase": "Failed", "interfaces": []}});
        status_of(&mut update, &sent);
        assert_eq!(update["status"]["phase"], "Failed");
        assert_eq!(update["status"]["interfaces"], json!([]));
    }
}
