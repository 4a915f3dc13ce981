//! The hook sidecars of a VM of `run`. In a cluster the kubelet runs their images; here a program
//! or directory on this machine replaces each.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use rustix::process::Pid;
use serde_json::Value;
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::processes::terminate;
use super::sidecar_program::SidecarProgram;
use super::vm_dir::VmDir;
use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{FileError, create_private};
use crate::manifest::hook_sidecars::{self, HookSidecar};
use crate::view::output::counted;
use api::pod_paths::HOOKS_DIR;
use api::vmi::HOOK_SIDECARS;
use os::process::Process;

/// How much of the end of a sidecar's log an error may have.
const MAX_SHOWN_BYTES: u64 = 500;
/// Limit for a sidecar to exit when asked.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of `run` for hook sidecars.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct SidecarArgs {
    /// Take this for the next hook sidecar of the VMI: a script (for onDefineDomain, unless it is
    /// named preCloudInitIso), a directory or image tree with onDefineDomain or preCloudInitIso, or
    /// "PROGRAM {}" that serves gRPC on a socket in the directory {}
    #[arg(long = "sidecar", value_name = "PROGRAM|DIR")]
    programs: Vec<String>,
    /// Run the VM without the hook sidecars that its VMI asks for
    #[arg(long, conflicts_with = "programs")]
    no_sidecars: bool,
}

/// The programs to start for the VMI's sidecars: those given, for all or only for those without a
/// ConfigMap, and the scripts of ConfigMaps.
///
/// # Errors
/// The VMI asks for other sidecars than programs are given for.
pub fn programs(vmi: &Value, args: &SidecarArgs) -> Result<Vec<SidecarProgram>, CtlError> {
    let wanted = wanted(vmi)?;
    let mut given = args.programs.iter();
    if args.no_sidecars || wanted.is_empty() {
        return given
            .map(|text| SidecarProgram::parse(text, false))
            .collect();
    }
    // A ConfigMap's script needs none.
    let images = wanted.iter().filter(|it| it.config_map.is_none()).count();
    let count = given.len();
    if count != images {
        let of_image = wanted.iter().filter(|it| it.config_map.is_none());
        let names = of_image.map(|it| match &*it.image {
            "" => "the shim's own image",
            image => image,
        });
        fail!(
            "the VMI has {} ({}), and --sidecar gives {count}; only a cluster runs images: give a program or an image's directory for each with --sidecar, or leave all out with --no-sidecars",
            counted(images, "hook sidecar"),
            names.collect::<Vec<_>>().join(", ")
        );
    }
    let program = |(number, sidecar): (usize, &HookSidecar)| {
        let mut program = match &sidecar.config_map {
            Some(script) => SidecarProgram::of_config_map(number, script),
            None => SidecarProgram::parse(given.next().map_or("", String::as_str), false)?,
        };
        program.version = sidecar.version().unwrap_or(program.version);
        Ok(program)
    };
    wanted.iter().enumerate().map(program).collect()
}

fn wanted(vmi: &Value) -> Result<Vec<HookSidecar>, TextError> {
    hook_sidecars::of_annotation(hook_sidecars::annotation(vmi))
        .map_err(|problem| text_error!("metadata.annotations[{HOOK_SIDECARS}]: {problem}"))
}

/// Starts a VM's sidecars, each with its own directory for its socket. `sidecar-N.log` in the VM's
/// directory has their output.
///
/// # Errors
/// One cannot be started.
pub fn start(programs: &[SidecarProgram], dir: &VmDir) -> Result<Vec<Child>, CtlError> {
    let mut children = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        let sockets = dir.path(&format!("{HOOKS_DIR}/hook-sidecar-{number}"));
        let links = dir.path(&format!("/sidecar-{number}"));
        for path in [&sockets, &links] {
            // A killed sidecar's socket would be taken for this one's.
            let _ = fs::remove_dir_all(path);
            fs::create_dir_all(path).map_err(FileError::on("make", path))?;
        }
        let log = create_private(&dir.path(&format!("/sidecar-{number}.log")))?;
        let child = program
            .command(&sockets, &links)?
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C on the terminal must not reach them.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(FileError::on("start", format!("sidecar {number}")))?;
        children.push(child);
    }
    Ok(children)
}

/// Waits for the first one that ends, which no sidecar does before its VM. Returns the error, with
/// the end of its log.
pub async fn ended(sidecars: &mut [Child], dir: &VmDir) -> TextError {
    let mut ends = JoinSet::new();
    for (number, child) in sidecars.iter().enumerate() {
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(process) = pid.and_then(|pid| Process::open(pid).ok()) {
            ends.spawn(async move {
                process.ended().await;
                number
            });
        }
    }
    let Some(Ok(number)) = ends.join_next().await else {
        return std::future::pending().await;
    };
    let status = sidecars.get_mut(number).map(Child::try_wait);
    let status = status.and_then(|status| status.ok()?).unwrap_or_default();
    let log = dir.path(&format!("/sidecar-{number}.log"));
    let end = os::small_file::tail(&log, MAX_SHOWN_BYTES).unwrap_or_default();
    let end = String::from_utf8_lossy(&end);
    let last = end.trim_end().lines().next_back().unwrap_or_default();
    text_error!(
        "hook sidecar {number} ended before it was called ({status}): {last}; {} has what it printed",
        log.display()
    )
}

/// Ends those that have not ended with their VM.
pub async fn stop(sidecars: Vec<Child>) {
    for mut child in sidecars {
        terminate(&child);
        if timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vmi(annotation: &str) -> Value {
        json!({"metadata": {"annotations": {HOOK_SIDECARS: annotation}}})
    }

    #[test]
    fn sidecars_that_nothing_stands_for_are_refused_by_their_images() {
        let two = vmi(r#"[{"image": "a/smbios"}, {"image": "b/watchdog"}]"#);
        let error = programs(&two, &SidecarArgs::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("2 hook sidecars (a/smbios, b/watchdog)") && text.contains("--sidecar"),
            "{text}"
        );
        let without = SidecarArgs {
            no_sidecars: true,
            ..SidecarArgs::default()
        };
        assert_eq!(programs(&two, &without).unwrap(), []);
        assert_eq!(programs(&json!({}), &SidecarArgs::default()).unwrap(), []);
        let invalid = programs(&vmi("x"), &SidecarArgs::default()).unwrap_err();
        let text = "metadata.annotations[hooks.kubevirt.io/hookSidecars]: not a JSON list of hook sidecars: ";
        assert!(invalid.to_string().starts_with(text), "{invalid}");
    }

    #[tokio::test]
    async fn a_sidecar_that_ends_is_named_with_what_it_said_last() {
        let root = tempfile::tempdir().unwrap();
        let dir = VmDir::at(root.path().to_owned());
        let args = SidecarArgs {
            programs: vec!["/bin/cat /nonexistent {}".to_owned()],
            ..SidecarArgs::default()
        };
        let silent = SidecarArgs {
            programs: vec!["/bin/false {}".to_owned()],
            ..SidecarArgs::default()
        };
        let mut errors = Vec::new();
        for args in [args, silent] {
            let mut sidecars = start(&programs(&json!({}), &args).unwrap(), &dir).unwrap();
            errors.push(ended(&mut sidecars, &dir).await.to_string());
        }
        let ended = "hook sidecar 0 ended before it was called (exit status: 1)";
        assert!(
            errors[0].starts_with(&format!("{ended}: ")) && errors[0].contains("sidecar-0.log"),
            "{errors:?}"
        );
        assert!(errors[1].starts_with(ended), "{errors:?}");
    }

    #[test]
    fn a_script_of_a_config_map_needs_no_program() {
        let script = r#"{"args": ["--version", "v1alpha2"], "configMap": {"name": "a", "key": "b.sh", "hookPath": "/usr/bin/onDefineDomain"}}"#;
        let both = vmi(&format!(r#"[{script}, {{"image": "a/smbios"}}]"#));
        let args = SidecarArgs {
            programs: vec!["/bin/true".to_owned()],
            ..SidecarArgs::default()
        };
        let found = programs(&both, &args).unwrap().into_iter();
        let scripts: Vec<_> = found.map(|it| it.config_map).collect();
        assert_eq!(scripts, [Some(("a".to_owned(), "b.sh".to_owned())), None]);
    }
}
