//! A later version of a sent VMI: what a running guest can get of it here, and the status.

use serde_json::Value;

use super::defaults::{DEFAULT_PHASE, default_volume_status};
use super::error::{FieldError, ManifestError};
use super::network::{INTERFACES, NETWORKS};
use super::{DISKS, Manifest, STATUS, VOLUMES};
use crate::json::{copy_at, find_named, list_at, list_mut, names_at, set, set_default, text_at};

const FILESYSTEMS: &str = "/spec/domain/devices/filesystems";

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

    /// Gives it the interfaces, volumes and disks of `sent`: only a restart, `addvolume` and
    /// `removevolume` change those of a guest here; in a cluster virt-handler does. Returns the
    /// fields in which they differ.
    pub fn keep_devices(&mut self, sent: &Value) -> Vec<String> {
        self.leave_out_node_parts();
        match list_at(sent, INTERFACES) {
            [] => self.strip_network(),
            _ => drop(self.use_plugin_network()),
        }
        let mut differing = Vec::new();
        for list in [INTERFACES, VOLUMES, DISKS] {
            let mut names = names_at(sent, list);
            names.extend(names_at(&self.vmi, list));
            names.sort_unstable();
            names.dedup();
            names.retain(|it| find_named(sent, list, it) != find_named(&self.vmi, list, it));
            let list = list.trim_start_matches('/').replace('/', ".");
            differing.extend(names.iter().map(|name| format!("{list}[{name}]")));
        }
        for list in [INTERFACES, NETWORKS, VOLUMES, DISKS, FILESYSTEMS, STATUS] {
            set(&mut self.vmi, list, copy_at(sent, list));
        }
        differing
    }
}

/// Takes from `sent` the parts of the status that [`of_admission`](super::defaults::of_admission)
/// has only guessed or that the VMI lacks.
fn status_of(vmi: &mut Value, sent: &Value) {
    if text_at(vmi, "/status/phase") == DEFAULT_PHASE {
        set(vmi, "/status/phase", copy_at(sent, "/status/phase"));
    }
    for volume in list_at(vmi, VOLUMES).to_vec() {
        let name = text_at(&volume, "/name");
        let mut statuses = list_mut(vmi, STATUS).iter_mut();
        if let Some(status) = statuses.find(|it| **it == default_volume_status(&volume))
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

#[cfg(test)]
mod tests {
    use super::super::defaults::of_admission;
    use super::*;
    use serde_json::json;

    #[test]
    fn devices_of_the_start_stay_and_the_others_are_named() {
        let disk = |name: &str, bus: &str| json!({"name": name, "disk": {"bus": bus}});
        let vmi = |volumes: Value, disks: Value| json!({"spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}}});
        let root = json!({"name": "root", "containerDisk": {}});
        let sent = vmi(
            json!([root, {"name": "seed", "secret": {}}]),
            json!([disk("root", "scsi")]),
        );
        let update = vmi(
            json!([{"name": "late", "emptyDisk": {}}, root]),
            json!([disk("root", "virtio")]),
        );
        let others = Vec::new();
        let mut update = Manifest {
            vmi: update,
            others,
        };
        let expected = [
            "spec.volumes[late]",
            "spec.volumes[seed]",
            "spec.domain.devices.disks[root]",
        ];
        assert_eq!(update.keep_devices(&sent), expected);
        for list in [VOLUMES, DISKS] {
            assert_eq!(list_at(&update.vmi, list), list_at(&sent, list));
        }
        assert_eq!(update.keep_devices(&sent), [""; 0]);
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
