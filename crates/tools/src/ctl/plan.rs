//! `plan`: what a sync would change on a running domain, and why. Asked of a running launcher, which looks at its
//! domain; or worked out here from two files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::client::{self, show};
use super::offline::read_text;
use super::{CtlError, Output, Target, VmiCall};
use api::pod_paths::HOTPLUG_DISK_DIR;
use convert::plan;
use domain::DomainSpec;

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
/// If a file is no domain XML, no launcher is found, or it refuses the VMI.
pub async fn plan(args: PlanArgs, output: Output) -> Result<ExitCode, CtlError> {
    let plan = match (&args.live, &args.wanted) {
        (Some(live), Some(wanted)) => {
            let (live, wanted) = (read_domain(live)?, read_domain(wanted)?);
            plan::to_json(&plan::disks(&live, &wanted, HOTPLUG_DISK_DIR))
        }
        _ => {
            let (client, vmi) = client::with_vmi(&VmiCall {
                target: args.target,
                vmi: args.vmi,
            })
            .await?;
            client.plan(&vmi).await?
        }
    };
    show(output, &plan, || table(&plan));
    Ok(ExitCode::SUCCESS)
}

pub(super) fn read_domain(file: &Path) -> Result<DomainSpec, CtlError> {
    DomainSpec::from_xml(&read_text(file)?).map_err(|source| CtlError::Xml {
        file: super::error::name_of(file),
        source,
    })
}

/// A line for each step, and for each disk that has to wait.
fn table(plan: &Value) -> String {
    let lists = ["steps", "kept"]
        .into_iter()
        .filter_map(|list| plan[list].as_array());
    let line = |step: &Value| {
        let part = |key: &str| step[key].as_str().unwrap_or("-").to_owned();
        format!(
            "{:<7} {:<6} {:<20} {}",
            part("verb"),
            part("target"),
            part("volume"),
            part("why")
        )
    };
    let lines: Vec<String> = lists.flatten().map(line).collect();
    if lines.is_empty() {
        "nothing to do".to_owned()
    } else {
        lines.join("\n")
    }
}
