//! Plans of disk changes, one directory a case: `xml-fixtures/plan/NAME/{live.xml,wanted.xml,plan.txt}`.
//! `BLESS=1 cargo test --test golden_plan` writes the plans anew; look at the difference then.

#![allow(clippy::expect_used, reason = "a test ends this way")]

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use api::pod_paths::HOTPLUG_DISK_DIR;
use common::{Case, Differences};
use convert::plan::{self, DiskPlan};
use domain::DomainSpec;
use domain::disks::Disk;
use serde_json::Value;

fn main() -> ExitCode {
    let bless = std::env::var_os("BLESS").is_some();
    common::run("golden plans", Some(cases()), |case| {
        check(case, bless).unwrap_or_else(|e| vec![e])
    })
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("xml-fixtures/plan")
}

fn cases() -> Vec<Case> {
    let entries =
        std::fs::read_dir(directory()).expect("xml-fixtures/plan is part of the repository");
    let directories = entries.filter_map(|entry| entry.ok().filter(|entry| entry.path().is_dir()));
    let mut names: Vec<String> = directories
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| Case {
            name,
            value: Value::Null,
        })
        .collect()
}

fn check(case: &Case, bless: bool) -> Result<Differences, String> {
    let directory = directory().join(&case.name);
    let read = |file: &str| {
        std::fs::read_to_string(directory.join(file))
            .map_err(|e| format!("{}/{file}: {e}", case.name))
    };
    let domain = |file: &str| {
        DomainSpec::from_xml(&read(file)?).map_err(|e| format!("{}/{file}: {e}", case.name))
    };
    let (live, wanted) = (domain("live.xml")?, domain("wanted.xml")?);
    let plan = plan::disks(&live, &wanted, HOTPLUG_DISK_DIR);
    let got = text(&plan);
    if bless {
        std::fs::write(directory.join("plan.txt"), &got).map_err(|e| e.to_string())?;
    }
    let want = read("plan.txt")?;
    let mut found = apply(live, &wanted, &plan);
    found.extend(first_difference(&want, &got));
    if case.name.starts_with("nothing-") != plan.is_empty() && !case.name.starts_with("kept-") {
        found.push("the name says otherwise".to_owned());
    }
    Ok(found)
}

/// The plan for a reader: each step with its reason and its document.
fn text(plan: &DiskPlan) -> String {
    let mut out = String::new();
    for (verb, change) in plan.steps() {
        let _ = writeln!(
            out,
            "{verb} {}: {}\n{}",
            change.disk.target.device,
            change.why,
            change.disk.to_xml()
        );
    }
    for change in &plan.deferred {
        let _ = writeln!(out, "keep {}: {}", change.disk.target.device, change.why);
    }
    if out.is_empty() {
        "nothing to do\n".to_owned()
    } else {
        out
    }
}

fn first_difference(want: &str, got: &str) -> Option<String> {
    let line = want
        .lines()
        .zip(got.lines())
        .position(|(want, got)| want != got)
        .unwrap_or(want.lines().count().min(got.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("the end").to_owned();
    (want != got).then(|| {
        format!(
            "plan.txt line {}: {:?}, got {:?}",
            line + 1,
            at(want),
            at(got)
        )
    })
}

/// Does what the plan says, step by step: each has to be possible when its turn comes, and in the
/// end there is nothing left to do.
fn apply(mut live: DomainSpec, wanted: &DomainSpec, plan: &DiskPlan) -> Differences {
    let mut found = Vec::new();
    for (verb, change) in plan.steps() {
        let (disk, disks) = (&change.disk, &mut live.devices.disks);
        let there = disks
            .iter()
            .position(|other| other.target.device == disk.target.device);
        match (verb, there) {
            ("detach", Some(at)) => drop(disks.remove(at)),
            ("attach", None) => {
                if let Some(other) = disks.iter().find(|other| clashes(other, disk)) {
                    found.push(format!(
                        "attach {}: its volume is still at {}",
                        disk.target.device, other.target.device
                    ));
                }
                disks.push(disk.clone());
            }
            ("update", Some(at)) => disks[at] = disk.clone(),
            _ => found.push(format!(
                "{verb} {}: not possible when its turn comes",
                disk.target.device
            )),
        }
    }
    let again = plan::disks(&live, wanted, HOTPLUG_DISK_DIR);
    if !again.is_empty() {
        found.push(format!("done, there is more to do:\n{}", text(&again)));
    }
    found
}

fn clashes(one: &Disk, other: &Disk) -> bool {
    (one.alias.is_some() && one.alias == other.alias)
        || (one.source.backend().is_some() && one.source.backend() == other.source.backend())
}
