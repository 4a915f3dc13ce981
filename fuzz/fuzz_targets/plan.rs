//! A live domain and a wanted one: `LIVE<NUL>WANTED`. Each plan can be carried out, and a second
//! plan is then empty.
#![no_main]

use std::collections::HashSet;

use api::pod_paths::HOTPLUG_DISK_DIR;
use convert::plan::{self, PlanStep, SyncPlan, Verb};
use domain::DomainSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Some((live, wanted)) = text.split_once('\0') else {
        return;
    };
    let (Ok(mut live), Ok(wanted)) = (DomainSpec::from_xml(live), DomainSpec::from_xml(wanted)) else {
        return;
    };
    let plan = plan_disks(&live, &wanted);
    let _ = plan.to_json();
    // libvirt refuses two disks with one target, so neither a live nor a wanted domain has them.
    if !has_distinct_targets(&live) || !has_distinct_targets(&wanted) {
        return;
    }
    let disks = &mut live.devices.disks;
    for step in plan.steps() {
        let PlanStep::Disk(verb, change) = step else {
            panic!("{step:?} is not a disk's");
        };
        let there = disks
            .iter()
            .position(|disk| disk.target.device == change.disk.target.device);
        match (verb, there) {
            (Verb::Detach, Some(at)) => drop(disks.remove(at)),
            (Verb::Attach, None) => disks.push(change.disk.clone()),
            (Verb::Update, Some(at)) => disks[at] = change.disk.clone(),
            _ => panic!(
                "{verb} {}: {} cannot be done",
                change.disk.target.device, change.why
            ),
        }
    }
    assert!(
        plan_disks(&live, &wanted).is_empty(),
        "a second plan finds more to do"
    );
});

fn plan_disks(live: &DomainSpec, wanted: &DomainSpec) -> SyncPlan {
    SyncPlan {
        disks: plan::disks(live, wanted, HOTPLUG_DISK_DIR),
        ..SyncPlan::default()
    }
}

fn has_distinct_targets(domain: &DomainSpec) -> bool {
    let mut seen = HashSet::new();
    domain
        .devices
        .disks
        .iter()
        .all(|disk| seen.insert(&disk.target.device))
}
