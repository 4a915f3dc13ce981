//! The annotation that asks for hook sidecars, as virt-controller and the sidecar-shim read it.

use serde::Deserialize;
use serde_json::Value;

use crate::json::list_at;
use api::pod_paths::file_name;
use api::vmi::HOOK_SIDECARS;
use hooks::Version;

/// The hook programs that the shim calls.
pub const HOOK_PROGRAMS: [&str; 2] = ["onDefineDomain", "preCloudInitIso"];
/// Where the shim of a container looks for them.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const FIELDS: [&str; 6] = [
    "image",
    "imagePullPolicy",
    "command",
    "args",
    "configMap",
    "pvc",
];
/// KubeVirt's knows only the first.
const SHIM_OPTIONS: [&str; 2] = ["--version", "--socket-dir"];
const CONFIG_MAP_FIELDS: [&str; 3] = ["name", "key", "hookPath"];

/// A sidecar that a VMI asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HookSidecar {
    pub image: String,
    command: Vec<String>,
    args: Vec<String>,
    pub config_map: Option<ConfigMapScript>,
}

/// Which key of a ConfigMap has its script, and where the script is in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigMapScript {
    pub name: String,
    pub key: String,
    pub hook_path: String,
}

/// Reads the annotation's text.
///
/// # Errors
/// The problem: no such list, or a sidecar that could not work.
pub fn of_annotation(text: &str) -> Result<Vec<HookSidecar>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let list = serde_json::from_str(text).and_then(|mut list: Value| {
        for sidecar in list.as_array_mut().into_iter().flatten() {
            as_go_reads(sidecar, &FIELDS);
            if let Some(script) = sidecar.get_mut("configMap") {
                as_go_reads(script, &CONFIG_MAP_FIELDS);
            }
        }
        serde_json::from_value::<Vec<HookSidecar>>(list)
    });
    let list = list.map_err(|error| format!("not a JSON list of hook sidecars: {error}"))?;
    let mut problems = list.iter().enumerate();
    match problems.find_map(|(number, it)| Some((number, it.problem()?))) {
        Some((number, problem)) => Err(format!("hook sidecar {number}: {problem}")),
        None => Ok(list),
    }
}

/// Go reads the names of an object in any case, and null as nothing.
fn as_go_reads(object: &mut Value, fields: &[&str]) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let given = std::mem::take(object).into_iter();
    *object = given
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| match go_field(&name, fields) {
            Some(field) => (field.to_owned(), value),
            None => (name, value),
        })
        .collect();
}

fn go_field<'f>(name: &str, fields: &[&'f str]) -> Option<&'f str> {
    let mut fields = fields.iter();
    fields.find(|it| it.eq_ignore_ascii_case(name)).copied()
}

/// A field of the annotation's list that a cluster drops.
pub fn unknown_field(text: &str) -> Option<String> {
    let list: Value = serde_json::from_str(text).ok()?;
    let fields = list_at(&list, "").iter().filter_map(Value::as_object);
    let mut names = fields.flat_map(|sidecar| sidecar.keys());
    let unknown = names.find(|name| go_field(name, &FIELDS).is_none())?;
    Some(format!(
        "unknown field {unknown:?}; expected {}",
        FIELDS.join(", ")
    ))
}

/// The text of a VMI's annotation; empty if it has none.
pub fn annotation(vmi: &Value) -> &str {
    let annotation = vmi
        .pointer("/metadata/annotations")
        .and_then(|it| it.get(HOOK_SIDECARS));
    annotation.and_then(Value::as_str).unwrap_or_default()
}

impl HookSidecar {
    /// The shim's version from its command line.
    pub fn version(&self) -> Option<Version> {
        Version::from_name(self.version_name()?)
    }

    fn version_name(&self) -> Option<&str> {
        let mut words = self.command.iter().chain(&self.args);
        let joined = words.find_map(|word| word.strip_prefix("--version"))?;
        Some(match joined.strip_prefix('=') {
            Some(name) => name,
            None => words.next().map_or("", String::as_str),
        })
    }

    /// The first option that the shim refuses. An image or a command may be another program.
    fn unknown_option(&self) -> Option<&String> {
        let is_shim = self.config_map.is_some() && self.image.is_empty() && self.command.is_empty();
        let mut options = self
            .args
            .iter()
            .filter(|word| is_shim && word.starts_with('-'));
        options.find(|word| {
            let name = word.split('=').next();
            !name.is_some_and(|name| SHIM_OPTIONS.contains(&name))
        })
    }

    fn problem(&self) -> Option<String> {
        let versions = "v1alpha1, v1alpha2 or v1alpha3";
        if let Some(option) = self.unknown_option() {
            return Some(format!(
                "args: the shim that calls the script does not know {option:?}; it knows --version, whose value is the next argument"
            ));
        }
        match self.version_name() {
            Some(name) if self.version().is_none() => {
                return Some(format!(
                    "args: --version {name:?} is not known; expected {versions}"
                ));
            }
            // Another image may have a program of its own.
            None if self.config_map.is_some() && self.image.is_empty() => {
                return Some(format!(
                    "args: the shim that calls the script demands --version {versions}"
                ));
            }
            _ => {}
        }
        let script = self.config_map.as_ref()?;
        let is_too_new = file_name(&script.hook_path) == "preCloudInitIso"
            && self.version() == Some(Version::V1alpha1);
        if is_too_new {
            return Some(
                "args: --version v1alpha1 has no preCloudInitIso; v1alpha2 has".to_owned(),
            );
        }
        script.problem().filter(|_| self.image.is_empty())
    }
}

impl ConfigMapScript {
    fn problem(&self) -> Option<String> {
        let path = &self.hook_path;
        let directory = path.strip_suffix(file_name(path)).unwrap_or_default();
        let mut directories = SEARCH_PATH.split(':').map(|it| format!("{it}/"));
        let is_found =
            HOOK_PROGRAMS.contains(&file_name(path)) && directories.any(|it| it == directory);
        if self.name.is_empty() || self.key.is_empty() {
            return Some("configMap: it needs name and key".to_owned());
        }
        if path.is_empty() {
            return Some("configMap: hookPath is missing".to_owned());
        }
        (!is_found).then(|| {
            format!("configMap: the shim does not find hookPath {path:?}; it calls onDefineDomain and preCloudInitIso in {SEARCH_PATH}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_that_could_not_work_is_refused() {
        let script = |args: &str, path: &str| {
            format!(
                r#"[{{"args": {args}, "configMap": {{"name": "a", "key": "b", "hookPath": "{path}"}}}}]"#
            )
        };
        let (version, path) = (r#"["--version", "v1alpha2"]"#, "/usr/bin/onDefineDomain");
        for (text, problem) in [
            (script(version, path), ""),
            (r#"[{"image": "a", "args": ["--other"]}]"#.to_owned(), ""),
            (script(version, path).replace("args", "command"), ""),
            (
                script(version, path)
                    .replace("configMap", "configmap")
                    .replace("hookPath", "hookpath"),
                "",
            ),
            (
                r#"[{"Image": "a", "configMap": null, "args": null}]"#.to_owned(),
                "",
            ),
            (
                script("[]", "/etc/a").replace("[{", r#"[{"image": "a", "#),
                "",
            ),
            (
                script(r#"["--version", "v1alpha1"]"#, "/usr/bin/preCloudInitIso"),
                "hook sidecar 0: args: --version v1alpha1 has no preCloudInitIso; ",
            ),
            ("{}".to_owned(), "not a JSON list of hook sidecars: "),
            (
                r#"[{"image": "a", "args": "--version v1alpha2"}]"#.to_owned(),
                "not a JSON list of hook sidecars: ",
            ),
            // It is the shim's image.
            (r#"[{"command": ["/bin/sh"]}]"#.to_owned(), ""),
            (
                r#"[{"image": "a"}, {"image": "a", "args": ["--version=v1"]}]"#.to_owned(),
                "hook sidecar 1: args: --version \"v1\" is not known",
            ),
            (
                r#"[{"image": "a", "args": ["--version"]}]"#.to_owned(),
                "hook sidecar 0: args: --version \"\" is not known",
            ),
            (
                script("[]", path),
                "hook sidecar 0: args: the shim that calls the script demands --version",
            ),
            (
                script(r#"["--version", "v1alpha2", "--verbose"]"#, path),
                "hook sidecar 0: args: the shim that calls the script does not know \"--verbose\"",
            ),
            (
                script(r#"["--version v1alpha2"]"#, path),
                "hook sidecar 0: args: the shim that calls the script does not know \"--version v",
            ),
            (script(r#"["--version=v1alpha2"]"#, path), ""),
            (
                script(version, ""),
                "hook sidecar 0: configMap: hookPath is missing",
            ),
            (
                script(version, "onDefineDomain"),
                "hook sidecar 0: configMap: the shim does not find hookPath",
            ),
            (
                script(version, "/opt/onDefineDomain"),
                "hook sidecar 0: configMap: the shim does not find hookPath",
            ),
            (
                script(version, "/usr/bin/start.sh"),
                "hook sidecar 0: configMap: the shim does not find hookPath",
            ),
        ] {
            let found = of_annotation(&text).err().unwrap_or_default();
            assert!(
                found.starts_with(problem) && found.is_empty() == problem.is_empty(),
                "{text}: {found}"
            );
        }
    }

    #[test]
    fn the_shims_version_is_that_of_the_arguments() {
        for (args, version) in [
            (&["--version", "v1alpha2"][..], Some(Version::V1alpha2)),
            (&["--version=v1alpha1"], Some(Version::V1alpha1)),
            (&["--other"], None),
        ] {
            let args = args.iter().map(|word| (*word).to_owned()).collect();
            let sidecar = HookSidecar {
                args,
                ..HookSidecar::default()
            };
            assert_eq!(sidecar.version(), version);
        }
    }

    #[test]
    fn a_field_that_a_cluster_drops_is_named() {
        assert_eq!(unknown_field(r#"[{"Image": "a", "args": []}]"#), None);
        let found = unknown_field(r#"[{"imag": "a"}]"#).unwrap_or_default();
        assert!(found.starts_with("unknown field \"imag\""), "{found}");
    }
}
