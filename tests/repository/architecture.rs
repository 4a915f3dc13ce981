//! docs/architecture.md has each directory, each crate and each module of the launcher, and what
//! they use.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::markdown::{code, rows, section};
use super::{Text, expect_none, files, read, root, texts};

type Uses = BTreeMap<String, BTreeSet<String>>;

/// What the table says: the name in the first column uses those in the last.
fn documented(heading: &str) -> Uses {
    let document = read("docs/architecture.md");
    rows(section(&document, heading))
        .iter()
        .map(|row| {
            let uses = code(row.last().unwrap());
            (code(&row[0])[0].clone(), uses.into_iter().collect())
        })
        .collect()
}

/// What a package depends on in this workspace, tests aside.
fn dependencies(package: &Value) -> BTreeSet<String> {
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    dependencies
        .filter(|dependency| dependency["path"].is_string() && dependency["kind"].is_null())
        .map(|dependency| short_name(&dependency["name"]))
        .collect()
}

/// A package's name without the common prefix.
fn short_name(name: &Value) -> String {
    let name = name.as_str().unwrap();
    name.strip_prefix("virt-launcher-")
        .unwrap_or(name)
        .to_owned()
}

#[test]
fn the_table_of_crates_is_the_workspace() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(root())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found: Uses = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (short_name(&package["name"]), dependencies(package)))
        .collect();
    assert_eq!(
        found,
        documented("Crates"),
        "left: Cargo.toml, right: the table"
    );
}

#[test]
fn the_table_of_modules_is_what_they_use() {
    let modules: Vec<String> = read("src/lib.rs")
        .lines()
        .filter_map(|line| {
            line.trim_start_matches("pub ")
                .strip_prefix("mod ")?
                .strip_suffix(';')
        })
        .map(str::to_owned)
        .collect();
    let texts = texts();
    let uses = |module: &String| {
        let directory = format!("src/{module}");
        let files = texts
            .iter()
            .filter(|text| text.path.starts_with(&directory));
        let code: String = files.map(|text| text.content.as_str()).collect();
        let others = modules.iter().filter(|other| *other != module);
        others
            .filter(|other| code.contains(&format!("crate::{other}::")))
            .cloned()
            .collect()
    };
    let found: Uses = modules
        .iter()
        .map(|module| (module.clone(), uses(module)))
        .collect();
    let documented = documented("Modules of the launcher");
    assert_eq!(found, documented, "left: src/, right: the table");
}

#[test]
fn the_layout_has_every_directory() {
    let found: BTreeSet<String> = files()
        .iter()
        .filter(|path| path.components().count() > 1)
        .filter_map(|path| Some(path.iter().next()?.to_str()?.to_owned() + "/"))
        .filter(|name| !name.starts_with('.'))
        .collect();
    let layout = rows(section(&read("docs/architecture.md"), "Layout"));
    let documented: BTreeSet<String> = layout.iter().flat_map(|row| code(&row[0])).collect();
    assert_eq!(found, documented, "left: the directories, right: the table");
}

#[test]
fn a_file_of_launcherctl_uses_no_layer_to_its_left() {
    const SOURCES: &str = "crates/launcherctl/src";
    let document = read("docs/architecture.md");
    let layers = rows(section(&document, "Layers of launcherctl"));
    let layers: Vec<String> = layers.iter().flat_map(|row| code(&row[0])).collect();
    let mut findings = Vec::new();
    for text in texts() {
        let Ok(path) = text.path.strip_prefix(SOURCES) else {
            continue;
        };
        // A file that is in no layer is to the right of all.
        let own = layers.iter().position(|layer| path.starts_with(layer));
        let left = &layers[..own.unwrap_or(layers.len())];
        let code = text.content.split("#[cfg(test)]").next().unwrap();
        for uses in code.split("crate::").skip(1) {
            let uses = match uses.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap(),
                None => uses.split(|c: char| !is_name(c)).next().unwrap(),
            };
            let names = uses.split(|c: char| !is_name(c));
            findings.extend(
                names
                    .filter(|name| left.iter().any(|layer| layer == name))
                    .map(|name| format!("{}: {name}", text.path.display())),
            );
        }
    }
    expect_none("imports from a layer to the left", &findings);
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A name such as `DomainSpec`.
fn is_type(word: &str) -> bool {
    let capitals = word.chars().filter(char::is_ascii_uppercase).count();
    let is_name = word.chars().all(|c| c.is_ascii_alphanumeric());
    is_name
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && (2..word.len()).contains(&capitals)
}

#[test]
fn types_that_are_named_exist() {
    let texts = texts();
    let sources: Vec<&Text> = texts.iter().filter(|text| text.is("rs")).collect();
    let document = read("docs/architecture.md");
    let findings: Vec<String> = code(&document)
        .into_iter()
        .filter(|word| is_type(word))
        .filter(|word| !sources.iter().any(|text| text.content.contains(word)))
        .collect();
    expect_none(
        "docs/architecture.md names types that do not exist",
        &findings,
    );
}

#[test]
fn the_conversion_is_pure() {
    const IMPURE: [&str; 9] = [
        "std::fs",
        "std::env::",
        "std::io",
        "std::net",
        "std::process",
        "std::thread",
        "SystemTime",
        "Instant",
        "static mut",
    ];
    let is_conversion = |text: &&Text| text.path.starts_with("crates/convert/src");
    let mut findings = Vec::new();
    for text in texts().iter().filter(is_conversion) {
        let code = text.content.split("#[cfg(test)]").next().unwrap();
        let used = IMPURE.iter().filter(|word| code.contains(**word));
        findings.extend(used.map(|word| format!("{}: {word}", text.path.display())));
    }
    expect_none("the conversion uses what is not pure", &findings);
}

#[test]
fn unsafe_code_is_in_the_libvirt_crate_only() {
    let roots = [
        "lib.rs",
        "main.rs",
        "pod-tools.rs",
        "virt-launcher-monitor.rs",
    ];
    let is_root = |text: &&Text| {
        let path = &text.path;
        let is_ours = path.starts_with("src") || path.starts_with("crates");
        let is_source = path.components().any(|part| part.as_os_str() == "src");
        is_ours && is_source && roots.iter().any(|name| path.ends_with(name))
    };
    let findings: Vec<String> = texts()
        .iter()
        .filter(is_root)
        .filter(|text| !text.path.starts_with("crates/libvirt"))
        .filter(|text| !text.content.contains("#![forbid(unsafe_code)]"))
        .map(|text| text.path.display().to_string())
        .collect();
    expect_none("these do not forbid unsafe code", &findings);
}
