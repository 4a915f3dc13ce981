//! `plan`: what a sync would change on a running domain, and why. A running launcher compares with its domain; or two
//! files are compared here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::convert::read_domain;
use super::target::{Target, VmiTarget};
use crate::error::CtlError;
use crate::files::read_text;
use crate::json::{list_at, push, set, text_at, text_or_dash};
use crate::manifest::{self, in_manifest};
use crate::view::output::{Format, print};
use api::pod_paths::HOTPLUG_DISK_DIR;
use convert::plan::{self, InterfacePlan};
use domain::DomainSpec;
use domain::disks::{Disk, DiskDevice};
use domain::memory::Memory;

/// The domains of `plan --live --wanted` are of two VMs.
#[derive(Debug, thiserror::Error)]
#[error("--live has the {part} {live:?}, and --wanted {wanted:?}: these are two virtual machines")]
struct OtherDomain {
    /// `name` or `uuid`.
    part: &'static str,
    /// In the file of `--live`.
    live: String,
    /// In the file of `--wanted`.
    wanted: String,
}

/// What is said of a plan without a step.
const NOTHING: &str = "nothing to do";

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// VMI or VM manifest to plan for, YAML or JSON, in place of the one that was sent last; with --live the VMI whose
    /// interfaces are plugged and unplugged
    vmi: Option<PathBuf>,
    /// Without a launcher: domain XML as libvirt reports it
    #[arg(long, requires = "wanted", conflicts_with_all = ["name", "root", "socket"])]
    live: Option<PathBuf>,
    /// Without a launcher: domain XML as it should be; its memory, CPUs, disks and the links of interfaces are compared
    #[arg(long, requires = "live")]
    wanted: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// `plan`.
///
/// # Errors
/// If a file is not domain XML, no launcher is found, or it refuses the VMI.
pub async fn plan(args: &PlanArgs, format: Format) -> Result<ExitCode, CtlError> {
    let plan = match (&args.live, &args.wanted) {
        (Some(live), Some(wanted)) => {
            let (live, wanted) = (read_domain(live)?, read_domain(wanted)?);
            check_same_vm(&live, &wanted)?;
            let interfaces = interfaces(&live, &wanted, args.vmi.as_deref())?;
            let mut json =
                plan::to_json(&plan::disks(&live, &wanted, HOTPLUG_DISK_DIR), &interfaces);
            set(&mut json, "/restart", restart_elements(&live, &wanted));
            json
        }
        _ => {
            let target = VmiTarget {
                target: args.target.clone(),
                vmi: args.vmi.clone(),
            };
            let (launcher, client, vmi) = target.connect().await?;
            let mut plan = client.plan(&vmi).await?;
            for field in launcher.restart {
                push(&mut plan, "/restart", field);
            }
            plan
        }
    };
    print(format, &plan, || match table(&plan) {
        lines if lines.is_empty() && args.live.is_some() => vec![format!(
            "{NOTHING}: memory, CPUs, disks and the links of interfaces are compared, and nothing else"
        )],
        lines if lines.is_empty() => vec![NOTHING.to_owned()],
        lines => lines,
    });
    Ok(ExitCode::SUCCESS)
}

/// A plan of two VMs would be about nothing.
fn check_same_vm(live: &DomainSpec, wanted: &DomainSpec) -> Result<(), CtlError> {
    for (part, live, wanted) in [
        ("name", &live.name, &wanted.name),
        ("uuid", &live.uuid, &wanted.uuid),
    ] {
        if !live.is_empty() && !wanted.is_empty() && !live.eq_ignore_ascii_case(wanted) {
            return Err(OtherDomain {
                part,
                live: live.clone(),
                wanted: wanted.clone(),
            }
            .into());
        }
    }
    Ok(())
}

/// The elements that differ and cannot be changed while the guest runs. Without the VMIs, only those that libvirt reports as
/// they were defined are compared: it completes the others.
fn restart_elements(live: &DomainSpec, wanted: &DomainSpec) -> Value {
    let kib = |memory: &Memory| match memory.unit.as_str() {
        "b" | "bytes" => memory.value / 1024,
        "MiB" => memory.value.saturating_mul(1024),
        "GiB" => memory.value.saturating_mul(1024 * 1024),
        _ => memory.value,
    };
    let cpus = |domain: &DomainSpec| domain.vcpu.as_ref().map(|vcpu| vcpu.cpus);
    let (live_cpus, wanted_cpus) = (cpus(live), cpus(wanted));
    let hotplugged = |disk: &Disk| {
        let path = disk.source.backend_path();
        path.is_none_or(|path| path.contains(HOTPLUG_DISK_DIR))
    };
    let targets = |domain: &DomainSpec| -> BTreeSet<String> {
        let disks = domain.devices.disks.iter().filter(|disk| !hotplugged(disk));
        disks.map(|disk| disk.target.device.clone()).collect()
    };
    let (live_disks, wanted_disks) = (targets(live), targets(wanted));
    let mut found = Vec::new();
    let mut add = |field: String, why: String| {
        found.push(json!({"field": field, "needs": "restart", "why": format!("needs a restart: {field}{why}")}));
    };
    if kib(&live.memory) != kib(&wanted.memory) {
        let why = format!(
            ": {} KiB becomes {} KiB",
            kib(&live.memory),
            kib(&wanted.memory)
        );
        add("memory".into(), why);
    }
    if let (Some(live), Some(wanted)) = (live_cpus, wanted_cpus)
        && live != wanted
    {
        add("vcpu".into(), format!(": {live} becomes {wanted}"));
    }
    for target in live_disks.difference(&wanted_disks) {
        add(
            format!("disk {target}"),
            " goes, and is not a hotplugged one".into(),
        );
    }
    for target in wanted_disks.difference(&live_disks) {
        add(
            format!("disk {target}"),
            " is new, and is not a hotplugged one".into(),
        );
    }
    let wanted_at = |target: &str| {
        let mut disks = wanted.devices.disks.iter();
        disks.find(|disk| disk.target.device == target)
    };
    for disk in live.devices.disks.iter().filter(|disk| !hotplugged(disk)) {
        let target = &disk.target.device;
        if let Some(changed) = wanted_at(target).and_then(|new| disk_change(disk, new)) {
            add(format!("disk {target}"), changed);
        }
    }
    Value::from(found)
}

/// How a disk that stays at its target differs in what cannot be changed while the guest runs.
fn disk_change(live: &Disk, wanted: &Disk) -> Option<String> {
    // One of them may be below the root of a VM of `run`.
    let is_same = |live: &str, wanted: &str| live.ends_with(wanted) || wanted.ends_with(live);
    let change = |what: &str, live: &str, wanted: &str| {
        Some(format!(": {what} {live:?} becomes {wanted:?}"))
    };
    if live.serial != wanted.serial {
        return change("serial", &live.serial, &wanted.serial);
    }
    match (live.source.backend_path(), wanted.source.backend_path()) {
        // The medium of a CD-ROM is changed by a step.
        (Some(live_path), Some(wanted_path))
            if live.device != DiskDevice::CdRom && !is_same(live_path, wanted_path) =>
        {
            change("source", live_path, wanted_path)
        }
        _ => None,
    }
}

/// Which interfaces come and go depends on the VMI's status; the state of a link does not.
fn interfaces(
    live: &DomainSpec,
    wanted: &DomainSpec,
    vmi: Option<&Path>,
) -> Result<InterfacePlan, CtlError> {
    match vmi {
        Some(path) => {
            let vmi = manifest::read_offline(&read_text(path)?, true);
            let (_, vmi) = vmi.map_err(in_manifest(path))?;
            Ok(plan::interfaces(live, wanted, &vmi))
        }
        None => Ok(InterfacePlan {
            update: plan::link_updates(live, wanted),
            ..InterfacePlan::default()
        }),
    }
}

/// A step, or a device that is kept: what is done to which, and why.
#[must_use]
pub fn step_line(step: &Value) -> String {
    let is_interface = step.get("interface").is_some();
    let name = if is_interface {
        "/interface"
    } else {
        "/volume"
    };
    format!(
        "{:<7} {:<6} {:<20} {}",
        text_or_dash(step, "/verb"),
        text_or_dash(step, "/target"),
        text_or_dash(step, name),
        text_or_dash(step, "/why")
    )
}

/// A line for each step, for each device that cannot be changed now, and for each field that needs a restart.
fn table(plan: &Value) -> Vec<String> {
    let lists = ["steps", "kept"]
        .into_iter()
        .filter_map(|list| plan[list].as_array());
    let restart = list_at(plan, "/restart").iter();
    let restart = restart.map(|field| text_at(field, "/why").to_owned());
    lists.flatten().map(step_line).chain(restart).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn domain(name: &str, inner: &str) -> DomainSpec {
        DomainSpec::from_xml(&format!(
            "<domain type='kvm'><name>{name}</name>{inner}</domain>"
        ))
        .unwrap()
    }

    #[test]
    fn two_vms_are_not_compared() {
        let error = check_same_vm(&domain("a", ""), &domain("b", "")).unwrap_err();
        assert!(error.to_string().contains("\"a\""), "{error}");
        check_same_vm(&domain("a", ""), &domain("a", "")).unwrap();
    }

    #[test]
    fn what_needs_a_restart_is_found_in_the_files_too() {
        let live = domain(
            "a",
            "<memory unit='KiB'>262144</memory><vcpu>1</vcpu><devices><disk type='file' device='disk'>\
             <source file='/x'/><target dev='vda' bus='virtio'/></disk></devices>",
        );
        let wanted = domain("a", "<memory unit='b'>1073741824</memory><vcpu>1</vcpu>");
        let found = restart_elements(&live, &wanted);
        let plan = json!({"steps": [], "kept": [], "restart": found});
        assert_eq!(
            table(&plan),
            [
                "needs a restart: memory: 262144 KiB becomes 1048576 KiB",
                "needs a restart: disk vda goes, and is not a hotplugged one"
            ]
        );
        assert_eq!(restart_elements(&live, &live), json!([]));
    }

    #[test]
    fn another_serial_or_source_of_a_disk_needs_a_restart() {
        let with_disk = |inner: &str| {
            domain(
                "a",
                &format!(
                    "<devices><disk type='file' device='disk'>{inner}<target dev='vda' bus='virtio'/></disk></devices>"
                ),
            )
        };
        let live = with_disk("<source file='/root/vm/x'/><serial>A</serial>");
        let why = |inner: &str| {
            let found = restart_elements(&live, &with_disk(inner));
            text_at(&found, "/0/why").to_owned()
        };
        assert_eq!(
            why("<source file='/root/vm/x'/><serial>B</serial>"),
            "needs a restart: disk vda: serial \"A\" becomes \"B\""
        );
        assert_eq!(
            why("<source file='/y'/><serial>A</serial>"),
            "needs a restart: disk vda: source \"/root/vm/x\" becomes \"/y\""
        );
        // The same file, below the root of the VM.
        assert_eq!(why("<source file='/vm/x'/><serial>A</serial>"), "");
    }
}
