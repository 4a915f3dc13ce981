//! Plans of disk changes, one directory each:
//! `xml-fixtures/plan/NAME/{live.xml,wanted.xml,plan.txt}`.

use std::fmt::Write as _;
use std::path::Path;

use api::pod_paths::HOTPLUG_DISK_DIR;
use convert::plan::{self, DiskChange, PlanStep, SyncPlan, Verb};
use domain::DomainSpec;
use domain::disks::Disk;
use libtest_mimic::Trial;

use crate::corpus::Differences;
use crate::golden;

pub fn tests() -> Vec<Trial> {
    golden::tests("plan", check)
}

fn check(directory: &Path) -> Differences {
    let domain = |file: &str| {
        DomainSpec::from_xml(&golden::read(&directory.join(file)))
            .unwrap_or_else(|e| panic!("{file}: {e}"))
    };
    let (live, wanted) = (domain("live.xml"), domain("wanted.xml"));
    let plan = plan(&live, &wanted);
    let mut found = golden::compare(&directory.join("plan.txt"), &text(&plan));
    found.extend(apply(live, &wanted, &plan));
    let name = golden::file_name(directory);
    if name.starts_with("nothing-") != plan.is_empty() && !name.starts_with("kept-") {
        found.push("the name says otherwise".to_owned());
    }
    found
}

fn plan(live: &DomainSpec, wanted: &DomainSpec) -> SyncPlan {
    SyncPlan {
        disks: plan::disks(live, wanted, HOTPLUG_DISK_DIR),
        ..SyncPlan::default()
    }
}

fn disk_steps(plan: &SyncPlan) -> impl Iterator<Item = (Verb, &DiskChange)> {
    plan.steps().map(|step| match step {
        PlanStep::Disk(verb, change) => (verb, change),
        _ => panic!("{step:?}"),
    })
}

/// The plan for a reader: each step with its reason and its document.
fn text(plan: &SyncPlan) -> String {
    let mut out = String::new();
    for (verb, change) in disk_steps(plan) {
        let _ = writeln!(
            out,
            "{verb} {}: {}\n{}",
            change.disk.target.device,
            change.why,
            change.disk.to_xml()
        );
    }
    for change in &plan.disks.deferred {
        let _ = writeln!(out, "keep {}: {}", change.disk.target.device, change.why);
    }
    if out.is_empty() {
        "nothing to do\n".to_owned()
    } else {
        out
    }
}

/// Does what the plan says, step by step: each has to be possible when its turn comes, and in the
/// end there is nothing left to do.
fn apply(mut live: DomainSpec, wanted: &DomainSpec, plan: &SyncPlan) -> Differences {
    let mut found = Vec::new();
    for (verb, change) in disk_steps(plan) {
        let (disk, disks) = (&change.disk, &mut live.devices.disks);
        let there = disks
            .iter()
            .position(|other| other.target.device == disk.target.device);
        match (verb, there) {
            (Verb::Detach, Some(at)) => drop(disks.remove(at)),
            (Verb::Attach, None) => {
                if let Some(other) = disks.iter().find(|other| clashes(other, disk)) {
                    found.push(format!(
                        "attach {}: its volume is still at {}",
                        disk.target.device, other.target.device
                    ));
                }
                disks.push(disk.clone());
            }
            (Verb::Update, Some(at)) => disks[at] = disk.clone(),
            _ => found.push(format!(
                "{verb} {}: not possible when its turn comes",
                disk.target.device
            )),
        }
    }
    let again = self::plan(&live, wanted);
    if !again.is_empty() {
        found.push(format!("done, there is more to do:\n{}", text(&again)));
    }
    found
}

fn clashes(one: &Disk, other: &Disk) -> bool {
    (one.alias.is_some() && one.alias == other.alias)
        || (one.source.backend().is_some()
            && one.source.backend_path() == other.source.backend_path())
}
