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
//! Done in that order, a domain that allows each step is in a valid state after every one of them:
//! a target is free before a disk is attached to it, and a volume has left its old disk before it
//! appears on another.

mod cpu;
mod disks;
mod host_devices;
mod interfaces;
mod memory;
mod resize;
mod restart;
mod why;

use serde_json::{Value, json};

use domain::disks::Disk;

pub use cpu::{Cpus, cpus};
pub use disks::disks;
pub use host_devices::host_devices;
pub use interfaces::{InterfaceChange, InterfacePlan, InterfaceWhy, interfaces, link_updates};
pub use memory::{MemoryChange, memory};
pub use resize::{DiskSize, resizes};
pub use restart::{Needs, RestartField, restart_fields};
pub use why::Why;

/// A disk to act on.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// For a detach the live disk, for an attach the wanted one, for an update the live one with
    /// its new medium: what libvirt's call takes, as XML.
    pub disk: Disk,
    pub why: Why,
}

impl Change {
    fn not_ready(self) -> Self {
        let path = self.disk.source.backend_path().unwrap_or_default().into();
        Self {
            why: Why::NotReady {
                volume: disks::volume(&self.disk),
                path,
            },
            ..self
        }
    }
}

/// A disk that grows while the guest runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    /// The wanted disk, and why it grows.
    pub change: Change,
    pub to: NewSize,
}

/// What a disk grows to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewSize {
    Bytes(u64),
    /// To whatever its device has.
    Device,
}

/// What to do with the disks of a running domain, see [`disks`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskPlan {
    /// Disks to unplug, first; in the order of the live domain.
    pub detach: Vec<Change>,
    /// Disks to plug in, second; in the order of the wanted domain.
    pub attach: Vec<Change>,
    /// CD-ROMs with another medium, third; in the order of the live domain.
    pub update: Vec<Change>,
    /// Disks that grow, last; in the order of the wanted domain. See [`resizes`].
    pub resize: Vec<Resize>,
    /// Wanted disks that the running domain cannot have now: nothing is done, and the reason is
    /// reported.
    pub deferred: Vec<Change>,
}

impl DiskPlan {
    /// Whether the live domain is as it should be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }

    /// Skips disks and media whose file or device is not ready: missing, or not readable yet. The
    /// disk that has the same volume stays meanwhile: where the volume is may be a wrong guess, made
    /// by a look that failed. The next sync plans them again.
    // D-disk-2 (docs/differences.md).
    #[must_use]
    pub fn defer_unready(mut self, is_ready: impl Fn(&Disk) -> bool) -> Self {
        for changes in [&mut self.attach, &mut self.update] {
            let unready = changes.extract_if(.., |change| {
                change.disk.source.backend().is_some() && !is_ready(&change.disk)
            });
            self.deferred.extend(unready.map(Change::not_ready));
        }
        self.detach.retain(|old| {
            let volume = disks::volume(&old.disk);
            let mut unready = self.deferred.iter();
            !unready.any(|new| disks::volume(&new.disk) == volume)
        });
        self
    }

    /// The changes in the order in which they are to be made, each with its verb.
    pub fn steps(&self) -> impl Iterator<Item = (&'static str, &Change)> {
        let lists = [
            ("detach", &self.detach),
            ("attach", &self.attach),
            ("update", &self.update),
        ];
        let resizes = self.resize.iter().map(|resize| ("resize", &resize.change));
        lists
            .into_iter()
            .flat_map(|(verb, changes)| changes.iter().map(move |change| (verb, change)))
            .chain(resizes)
    }
}

/// The plan for programs: `{"detach":[…],"attach":[…],"update":[…]}`, lists of `<disk>` documents;
/// `resize`, a list of targets and sizes; `interfaces`, an object with such lists of `<interface>`
/// documents; `steps` and `kept`, what is done in which order and what cannot be done, each with
/// its reason.
#[must_use]
pub fn to_json(plan: &DiskPlan, interfaces: &InterfacePlan) -> Value {
    let documents = |changes: &[Change]| {
        changes
            .iter()
            .map(|change| change.disk.to_xml())
            .collect::<Vec<_>>()
    };
    let reason = |(verb, Change { disk, why }): (&str, &Change)| {
        let volume = disk.alias.as_ref().map(|alias| &alias.name);
        json!({"verb": verb, "target": disk.target.device, "volume": volume, "why": why.to_string()})
    };
    let steps = plan.steps().map(reason);
    let kept = plan
        .deferred
        .iter()
        .map(|change| reason(("cannot", change)));
    json!({
        "detach": documents(&plan.detach),
        "attach": documents(&plan.attach),
        "update": documents(&plan.update),
        "resize": plan.resize.iter().map(resize).collect::<Vec<_>>(),
        "interfaces": interface_documents(interfaces),
        "steps": steps.chain(interface_steps(interfaces)).collect::<Vec<_>>(),
        "kept": kept.chain(deferred_interfaces(interfaces)).collect::<Vec<_>>(),
    })
}

fn interface_documents(plan: &InterfacePlan) -> Value {
    let documents = |changes: &[InterfaceChange]| {
        let documents = changes.iter().map(|change| change.interface.to_xml());
        documents.collect::<Vec<_>>()
    };
    json!({
        "attach": documents(&plan.attach),
        "detach": documents(&plan.detach),
        "update": documents(&plan.update),
    })
}

fn interface_steps(plan: &InterfacePlan) -> impl Iterator<Item = Value> {
    plan.steps()
        .map(|(verb, InterfaceChange { interface, why })| {
            let target = interface.target.as_ref().map(|target| &target.device);
            json!({"verb": verb, "target": target, "interface": why.name(), "why": why.to_string()})
        })
}

fn deferred_interfaces(plan: &InterfacePlan) -> impl Iterator<Item = Value> {
    plan.deferred.iter().map(|why| {
        json!({"verb": "cannot", "target": null, "interface": why.name(), "why": why.to_string()})
    })
}

/// A device is grown as a whole, whatever its size is by then.
fn resize(Resize { change, to }: &Resize) -> Value {
    let bytes = match to {
        NewSize::Bytes(bytes) => Some(bytes),
        NewSize::Device => None,
    };
    json!({"target": change.disk.target.device, "bytes": bytes})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api::pod_paths::HOTPLUG_DISK_DIR;
    use domain::DomainSpec;

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
        let steps: Vec<_> = plan
            .steps()
            .map(|(verb, change)| (verb, change.disk.target.device.as_str()))
            .collect();
        assert_eq!(steps, [("detach", "sda"), ("attach", "sdc")]);
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
            assert_eq!(plan.steps().count(), 2, "{source} {target}");
            let plan = plan.defer_unready(|_| false);
            assert!(plan.is_empty(), "{source} {target}: {plan:?}");
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
            assert!(plan(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn programs_get_each_step_with_its_reason() {
        let json = to_json(&plan(), &InterfacePlan::default());
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
        let json = to_json(&DiskPlan::default(), &interfaces);
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
