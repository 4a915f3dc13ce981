//! `hooks try`: calls one sidecar with a VMI, without a launcher.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use prost::bytes::Bytes;
use serde_json::json;

use super::{cloud_init, show, socket_dir, temporary_dirs, until_signal};
use crate::error::{CtlError, TextError, text_error};
use crate::host::sidecar_program::SidecarProgram;
use crate::manifest::{in_manifest, other_documents};
use crate::verbs::convert::read;
use crate::view::output::{Format, below_first, print};
use hooks::conformance::CloudInit;
use hooks::dry_run::{CloudInitDryRun, DryRun, DryRunInput, dry_run, dry_run_program};
use hooks::plugin_dry_run::{PluginInput, dry_run_plugin, dry_run_plugin_program};
use hooks::{Changes, HookPoint};

/// virt-handler's limit of a whole sync.
const HOOK_TIMEOUT: Duration = Duration::from_secs(20);

/// Arguments of `hooks try`.
#[derive(Debug, Args)]
pub struct TryArgs {
    /// VMI or VM manifest that the sidecar gets, YAML or JSON; `-` is standard input
    #[arg(long, value_name = "FILE")]
    vmi: PathBuf,
    /// The sidecar: the socket of one that runs, or what hooks check takes, which is started: a
    /// script (for onDefineDomain, unless it is named preCloudInitIso), a directory with either, or
    /// "./watchdog {}", which serves gRPC itself on a socket in the directory {}
    #[arg(long, value_name = "PROGRAM")]
    sidecar: String,
    /// The sidecar is a plugin's: it serves LauncherHookService; a program needs {}
    #[arg(long)]
    plugin: bool,
    /// Show what the shim of a script prints, too
    #[arg(short, long)]
    verbose: bool,
}

/// `hooks try`: exit status 1 for a sidecar that is not idempotent, lacks a Secret or sets what
/// libvirt or KubeVirt ignores, and for a plugin that is refused at a point or serves none.
///
/// # Errors
/// The VMI is unreadable, or the sidecar does not start, or fails.
pub async fn run(args: &TryArgs, format: Format) -> Result<ExitCode, CtlError> {
    let (text, value, vmi, context) = read(&args.vmi, None)?;
    let documents = other_documents(&text).map_err(in_manifest(&args.vmi))?;
    let (sockets, links) = temporary_dirs(&value, &documents)?;
    let (socket_dir, plugin) = socket_dir(sockets.path(), args.plugin.then_some(&vmi))?;
    let running = Path::new(&args.sidecar);
    let mut program = None;
    if !is_socket(running) {
        let sidecar = SidecarProgram::parse(&args.sidecar, args.plugin)?;
        let command = program.insert(sidecar.command(&socket_dir, links.path())?);
        // A shim's log is for its developers; an error has what its script prints.
        show(command, args.verbose || !sidecar.has_shim());
    }
    let vmi_json = Bytes::from(value.to_string());
    let domain_xml = convert::domain(&vmi, &context)?.to_xml();
    if let Some(pod) = plugin {
        let input = PluginInput {
            vmi_json,
            domain_xml,
            pod,
        };
        let tried = match program {
            None => until_signal(dry_run_plugin(running, input, HOOK_TIMEOUT)).await??,
            Some(it) => until_signal(dry_run_plugin_program(it, input, HOOK_TIMEOUT)).await??,
        };
        print(format, &json!(tried), || tried.lines());
        return Ok(ExitCode::from(u8::from(!tried.passed())));
    }
    let data = cloud_init(&links, &vmi)?;
    let needs_secret = matches!(data, CloudInit::NeedsSecret);
    let cloud_init = match data {
        CloudInit::Data(data) => Some(data),
        _ => None,
    };
    let input = DryRunInput {
        domain_xml,
        vmi_json,
        cloud_init,
    };
    let tried = match program {
        None => until_signal(dry_run(running, input, os::time::deadline(HOOK_TIMEOUT))).await??,
        Some(program) => {
            let trial = dry_run_program(program, socket_dir, input, HOOK_TIMEOUT);
            until_signal(trial).await??
        }
    };
    let new = tried.cloud_init.as_ref().map(|tried| &tried.data);
    if let Some(data) = new {
        // The launcher makes its image of it.
        serde_json::from_value::<pod::CloudInitData>(data.clone()).map_err(unusable)?;
    }
    print(format, &tried.to_json(), || summary(&tried, needs_secret));
    // A launcher may call a sidecar with its own result, so a script should notice one that is not
    // idempotent.
    let was_left_out = needs_secret && tried.points.contains(&HookPoint::PreCloudInitIso);
    let is_ignored = |it: &CloudInitDryRun| !it.unknown.is_empty();
    let is_sound = tried.is_idempotent()
        && tried.ignored.is_empty()
        && !was_left_out
        && !tried.cloud_init.as_ref().is_some_and(is_ignored);
    Ok(ExitCode::from(u8::from(!is_sound)))
}

fn unusable(error: serde_json::Error) -> TextError {
    text_error!("the sidecar's cloud-init data has a field that cannot be used").caused_by(error)
}

fn is_socket(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// `needs_secret`: there were no cloud-init data, as a Secret is missing.
fn summary(tried: &DryRun, needs_secret: bool) -> Vec<String> {
    let list = |prefix: &str, changes: &Changes| -> Vec<String> {
        let shown = changes.list.iter().map(ToString::to_string);
        let shown = shown.chain(changes.more.then(|| "and more".to_owned()));
        shown.map(|change| format!("  {prefix}{change}")).collect()
    };
    let why = match needs_secret {
        true => {
            "the cloud-init data need a Secret; put it beside the VM in its file, with its keys"
        }
        false => "the VMI has no cloud-init volume",
    };
    let mut lines = vec![tried.sidecar.clone()];
    if tried.points.contains(&HookPoint::OnDefineDomain) {
        lines.extend(list("", &tried.changes));
        if tried.changes.is_empty() {
            lines.push("  changes nothing of the domain".to_owned());
        }
    }
    match &tried.cloud_init {
        Some(tried) if tried.changes.is_empty() => {
            lines.push("  changes nothing of the cloud-init data, such as its UserData".to_owned());
        }
        Some(tried) => lines.extend(list("cloud-init data: ", &tried.changes)),
        None if tried.points.contains(&HookPoint::PreCloudInitIso) => {
            lines.push(format!("  PreCloudInitIso was not called: {why}"));
        }
        None => {}
    }
    if lines.len() == 1 {
        lines.push(
            "  changes nothing: it has neither OnDefineDomain nor PreCloudInitIso".to_owned(),
        );
    }
    for name in tried.cloud_init.iter().flat_map(|tried| &tried.unknown) {
        lines.push(format!(
            "KubeVirt ignores {name} of the cloud-init data: it has no such name"
        ));
    }
    for element in &tried.ignored {
        lines.push(format!("libvirt ignores {element}"));
    }
    match &tried.second {
        Ok(changes) if changes.is_empty() => {}
        Ok(changes) => {
            lines.push("it is not idempotent; given its own result it changes".to_owned());
            lines.extend(list("", changes));
        }
        Err(error) => {
            let text = format!("it is not idempotent; given its own result it fails: {error}");
            lines.extend(below_first(text.lines()));
        }
    }
    lines
}
