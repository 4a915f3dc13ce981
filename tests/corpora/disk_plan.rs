//! Plans of disk changes, against those of the reference for the same two domains.

use std::collections::BTreeMap;

use api::pod_paths::HOTPLUG_DISK_DIR;
use convert::plan::{self, SyncPlan};
use domain::DomainSpec;
use libtest_mimic::Trial;
use serde_json::Value;

use crate::compare::xml::{Node, node_differences, parse};
use crate::corpus::{self, Case, Differences};

pub fn tests() -> Vec<Trial> {
    corpus::tests(
        "disk_plan",
        &["disk-plan/generated.jsonl"],
        |_| true,
        |case| check(case).unwrap_or_else(|e| vec![e]),
    )
}

fn check(case: &Case) -> Result<Differences, String> {
    let domain = |side| DomainSpec::from_xml(case.text(side)).map_err(|e| format!("{side}: {e}"));
    let plan = SyncPlan {
        disks: plan::disks(&domain("live")?, &domain("wanted")?, HOTPLUG_DISK_DIR),
        ..SyncPlan::default()
    };
    let got = plan.to_json();
    let mut found = Vec::new();
    for kind in ["detach", "attach", "update"] {
        let (want, got) = (by_target(&case.value[kind])?, by_target(&got[kind])?);
        for (target, disk) in &want {
            match got.get(target) {
                None => found.push(format!("{kind} {target}: missing")),
                // The live disk itself: which one is what counts.
                Some(_) if kind == "detach" => {}
                Some(got) => found.extend(
                    node_differences(disk, got)
                        .iter()
                        .map(|line| format!("{kind} {target}: {line}")),
                ),
            }
        }
        found.extend(
            got.keys()
                .filter(|target| !want.contains_key(*target))
                .map(|target| format!("{kind} {target}: not wanted")),
        );
    }
    Ok(found)
}

fn by_target(disks: &Value) -> Result<BTreeMap<String, Node>, String> {
    let documents = disks
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    documents
        .map(|text| parse(text).map(|disk| (target(&disk), disk)))
        .collect()
}

fn target(disk: &Node) -> String {
    let target = disk.children.iter().find(|child| child.name == "target");
    target
        .and_then(|node| node.attributes.get("dev"))
        .cloned()
        .unwrap_or_default()
}
