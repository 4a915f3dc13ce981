//! The hook sidecars of a VM of `run`. In a cluster the kubelet runs their images; here a program
//! or directory on this machine replaces each.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use serde_json::Value;
use tokio::process::Child;
use tokio::time::timeout;

use super::processes::terminate;
use super::registry::VmDir;
use super::sidecar_program::SidecarProgram;
use crate::error::{CtlError, TextError, fail, text_error};
use crate::files::{FileError, create_private};
use crate::json::{copy_at, is_object_at, list_at, text_at};
use crate::view::output::counted;
use api::pod_paths::HOOKS_DIR;
use hooks::Version;

/// The annotation that asks for sidecars, as a JSON list.
const ANNOTATION: &str = "hooks.kubevirt.io/hookSidecars";
const ANNOTATION_POINTER: &str = "/metadata/annotations/hooks.kubevirt.io~1hookSidecars";
/// Limit for a sidecar to exit when asked.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Options of `run` for hook sidecars.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct SidecarArgs {
    /// Take this for the next hook sidecar of the VMI: a script for onDefineDomain, a directory or
    /// image tree with onDefineDomain or preCloudInitIso, or "PROGRAM {}" that serves gRPC on a
    /// socket in the directory {}
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
    let mut given = args.programs.iter().peekable();
    if args.no_sidecars || wanted.is_empty() {
        return given
            .map(|text| SidecarProgram::parse(text, false))
            .collect();
    }
    let is_script = |sidecar: &Value| is_object_at(sidecar, "/configMap");
    let images = wanted.iter().filter(|sidecar| !is_script(sidecar)).count();
    let count = given.len();
    if count != images && count != wanted.len() {
        let described = wanted.iter().map(|sidecar| match is_script(sidecar) {
            true => format!("ConfigMap {}", text_at(sidecar, "/configMap/name")),
            false => format!("image {}", text_at(sidecar, "/image")),
        });
        fail!(
            "the VMI has {} ({}), and --sidecar gives {count}; only a cluster runs images: give a program or an image's directory for each image with --sidecar (a ConfigMap's script needs none), or leave all out with --no-sidecars",
            counted(wanted.len(), "hook sidecar"),
            described.collect::<Vec<_>>().join(", ")
        );
    }
    let program = |(number, sidecar): (usize, &Value)| {
        let text = given.next_if(|_| count > images || !is_script(sidecar));
        let mut program = match text {
            Some(text) => SidecarProgram::parse(text, false)?,
            None => SidecarProgram::of_config_map(number, &copy_at(sidecar, "/configMap"))?,
        };
        program.version = shim_version(sidecar).unwrap_or(program.version);
        Ok(program)
    };
    wanted.iter().enumerate().map(program).collect()
}

/// Whether the VMI asks for sidecars.
pub fn are_wanted(vmi: &Value) -> bool {
    wanted(vmi).is_ok_and(|wanted| !wanted.is_empty())
}

fn wanted(vmi: &Value) -> Result<Vec<Value>, TextError> {
    match text_at(vmi, ANNOTATION_POINTER) {
        "" => Ok(Vec::new()),
        text => serde_json::from_str(text).map_err(|source| {
            text_error!("metadata.annotations[{ANNOTATION}]: not a JSON list").caused_by(source)
        }),
    }
}

/// The shim's version from the annotation's arguments.
fn shim_version(sidecar: &Value) -> Option<Version> {
    let mut words = list_at(sidecar, "/args").iter().filter_map(Value::as_str);
    let version = words.find_map(|word| word.strip_prefix("--version"))?;
    Version::from_name(match version {
        "" => words.next()?,
        joined => joined.strip_prefix('=')?,
    })
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
        let log = dir.path(&format!("/sidecar-{number}.log"));
        let log = create_private(&log).map_err(FileError::on("make", log))?;
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn vmi(annotation: &str) -> Value {
        json!({"metadata": {"annotations": {ANNOTATION: annotation}}})
    }

    #[test]
    fn sidecars_that_nothing_stands_for_are_refused_by_their_images() {
        let two = vmi(r#"[{"image": "a/smbios"}, {"image": "b/watchdog"}]"#);
        let error = programs(&two, &SidecarArgs::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("2 hook sidecars (image a/smbios, image b/watchdog)")
                && text.contains("--sidecar"),
            "{text}"
        );
        let without = SidecarArgs {
            no_sidecars: true,
            ..SidecarArgs::default()
        };
        assert_eq!(programs(&two, &without).unwrap(), []);
        assert_eq!(programs(&json!({}), &SidecarArgs::default()).unwrap(), []);
        let invalid = programs(&vmi("x"), &SidecarArgs::default()).unwrap_err();
        assert_eq!(
            invalid.to_string(),
            "metadata.annotations[hooks.kubevirt.io/hookSidecars]: not a JSON list"
        );
    }

    #[test]
    fn a_script_of_a_config_map_needs_no_program_but_may_have_one() {
        let script =
            r#"{"configMap": {"name": "a", "key": "b.sh", "hookPath": "/usr/bin/onDefineDomain"}}"#;
        let both = vmi(&format!(r#"[{script}, {{"image": "a/smbios"}}]"#));
        let scripts = |given: &[&str]| {
            let programs = SidecarArgs {
                programs: given.iter().map(|it| (*it).to_owned()).collect(),
                ..SidecarArgs::default()
            };
            let found = super::programs(&both, &programs).map_err(|error| error.to_string())?;
            Ok(found
                .into_iter()
                .map(|it| it.config_map)
                .collect::<Vec<_>>())
        };
        let config_map = Some(("a".to_owned(), "b.sh".to_owned()));
        assert_eq!(scripts(&["/bin/true"]), Ok(vec![config_map, None]));
        assert_eq!(scripts(&["/bin/true", "/bin/true"]), Ok(vec![None, None]));
        let refused: Result<_, String> = scripts(&[]);
        assert!(
            refused
                .unwrap_err()
                .contains("(ConfigMap a, image a/smbios)")
        );
        let other = vmi(&script
            .replace("onDefineDomain", "start.sh")
            .replace("{\"c", "[{\"c")
            .replace("}}", "}}]"));
        let refused = super::programs(&other, &SidecarArgs::default()).unwrap_err();
        assert!(
            refused.to_string().contains("/usr/bin/start.sh"),
            "{refused}"
        );
    }

    #[test]
    fn the_shims_version_is_that_of_the_annotation() {
        let version = |args: Value| shim_version(&json!({"args": args}));
        assert_eq!(
            version(json!(["--version", "v1alpha2"])),
            Some(Version::V1alpha2)
        );
        assert_eq!(
            version(json!(["--version=v1alpha1"])),
            Some(Version::V1alpha1)
        );
        assert_eq!(version(json!(["--other"])), None);
    }
}
