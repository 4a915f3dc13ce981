//! What a running domain needs so that it becomes the wanted one. Pure: two domains in, a list of
//! changes out; nobody is asked and nothing is touched.
//!
//! ```text
//!  live (what libvirt reports) ──┐
//!                                ├──► disks() ──► detach, then attach, then update
//!  wanted (what convert made) ───┤
//!                                ├──► resizes() ─► resize
//!  sizes (of claims) ────────────┘
//!  live, wanted, VMI ───────────────► interfaces() ──► attach, then detach, then update
//!  live, devices of interfaces ─────► host_devices() ─► attach
//!  live, VMI ───────────────────────► memory(), cpus() ─► how much the guest has
//!  VMI of the start, VMI ───────────► restart_fields() ─► what needs a restart
//! ```
//!
//! [`SyncPlan::steps`] has the order of all. In it, a domain that allows each step is in a valid
//! state after every one of them:
//! a target is free before a disk is attached to it, and a volume has left its old disk before it
//! appears on another. Both orders are the reference's: an interface takes no other's place, so it
//! need not wait for one that goes.
//!
//! A [`SyncPlan`] has each change that is known before the first one is made. A sync makes them, and
//! a dry run shows them.

mod cpu;
mod disks;
mod host_devices;
mod interfaces;
mod memory;
mod resize;
mod restart;
mod why;

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use domain::disks::Disk;
use domain::interfaces::InterfaceTarget;

pub use cpu::{Cpus, cpus};
pub use disks::disks;
pub use host_devices::host_devices;
pub use interfaces::{InterfaceChange, InterfacePlan, InterfaceWhy, interfaces, link_updates};
pub use memory::{MemoryChange, memory};
pub use resize::{DiskSize, resizes};
pub use restart::{Needs, RestartField, restart_fields};
pub use why::Why;

/// What is done with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    Detach,
    Attach,
    Update,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A disk to act on.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskChange {
    /// For a detach the live disk, for an attach the wanted one, for an update the live one with
    /// its new medium: what libvirt's call takes, as XML.
    pub disk: Disk,
    pub why: Why,
}

impl DiskChange {
    fn new(disk: &Disk, why: Why) -> Self {
        let disk = disk.clone();
        Self { disk, why }
    }

    fn not_ready(self) -> Self {
        let volume = disks::volume(&self.disk);
        let path = self.disk.source.backend_path().unwrap_or_default().into();
        Self::new(&self.disk, Why::NotReady { volume, path })
    }
}

/// A disk that grows while the guest runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    /// The wanted disk, and why it grows.
    pub change: DiskChange,
    /// How many bytes it grows to; `None` is whatever its device has.
    pub bytes: Option<u64>,
}

/// What to do with the disks of a running domain, see [`disks`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskPlan {
    /// Disks to unplug, first; in the order of the live domain.
    pub detach: Vec<DiskChange>,
    /// Disks to plug in, second; in the order of the wanted domain.
    pub attach: Vec<DiskChange>,
    /// CD-ROMs with another medium, third; in the order of the live domain.
    pub update: Vec<DiskChange>,
    /// Wanted disks that the running domain cannot have now: nothing is done, and the reason is
    /// reported.
    pub deferred: Vec<DiskChange>,
}

impl DiskPlan {
    /// Skips disks and media whose file or device is not ready: missing, or not readable yet. The
    /// disk that has the same volume stays meanwhile: where the volume is may be a wrong guess,
    /// made by a look that failed. The next sync plans them again.
    // D-disk-2 (docs/differences.md).
    #[must_use]
    pub fn defer_unready(mut self, is_ready: impl Fn(&Disk) -> bool) -> Self {
        for changes in [&mut self.attach, &mut self.update] {
            let unready = changes.extract_if(.., |change| {
                change.disk.source.backend().is_some() && !is_ready(&change.disk)
            });
            self.deferred.extend(unready.map(DiskChange::not_ready));
        }
        self.detach.retain(|old| {
            let volume = disks::volume(&old.disk);
            let mut unready = self.deferred.iter();
            !unready.any(|new| disks::volume(&new.disk) == volume)
        });
        self
    }
}

/// A change of the domain itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainStep {
    Start,
    Resume,
    /// `spec.terminationGracePeriodSeconds`, in seconds.
    GracePeriod {
        before: i64,
        after: i64,
    },
}

/// What a sync does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SyncPlan {
    pub domain: Vec<DomainStep>,
    pub disks: DiskPlan,
    /// Disks that grow, in the order of the wanted domain; see [`resizes`].
    pub resizes: Vec<Resize>,
    pub interfaces: InterfacePlan,
    /// What needs a restart; `None` if no domain runs, and in a plan that is carried out.
    pub restart: Option<Vec<RestartField>>,
}

/// A change that a sync makes.
#[derive(Debug, Clone, Copy)]
pub enum PlanStep<'p> {
    Domain(DomainStep),
    Disk(Verb, &'p DiskChange),
    Resize(&'p Resize),
    Interface(Verb, &'p InterfaceChange),
}

impl SyncPlan {
    /// Whether the live domain is as it should be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }

    /// The changes in KubeVirt's order: disks are detached, then attached, then updated; after them
    /// interfaces are attached, then detached, then updated. The grace period comes first here, and
    /// is taken once all is done.
    pub fn steps(&self) -> impl Iterator<Item = PlanStep<'_>> {
        let (disks, interfaces) = (&self.disks, &self.interfaces);
        let disk = |verb| move |change| PlanStep::Disk(verb, change);
        let interface = |verb| move |change| PlanStep::Interface(verb, change);
        let domain = self.domain.iter().copied().map(PlanStep::Domain);
        domain
            .chain(disks.detach.iter().map(disk(Verb::Detach)))
            .chain(disks.attach.iter().map(disk(Verb::Attach)))
            .chain(disks.update.iter().map(disk(Verb::Update)))
            .chain(self.resizes.iter().map(PlanStep::Resize))
            .chain(interfaces.attach.iter().map(interface(Verb::Attach)))
            .chain(interfaces.detach.iter().map(interface(Verb::Detach)))
            .chain(interfaces.update.iter().map(interface(Verb::Update)))
    }

    /// The plan for programs: `{"detach":[…],"attach":[…],"update":[…]}`, lists of `<disk>`
    /// documents; `resize`, a list of targets and sizes; `interfaces`, an object with such lists of
    /// `<interface>` documents; `steps` and `kept`, what is done in which order and what cannot be
    /// done, each with its reason; `restart`, if known, the fields that need a restart.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (disks, interfaces) = (&self.disks, &self.interfaces);
        let disk = |changes: &[DiskChange]| -> Value {
            changes.iter().map(|change| change.disk.to_xml()).collect()
        };
        let interface = |changes: &[InterfaceChange]| -> Value {
            changes.iter().map(|it| it.interface.to_xml()).collect()
        };
        let deferred = interfaces.deferred.iter();
        let deferred = deferred.map(|why| interface_json("cannot", None, why));
        let kept = disks.deferred.iter().map(|it| disk_json("cannot", it));
        let mut plan = json!({
            "detach": disk(&disks.detach),
            "attach": disk(&disks.attach),
            "update": disk(&disks.update),
            "resize": self.resizes.iter().map(resize_json).collect::<Value>(),
            "interfaces": {
                "attach": interface(&interfaces.attach),
                "detach": interface(&interfaces.detach),
                "update": interface(&interfaces.update),
            },
            "steps": self.steps().map(step_json).collect::<Value>(),
            "kept": kept.chain(deferred).collect::<Value>(),
        });
        if let (Some(fields), Some(members)) = (&self.restart, plan.as_object_mut()) {
            members.insert("restart".into(), fields.iter().map(restart_json).collect());
        }
        plan
    }
}

fn step_json(step: PlanStep<'_>) -> Value {
    match step {
        PlanStep::Domain(step) => match step {
            DomainStep::Start => {
                json!({"verb": "start", "why": "the virtual machine has no running domain yet"})
            }
            DomainStep::Resume => {
                json!({"verb": "resume", "why": "the guest is paused, and nobody has asked for that"})
            }
            DomainStep::GracePeriod { before, after } => {
                let why = format!("spec.terminationGracePeriodSeconds: {before} becomes {after}");
                json!({"verb": "update", "why": why})
            }
        },
        PlanStep::Disk(verb, change) => disk_json(verb, change),
        PlanStep::Resize(resize) => disk_json("resize", &resize.change),
        PlanStep::Interface(verb, InterfaceChange { interface, why }) => {
            interface_json(verb, interface.target.as_ref(), why)
        }
    }
}

fn disk_json(verb: impl Serialize, DiskChange { disk, why }: &DiskChange) -> Value {
    let volume = disk.alias.as_ref().map(|alias| &alias.name);
    json!({"verb": verb, "target": disk.target.device, "volume": volume, "why": why.to_string()})
}

fn interface_json(verb: impl Serialize, at: Option<&InterfaceTarget>, why: &InterfaceWhy) -> Value {
    let target = at.map(|target| &target.device);
    json!({"verb": verb, "target": target, "interface": why.name(), "why": why.to_string()})
}

fn resize_json(Resize { change, bytes }: &Resize) -> Value {
    json!({"target": change.disk.target.device, "bytes": bytes})
}

fn restart_json(it: &RestartField) -> Value {
    let (why, needs) = (it.to_string(), it.needs);
    json!({"field": it.field, "before": it.before, "after": it.after, "needs": needs, "why": why})
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::pod_paths::HOTPLUG_DISK_DIR;
    use domain::DomainSpec;

    fn steps(plan: &DiskPlan) -> Vec<(Verb, String)> {
        let plan = SyncPlan {
            disks: plan.clone(),
            ..SyncPlan::default()
        };
        let steps = plan.steps().map(|step| {
            let PlanStep::Disk(verb, change) = step else {
                panic!("{step:?}");
            };
            (verb, change.disk.target.device.clone())
        });
        steps.collect()
    }

    fn plan() -> DiskPlan {
        let disk = |name: &str| {
            format!(
                r#"<disk type="file" device="disk"><source file="/var/run/kubevirt/hotplug-disks/{name}.img"/>
                <target dev="{name}" bus="scsi"/><alias name="ua-{name}"/></disk>"#
            )
        };
        let domain = |disks: &str| {
            DomainSpec::from_xml(&format!("<domain><devices>{disks}</devices></domain>")).unwrap()
        };
        disks(
            &domain(&disk("sda")),
            &domain(&[disk("sdb"), disk("sdc")].concat()),
            HOTPLUG_DISK_DIR,
        )
    }

    #[test]
    fn what_is_not_there_waits_and_the_rest_goes_on() {
        let plan = plan().defer_unready(|disk| disk.target.device != "sdb");
        let expected = [(Verb::Detach, "sda"), (Verb::Attach, "sdc")];
        assert_eq!(steps(&plan), expected.map(|(verb, at)| (verb, at.into())));
        let why: Vec<_> = plan
            .deferred
            .iter()
            .map(|change| change.why.to_string())
            .collect();
        assert_eq!(
            why,
            [
                r#"volume "sdb" has to wait: /var/run/kubevirt/hotplug-disks/sdb.img cannot be opened yet"#
            ]
        );
    }

    #[test]
    // D-disk-2 (docs/differences.md).
    fn a_disk_stays_until_its_volume_can_be_opened_where_it_is_wanted() {
        let disk = |source: &str, target: &str| {
            let xml = format!(
                r#"<domain><devices><disk device="disk"><source {source}/>
                <target dev="{target}" bus="scsi"/><alias name="ua-a"/></disk></devices></domain>"#
            );
            DomainSpec::from_xml(&xml).unwrap()
        };
        let live = disk(r#"dev="/var/run/kubevirt/hotplug-disks/a""#, "sda");
        let file = r#"file="/var/run/kubevirt/hotplug-disks/a.img""#;
        let device = r#"dev="/var/run/kubevirt/hotplug-disks/a""#;
        for (source, target) in [(file, "sda"), (file, "sdb"), (device, "sdb")] {
            let plan = disks(&live, &disk(source, target), HOTPLUG_DISK_DIR);
            assert_eq!(steps(&plan).len(), 2, "{source} {target}");
            let plan = plan.defer_unready(|_| false);
            assert_eq!(steps(&plan), [], "{source} {target}");
            assert_eq!(plan.deferred.len(), 1);
        }
    }

    #[test]
    fn a_hotplugged_disk_is_known_by_the_directory_of_the_flag() {
        let disk = r#"<disk type="file" device="disk"><source file="/root/hotplug/a.img"/>
                <target dev="sda" bus="scsi"/><alias name="ua-a"/></disk>"#;
        let domain = |disks: &str| {
            DomainSpec::from_xml(&format!("<domain><devices>{disks}</devices></domain>")).unwrap()
        };
        let plan = |dir| disks(&domain(""), &domain(disk), dir);
        assert_eq!(plan("/hotplug/").attach.len(), 1);
        assert_eq!(plan("/hotplug").attach.len(), 1);
        for other in ["/hot", "/hotplug/a", HOTPLUG_DISK_DIR] {
            assert_eq!(steps(&plan(other)), [], "{other}");
        }
    }

    #[test]
    fn programs_get_each_step_with_its_reason() {
        let json = SyncPlan {
            disks: plan(),
            ..SyncPlan::default()
        }
        .to_json();
        assert_eq!(json["detach"].as_array().unwrap().len(), 1);
        assert_eq!(
            json["steps"][1],
            json!({"verb": "attach", "target": "sdb", "volume": "sdb", "why": r#"volume "sdb" is new"#})
        );
        assert_eq!((&json["resize"], &json["kept"]), (&json!([]), &json!([])));
    }

    #[test]
    fn programs_get_interfaces_by_name() {
        let interface = |link: &str| {
            format!(
                r#"<domain><devices><interface type="ethernet"><target dev="tap0" managed="no"/>{link}<alias name="ua-blue"/></interface></devices></domain>"#
            )
        };
        let (live, wanted) = (interface(""), interface(r#"<link state="down"/>"#));
        let [live, wanted] = [live, wanted].map(|xml| DomainSpec::from_xml(&xml).unwrap());
        let interfaces = InterfacePlan {
            update: link_updates(&live, &wanted),
            deferred: vec![InterfaceWhy::NotAttached { name: "red".into() }],
            ..InterfacePlan::default()
        };
        let json = SyncPlan {
            interfaces,
            ..SyncPlan::default()
        }
        .to_json();
        let update = json["interfaces"]["update"][0].as_str().unwrap();
        assert!(update.contains(r#"<link state="down"/>"#), "{update}");
        assert_eq!(
            json["steps"],
            json!([{"verb": "update", "target": "tap0", "interface": "blue",
                "why": r#"the link of interface "blue" is to be down"#}])
        );
        assert_eq!(json["kept"][0]["interface"], "red");
    }
}
