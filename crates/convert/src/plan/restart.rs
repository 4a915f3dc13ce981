//! Which changes of a VMI are live and which need a restart, as KubeVirt's condition
//! `RestartRequired` has them.
//!
//! | Difference from the VMI of the start | |
//! |---|---|
//! | hotpluggable volume, its disk, interface, network, link state | none: the plan has it |
//! | volume or disk of another kind | restart |
//! | field without which the converted domain would be another one | restart |
//! | annotation of a VMI with hook sidecars | restart |
//! | boot loader, launch security, virtio transitional, log of the serial console | restart |
//! | interface's other fields, host name, probes, DNS | restart: the pod and its network have them |
//! | CPU sockets below `maxSockets`, memory below `maxGuest` | virt-handler's own call, with a migration |
//! | anything else, such as a label | none |

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Context;
use api::vmi::{HOOK_SIDECARS, Vmi};
use domain::DomainSpec;

/// How many bytes of JSON are converted, in all, to find out which differences matter.
const MAX_CONVERTED_BYTES: usize = 16 << 20;

/// A field that a sync does not bring into the running domain.
#[derive(Debug, Clone, PartialEq)]
pub struct RestartField {
    /// Its path; items of a list go by their names: `spec.volumes[data]`.
    pub field: String,
    /// Its value when the guest was started; none if it is new.
    pub before: Option<Value>,
    /// Its value in the wanted VMI; none if it is gone.
    pub after: Option<Value>,
    pub needs: Needs,
}

/// What brings a field into the running domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Needs {
    /// A restart of the guest.
    Restart,
    /// A call of virt-handler's, which it makes while it migrates the VM.
    LiveMigration,
    /// Nobody has looked: there are too many differences.
    Unexamined,
}

impl fmt::Display for RestartField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.needs {
            Needs::Restart => f.write_str("needs a restart: ")?,
            Needs::LiveMigration => {
                f.write_str("needs a live migration in a cluster, or a new start: ")?
            }
            Needs::Unexamined => f.write_str("may need a restart, one of too many changes: ")?,
        }
        let field = &self.field;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) if is_short(before) && is_short(after) => {
                write!(f, "{field}: {before} becomes {after}")
            }
            (Some(_), Some(_)) => write!(f, "{field} changes"),
            (Some(_), None) => write!(f, "{field} goes"),
            (None, _) => write!(f, "{field} is new"),
        }
    }
}

/// Fits on a line.
fn is_short(value: &Value) -> bool {
    const MAX_SHOWN_BYTES: usize = 60;
    value.to_string().len() <= MAX_SHOWN_BYTES
}

/// The fields of `wanted` that only a restart brings to a guest that was started with `started`,
/// both as JSON. `context` is the wanted VMI's.
#[must_use]
pub fn restart_fields(started: &Value, wanted: &Value, context: &Context) -> Vec<RestartField> {
    let mut differences = Vec::new();
    let (path, [before, after]) = (
        Path::root("spec"),
        [started, wanted].map(|it| it.get("spec")),
    );
    compare(&path, before, after, &mut differences);
    compare_annotations(started, wanted, &mut differences);
    let conversions = MAX_CONVERTED_BYTES.checked_div(wanted.to_string().len());
    let judge = Judge {
        started,
        wanted,
        volumes: [started, wanted].map(volumes),
        context,
        domain: convert(wanted, context),
        conversions_left: Cell::new(conversions.unwrap_or_default()),
    };
    let fields = differences.into_iter().filter_map(|difference| {
        Some(RestartField {
            needs: judge.needs(&difference)?,
            field: difference.path.to_string(),
            before: difference.before,
            after: difference.after,
        })
    });
    fields.collect()
}

/// A part of a path into a JSON value.
#[derive(Debug, Clone, PartialEq)]
enum PathPart {
    Key(String),
    /// The item of a list with this name.
    Named(String),
}

#[derive(Debug, Clone, PartialEq)]
struct Path(Vec<PathPart>);

impl Path {
    fn root(key: &str) -> Self {
        Self(vec![PathPart::Key(key.to_owned())])
    }

    fn with(&self, step: PathPart) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                PathPart::Key(key) if index == 0 => f.write_str(key)?,
                PathPart::Key(key) => write!(f, ".{key}")?,
                PathPart::Named(name) => write!(f, "[{name}]")?,
            }
        }
        Ok(())
    }
}

struct Difference {
    path: Path,
    before: Option<Value>,
    after: Option<Value>,
}

/// Collects the innermost differences. Lists are compared by name if all items have one.
fn compare(
    path: &Path,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (before, after) {
        (before, after) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let path = path.with(PathPart::Key(key.clone()));
                compare(&path, before.get(key), after.get(key), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after)))
            if are_named(before) && are_named(after) =>
        {
            let (before, after) = (by_name(before), by_name(after));
            let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
            for one in names {
                let path = path.with(PathPart::Named(one.to_owned()));
                let (before, after) = (before.get(one), after.get(one));
                compare(&path, before.copied(), after.copied(), found);
            }
        }
        // If a list appears or goes, all its items do.
        (None, Some(Value::Array(items))) if are_named(items) && !items.is_empty() => {
            compare(path, Some(&Value::Array(Vec::new())), after, found);
        }
        (Some(Value::Array(items)), None) if are_named(items) && !items.is_empty() => {
            compare(path, before, Some(&Value::Array(Vec::new())), found);
        }
        (before, after) => found.push(Difference {
            path: path.clone(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

/// A hook sidecar, which is called at the start only, may read any annotation but KubeVirt's own,
/// which controllers change while the VM runs.
fn compare_annotations(before: &Value, after: &Value, found: &mut Vec<Difference>) {
    const OF_CONTROLLERS: [&str; 2] = ["kubevirt.io/", "kubectl.kubernetes.io/"];
    let [before, after] = [before, after].map(|vmi| {
        let annotations = vmi.pointer("/metadata/annotations");
        annotations
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    });
    if ![&before, &after]
        .iter()
        .any(|it| it.contains_key(HOOK_SIDECARS))
    {
        return;
    }
    let path = Path::root("metadata").with(PathPart::Key("annotations".to_owned()));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        if !OF_CONTROLLERS.iter().any(|prefix| name.starts_with(prefix)) {
            let path = path.with(PathPart::Named(name.clone()));
            compare(&path, before.get(name), after.get(name), found);
        }
    }
}

fn name(item: &Value) -> &str {
    item.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The first item of each name.
fn by_name(items: &[Value]) -> BTreeMap<&str, &Value> {
    items.iter().rev().map(|item| (name(item), item)).collect()
}

fn are_named(items: &[Value]) -> bool {
    items.iter().all(|item| !name(item).is_empty())
}

struct Judge<'a> {
    started: &'a Value,
    wanted: &'a Value,
    /// The volumes of both, by name.
    volumes: [BTreeMap<&'a str, &'a Value>; 2],
    context: &'a Context,
    /// The wanted domain; none if the VMI is refused.
    domain: Option<DomainSpec>,
    /// How many more conversions there may be.
    conversions_left: Cell<usize>,
}

impl Judge<'_> {
    fn needs(&self, difference: &Difference) -> Option<Needs> {
        let keys: Vec<&str> = difference
            .path
            .0
            .iter()
            .map(|step| match step {
                PathPart::Key(text) | PathPart::Named(text) => text.as_str(),
            })
            .collect();
        match keys.as_slice() {
            ["metadata", "annotations", ..] => Some(Needs::Restart),
            ["spec", "volumes", volume, ..] => {
                (!self.is_hotpluggable(volume)).then_some(Needs::Restart)
            }
            ["spec", "domain", "devices", "disks", disk] => {
                match self.volumes.each_ref().map(|it| it.contains_key(disk)) {
                    [true, true] => (!self.is_hotpluggable(disk)).then_some(Needs::Restart),
                    // An empty drive.
                    [false, false] => Some(Needs::Restart),
                    // A volume that comes or goes with its disk is named itself.
                    _ => None,
                }
            }
            ["spec", "domain", "devices", "disks", disk, ..] if self.is_hotpluggable(disk) => None,
            ["spec", "networks", _]
            | ["spec", "domain", "devices", "interfaces", _]
            | ["spec", "domain", "devices", "interfaces", _, "state"] => None,
            ["spec", "domain", "devices", "interfaces", _, _, ..]
            | [
                "spec",
                "hostname" | "subdomain" | "dnsPolicy" | "dnsConfig",
                ..,
            ]
            | ["spec", "readinessProbe" | "livenessProbe", ..] => Some(Needs::Restart),
            ["spec", "domain", "cpu", "sockets"] if self.has("/spec/domain/cpu/maxSockets") => {
                Some(Needs::LiveMigration)
            }
            ["spec", "domain", "memory", "guest"] if self.has("/spec/domain/memory/maxGuest") => {
                Some(Needs::LiveMigration)
            }
            // The context of the wanted VMI has what these lead to, so that a conversion without
            // the difference would be the same.
            ["spec", "domain", "firmware", "bootloader", ..]
            | ["spec", "domain", "launchSecurity", ..]
            | [
                "spec",
                "domain",
                "devices",
                "useVirtioTransitional" | "logSerialConsole",
            ] => Some(Needs::Restart),
            _ => self.changes_domain(difference),
        }
    }

    fn has(&self, pointer: &str) -> bool {
        self.started
            .pointer(pointer)
            .is_some_and(|at| !at.is_null())
    }

    /// Whether the volume, where it is, is one that comes and goes while the guest runs.
    fn is_hotpluggable(&self, name: &str) -> bool {
        let found = self.volumes.iter().filter_map(|volumes| volumes.get(name));
        let mut volumes = found.peekable();
        volumes.peek().is_some()
            && volumes.all(|volume| {
                ["/persistentVolumeClaim", "/dataVolume"]
                    .iter()
                    .any(|kind| {
                        let hotpluggable = volume.pointer(&format!("{kind}/hotpluggable"));
                        hotpluggable.and_then(Value::as_bool) == Some(true)
                    })
            })
    }

    /// Whether the domain would be another one if the field were as at the start.
    fn changes_domain(&self, difference: &Difference) -> Option<Needs> {
        let Some(domain) = &self.domain else {
            return Some(Needs::Restart);
        };
        let Some(left) = self.conversions_left.get().checked_sub(1) else {
            return Some(Needs::Unexamined);
        };
        self.conversions_left.set(left);
        let mut reverted = self.wanted.clone();
        if !put(&mut reverted, &difference.path.0, difference.before.clone()) {
            return Some(Needs::Restart);
        }
        // A VMI that is refused without the difference depends on it.
        let reverted = convert(&reverted, self.context);
        let is_other = reverted.is_none_or(|reverted| reverted != *domain);
        is_other.then_some(Needs::Restart)
    }
}

fn volumes(vmi: &Value) -> BTreeMap<&str, &Value> {
    let volumes = vmi.pointer("/spec/volumes").and_then(Value::as_array);
    volumes.map(|it| by_name(it)).unwrap_or_default()
}

fn convert(vmi: &Value, context: &Context) -> Option<DomainSpec> {
    let vmi = Vmi::deserialize(vmi).ok()?;
    crate::domain(&vmi, context).ok()
}

/// Sets or removes the value at a path; false if the path leads nowhere.
fn put(value: &mut Value, path: &[PathPart], new: Option<Value>) -> bool {
    match (path, value) {
        ([PathPart::Key(key)], Value::Object(members)) => {
            match new {
                Some(new) => members.insert(key.clone(), new),
                None => members.remove(key),
            };
            true
        }
        ([PathPart::Named(wanted)], Value::Array(items)) => {
            items.retain(|item| name(item) != wanted);
            items.extend(new);
            true
        }
        ([PathPart::Key(key), rest @ ..], Value::Object(members)) => members
            .get_mut(key)
            .is_some_and(|inner| put(inner, rest, new)),
        ([PathPart::Named(wanted), rest @ ..], Value::Array(items)) => items
            .iter_mut()
            .find(|item| name(item) == wanted)
            .is_some_and(|item| put(item, rest, new)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi() -> Value {
        json!({
            "metadata": {"name": "vm", "namespace": "ns"},
            "spec": {
                "nodeSelector": {"a": "b"},
                "domain": {
                    "memory": {"guest": "256Mi"},
                    "cpu": {"sockets": 1, "cores": 1, "threads": 1},
                    "devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]},
                },
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}],
            },
        })
    }

    fn fields(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut wanted = vmi();
        change(&mut wanted);
        let context = Context {
            hypervisor_device_available: true,
            ..Context::default()
        };
        let fields = restart_fields(&vmi(), &wanted, &context);
        fields.iter().map(ToString::to_string).collect()
    }

    fn push(vmi: &mut Value, pointer: &str, item: Value) {
        vmi.pointer_mut(pointer)
            .unwrap()
            .as_array_mut()
            .unwrap()
            .push(item);
    }

    #[test]
    fn memory_needs_a_restart() {
        let found = fields(|vmi| vmi["spec"]["domain"]["memory"]["guest"] = json!("1Gi"));
        assert_eq!(
            found,
            [r#"needs a restart: spec.domain.memory.guest: "256Mi" becomes "1Gi""#]
        );
        let same = fields(|vmi| vmi["spec"]["domain"]["memory"]["guest"] = json!("262144Ki"));
        assert!(same.is_empty(), "{same:?}");
    }

    #[test]
    fn what_the_context_is_made_of_needs_a_restart() {
        let found = fields(|vmi| {
            vmi["spec"]["domain"]["firmware"] = json!({"bootloader": {"efi": {}}});
            vmi["spec"]["domain"]["devices"]["logSerialConsole"] = json!(false);
            vmi["spec"]["domain"]["devices"]["useVirtioTransitional"] = json!(true);
            vmi["spec"]["domain"]["launchSecurity"] = json!({"sev": {}});
        });
        let expected = [
            "spec.domain.devices.logSerialConsole",
            "spec.domain.devices.useVirtioTransitional",
            "spec.domain.firmware",
            "spec.domain.launchSecurity",
        ];
        let expected = expected.map(|field| format!("needs a restart: {field} is new"));
        assert_eq!(found, expected);
        let efi = json!({"bootloader": {"efi": {"secureBoot": false}}});
        let bios = json!({"bootloader": {"bios": {}}});
        let [mut started, mut wanted] = [vmi(), vmi()];
        started["spec"]["domain"]["firmware"] = efi;
        wanted["spec"]["domain"]["firmware"] = bios;
        let found = restart_fields(&started, &wanted, &Context::default());
        let found: Vec<&str> = found.iter().map(|it| it.field.as_str()).collect();
        let expected = [
            "spec.domain.firmware.bootloader.bios",
            "spec.domain.firmware.bootloader.efi",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_annotation_for_hook_sidecars_needs_a_restart() {
        let (mut started, mut wanted) = (vmi(), vmi());
        let sidecars = json!("[]");
        started["metadata"]["annotations"] = json!({"size": "1", "kubevirt.io/a": "1"});
        wanted["metadata"]["annotations"] = json!({"size": "2", "kubevirt.io/a": "2"});
        let fields = |started: &Value, wanted: &Value| {
            let fields = restart_fields(started, wanted, &Context::default());
            fields.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(fields(&started, &wanted).is_empty(), "nobody reads it");
        for vmi in [&mut started, &mut wanted] {
            vmi["metadata"]["annotations"]["hooks.kubevirt.io/hookSidecars"] = sidecars.clone();
        }
        let expected = r#"needs a restart: metadata.annotations[size]: "1" becomes "2""#;
        assert_eq!(fields(&started, &wanted), [expected]);
    }

    #[test]
    fn a_drive_that_comes_or_goes_empty_needs_a_restart() {
        let found = fields(|vmi| {
            let drive = json!({"name": "cd", "cdrom": {"bus": "sata"}});
            push(vmi, "/spec/domain/devices/disks", drive);
        });
        assert_eq!(
            found,
            ["needs a restart: spec.domain.devices.disks[cd] is new"]
        );
    }

    #[test]
    fn what_the_domain_does_not_show_needs_no_restart() {
        let found = fields(|vmi| {
            vmi["spec"]["nodeSelector"] = json!({"a": "c"});
            vmi["metadata"]["labels"] = json!({"x": "y"});
        });
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn what_the_pod_has_for_the_guest_needs_a_restart() {
        let mut started = vmi();
        started["spec"]["domain"]["devices"]["interfaces"] =
            json!([{"name": "a", "binding": {"name": "x"}, "model": "virtio", "state": "up"}]);
        started["spec"]["hostname"] = json!("a");
        let mut wanted = started.clone();
        wanted["spec"]["domain"]["devices"]["interfaces"][0]["state"] = json!("down");
        let context = Context {
            hypervisor_device_available: true,
            ..Context::default()
        };
        let found = |wanted: &Value| {
            let found = restart_fields(&started, wanted, &context);
            found.into_iter().map(|it| it.field).collect::<Vec<_>>()
        };
        assert_eq!(found(&wanted), [""; 0]);
        let (mut empty, none) = (vmi(), vmi());
        empty["spec"]["domain"]["devices"]["interfaces"] = json!([]);
        let of_no_list = restart_fields(&empty, &none, &context);
        assert!(of_no_list.is_empty(), "{of_no_list:?}");
        wanted["spec"]["domain"]["devices"]["interfaces"][0]["model"] = json!("e1000");
        wanted["spec"]["hostname"] = json!("b");
        wanted["spec"]["readinessProbe"] = json!({"guestAgentPing": {}});
        let model = "spec.domain.devices.interfaces[a].model";
        assert_eq!(
            found(&wanted),
            [model, "spec.hostname", "spec.readinessProbe"]
        );
    }

    #[test]
    fn a_disk_that_is_no_hotplug_needs_a_restart_and_is_named_once() {
        let with = |source: Value| {
            fields(|vmi| {
                push(
                    vmi,
                    "/spec/domain/devices/disks",
                    json!({"name": "data", "disk": {"bus": "scsi"}}),
                );
                let mut volume = json!({"name": "data"});
                volume["persistentVolumeClaim"] = source;
                push(vmi, "/spec/volumes", volume);
            })
        };
        assert_eq!(
            with(json!({"claimName": "data"})),
            ["needs a restart: spec.volumes[data] is new"]
        );
        let hotplugged = with(json!({"claimName": "data", "hotpluggable": true}));
        assert!(hotplugged.is_empty(), "{hotplugged:?}");
        let bus = fields(|vmi| {
            vmi["spec"]["domain"]["devices"]["disks"][0]["disk"]["bus"] = json!("sata");
        });
        assert_eq!(
            bus,
            [
                r#"needs a restart: spec.domain.devices.disks[root].disk.bus: "virtio" becomes "sata""#
            ]
        );
    }

    #[test]
    fn what_can_be_plugged_by_a_migration_is_told_apart() {
        let mut started = vmi();
        started["spec"]["domain"]["cpu"]["maxSockets"] = json!(4);
        let mut wanted = started.clone();
        wanted["spec"]["domain"]["cpu"]["sockets"] = json!(2);
        let found = restart_fields(&started, &wanted, &Context::default());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].needs, Needs::LiveMigration);
    }

    /// Each could be told by a conversion of its own, and they would take hours.
    #[test]
    fn differences_beyond_what_may_be_converted_are_not_examined() {
        let with_selectors = |value: &str| {
            let mut vmi = vmi();
            let selectors = (0..4_000).map(|n| (format!("s{n}"), json!(value)));
            vmi["spec"]["nodeSelector"] = Value::Object(selectors.collect());
            vmi
        };
        let context = Context {
            hypervisor_device_available: true,
            ..Context::default()
        };
        let found = restart_fields(&with_selectors("a"), &with_selectors("b"), &context);
        let bytes = with_selectors("b").to_string().len();
        assert_eq!(found.len(), 4_000 - MAX_CONVERTED_BYTES / bytes);
        assert!(found.iter().all(|field| field.needs == Needs::Unexamined));
    }

    #[test]
    fn no_vmi_of_any_form_causes_a_panic() {
        for (started, wanted) in [
            (json!(null), json!({"spec": 1})),
            (json!({"spec": {"volumes": [1]}}), json!({"spec": []})),
            (json!({"spec": {}}), vmi()),
        ] {
            let _ = restart_fields(&started, &wanted, &Context::default());
        }
    }
}
