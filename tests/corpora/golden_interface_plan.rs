//! Plans of changes to network interfaces, one directory each:
//! `xml-fixtures/interface-plan/NAME/{live.xml,wanted.xml,vmi.json,plan.txt}`.

use std::fmt::Write as _;
use std::path::Path;

use api::vmi::Vmi;
use convert::plan::{self, InterfaceChange, PlanStep, SyncPlan, Verb};
use domain::DomainSpec;
use libtest_mimic::Trial;

use crate::corpus::Differences;
use crate::golden;

pub fn tests() -> Vec<Trial> {
    golden::tests("interface-plan", check)
}

fn check(directory: &Path) -> Differences {
    let read = |file: &str| golden::read(&directory.join(file));
    let domain = |file| DomainSpec::from_xml(&read(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let (live, wanted) = (domain("live.xml"), domain("wanted.xml"));
    let vmi: Vmi =
        serde_json::from_str(&read("vmi.json")).unwrap_or_else(|e| panic!("vmi.json: {e}"));
    let plan = plan(&live, &wanted, &vmi);
    let mut found = golden::compare(&directory.join("plan.txt"), &text(&plan));
    found.extend(apply(live, &wanted, &vmi, &plan));
    let name = golden::file_name(directory);
    let begins = match (plan.is_empty(), plan.interfaces.deferred.is_empty()) {
        (true, true) => name.starts_with("nothing-"),
        (true, false) => name.starts_with("kept-"),
        (false, _) => !name.starts_with("nothing-") && !name.starts_with("kept-"),
    };
    if !begins {
        found.push("the name says otherwise".to_owned());
    }
    found
}

fn plan(live: &DomainSpec, wanted: &DomainSpec, vmi: &Vmi) -> SyncPlan {
    SyncPlan {
        interfaces: plan::interfaces(live, wanted, vmi),
        ..SyncPlan::default()
    }
}

fn interface_steps(plan: &SyncPlan) -> impl Iterator<Item = (Verb, &InterfaceChange)> {
    plan.steps().map(|step| match step {
        PlanStep::Interface(verb, change) => (verb, change),
        _ => panic!("{step:?}"),
    })
}

/// The plan for a reader: each step with its reason and its document.
fn text(plan: &SyncPlan) -> String {
    let mut out = String::new();
    for (verb, change) in interface_steps(plan) {
        let (name, why) = (change.why.name(), &change.why);
        let document = change.interface.to_xml();
        let _ = writeln!(out, "{verb} {name}: {why}\n{document}");
    }
    for why in &plan.interfaces.deferred {
        let _ = writeln!(out, "keep {}: {why}", why.name());
    }
    if out.is_empty() {
        "nothing to do\n".to_owned()
    } else {
        out
    }
}

/// Does what the plan says, step by step: each has to be possible when its turn comes, and in the
/// end there is nothing left to do.
fn apply(mut live: DomainSpec, wanted: &DomainSpec, vmi: &Vmi, plan: &SyncPlan) -> Differences {
    let mut found = Vec::new();
    for (verb, change) in interface_steps(plan) {
        let (interface, interfaces) = (&change.interface, &mut live.devices.interfaces);
        let there = interfaces
            .iter()
            .position(|other| other.alias == interface.alias);
        match (verb, there) {
            (Verb::Attach, None) => interfaces.push(interface.clone()),
            (Verb::Detach, Some(at)) => drop(interfaces.remove(at)),
            (Verb::Update, Some(at)) => interfaces[at] = interface.clone(),
            _ => found.push(format!("{verb} {}: not possible", change.why.name())),
        }
    }
    let again = self::plan(&live, wanted, vmi);
    if !again.is_empty() {
        found.push(format!("done, there is more to do:\n{}", text(&again)));
    }
    found
}
