//! `plan`: what a sync would change on a running domain, and why. A running launcher compares with its domain; or two
//! files are compared here.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::convert::read_domain;
use super::error::CtlError;
use super::json::text_or_dash;
use super::output::{Format, print};
use super::target::{Target, VmiTarget};
use api::pod_paths::HOTPLUG_DISK_DIR;
use convert::plan;

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// VMI or VM manifest to plan for, YAML or JSON, in place of the one that was sent last
    #[arg(conflicts_with_all = ["live", "wanted"])]
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
            plan::to_json(&plan::disks(&live, &wanted, HOTPLUG_DISK_DIR))
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

/// A line for each step, and for each disk that cannot be changed now.
fn table(plan: &Value) -> String {
    let lists = ["steps", "kept"]
        .into_iter()
        .filter_map(|list| plan[list].as_array());
    let line = |step: &Value| {
        format!(
            "{:<7} {:<6} {:<20} {}",
            text_or_dash(step, "/verb"),
            text_or_dash(step, "/target"),
            text_or_dash(step, "/volume"),
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
