//! The annotation that asks for hook sidecars, as virt-controller and the sidecar-shim read it.

use serde::Deserialize;
use serde_json::Value;

use api::pod_paths::file_name;
use api::vmi::HOOK_SIDECARS;
use hooks::Version;

/// The hook programs that the shim calls.
pub const HOOK_PROGRAMS: [&str; 2] = ["onDefineDomain", "preCloudInitIso"];
/// Where the shim of a container looks for them.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A sidecar that a VMI asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HookSidecar {
    /// Empty for the shim's own image.
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
/// The problem: no such list, or a script that the shim would not find.
pub fn of_annotation(text: &str) -> Result<Vec<HookSidecar>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let list: Vec<HookSidecar> = serde_json::from_str(text)
        .map_err(|error| format!("not a JSON list of hook sidecars: {error}"))?;
    let own_image = list.iter().filter(|it| it.image.is_empty());
    let mut scripts = own_image.filter_map(|it| it.config_map.as_ref());
    match scripts.find_map(ConfigMapScript::problem) {
        Some(problem) => Err(problem),
        None => Ok(list),
    }
}

/// The text of a VMI's annotation; empty if it has none.
pub fn annotation(vmi: &Value) -> &str {
    let annotations = vmi.pointer("/metadata/annotations");
    let annotation = annotations.and_then(|it| it.get(HOOK_SIDECARS));
    annotation.and_then(Value::as_str).unwrap_or_default()
}

impl HookSidecar {
    /// The shim's version from its command line.
    pub fn version(&self) -> Option<Version> {
        let mut words = self.command.iter().chain(&self.args);
        let joined = words.find_map(|word| word.strip_prefix("--version"))?;
        match joined.strip_prefix('=') {
            Some(name) => Version::from_name(name),
            None => Version::from_name(words.next()?),
        }
    }
}

impl ConfigMapScript {
    fn problem(&self) -> Option<String> {
        let path = &self.hook_path;
        let directory = path.strip_suffix(file_name(path)).unwrap_or_default();
        let mut directories = SEARCH_PATH.split(':');
        let is_found = HOOK_PROGRAMS.contains(&file_name(path))
            && directories.any(|it| directory.strip_suffix('/') == Some(it));
        (!is_found).then(|| {
            format!("configMap: the shim does not find hookPath {path:?}; it calls onDefineDomain and preCloudInitIso in {SEARCH_PATH}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_the_shim_does_not_find_is_refused() {
        let script = |more: &str, path: &str| {
            format!(
                r#"[{{{more} "configMap": {{"name": "a", "key": "b", "hookPath": "{path}"}}}}]"#
            )
        };
        for (text, problem) in [
            (script("", "/usr/bin/onDefineDomain"), ""),
            (script(r#""image": "a","#, "/etc/a"), ""),
            (r#"[{"command": ["/bin/a"]}]"#.to_owned(), ""),
            ("{}".to_owned(), "not a JSON list of hook sidecars: "),
            (script("", ""), "configMap: the shim does not find"),
            (script("", "onDefineDomain"), "configMap: the shim does not"),
            (script("", "/usr/bin/start.sh"), "configMap: the shim does"),
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
}
