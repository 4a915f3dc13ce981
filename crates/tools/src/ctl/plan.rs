//! `plan`: what a sync would change on a running domain, and why. A running launcher compares with its domain; or two
//! files are compared here.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::convert::read_domain;
use super::error::CtlError;
use super::files::read_text;
use super::json::text_or_dash;
use super::manifest;
use super::output::{Format, print};
use super::target::{Target, VmiTarget};
use api::pod_paths::HOTPLUG_DISK_DIR;
use convert::plan::{self, InterfacePlan};
use domain::DomainSpec;

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// VMI or VM manifest to plan for, YAML or JSON, in place of the one that was sent last; with --live the VMI whose
    /// interfaces are plugged and unplugged
    vmi: Option<PathBuf>,
    /// Without a launcher: domain XML as libvirt reports it
    #[arg(long, requires = "wanted", conflicts_with_all = ["name", "root", "socket"])]
    live: Option<PathBuf>,
    /// Without a launcher: domain XML as it should be
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
            let interfaces = interfaces(&live, &wanted, args.vmi.as_deref())?;
            plan::to_json(&plan::disks(&live, &wanted, HOTPLUG_DISK_DIR), &interfaces)
        }
        _ => {
            let target = VmiTarget {
                target: args.target.clone(),
                vmi: args.vmi.clone(),
            };
            let (_, client, vmi) = target.connect().await?;
            client.plan(&vmi).await?
        }
    };
    print(format, &plan, || table(&plan));
    Ok(ExitCode::SUCCESS)
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
            let (_, vmi) = vmi.map_err(CtlError::manifest(path))?;
            Ok(plan::interfaces(live, wanted, &vmi))
        }
        None => Ok(InterfacePlan {
            update: plan::link_updates(live, wanted),
            ..InterfacePlan::default()
        }),
    }
}

/// A line for each step, and for each device that cannot be changed now.
fn table(plan: &Value) -> String {
    let lists = ["steps", "kept"]
        .into_iter()
        .filter_map(|list| plan[list].as_array());
    let line = |step: &Value| {
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
    };
    let lines: Vec<String> = lists.flatten().map(line).collect();
    if lines.is_empty() {
        "nothing to do".to_owned()
    } else {
        lines.join("\n")
    }
}
