//! Our own examples of the conversion, each a directory below `xml-fixtures/`:
//!
//! ```text
//! convert/NAME/  vmi.json  context.json  domain.xml     what the VMI becomes
//! refused/RULE/  vmi.json  context.json  error.txt      why it is refused, one example for each rule
//! ```
//! `BLESS=1 cargo test --test convert_golden` writes the last file of each anew; read the change.

#![allow(clippy::panic, clippy::expect_used, reason = "a test ends this way")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use api::vmi::Vmi;
use common::{Case, Differences};
use convert::{self, Context};
use serde_json::json;

fn main() -> ExitCode {
    let cases = ["convert", "refused"]
        .into_iter()
        .flat_map(directories)
        .collect();
    common::run("golden conversions", Some(cases), check)
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("xml-fixtures")
}

/// The examples of that kind, by name.
fn directories(kind: &'static str) -> Vec<Case> {
    let mut names: Vec<String> = fs::read_dir(fixtures().join(kind))
        .expect("the fixtures are part of the repository")
        .map(|entry| {
            entry
                .expect("a directory can be listed")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| Case {
            name: format!("{kind}/{name}"),
            value: json!({ "kind": kind }),
        })
        .collect()
}

fn check(case: &Case) -> Differences {
    let directory = fixtures().join(&case.name);
    let (vmi, context): (Vmi, Context) = (
        read(&directory.join("vmi.json")),
        read(&directory.join("context.json")),
    );
    let (file, found) = match (convert::domain(&vmi, &context), case.text("kind")) {
        (Ok(domain), "convert") => ("domain.xml", domain.to_xml()),
        (Err(error), "refused") => ("error.txt", format!("{error}\n")),
        (Ok(_), _) => return vec!["accepted, but this example is to be refused".to_owned()],
        (Err(error), _) => return vec![format!("refused: {error}")],
    };
    compare(&directory.join(file), &found)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The lines that differ; with `BLESS` the file becomes what was found.
fn compare(path: &Path, found: &str) -> Differences {
    if std::env::var_os("BLESS").is_some() {
        return fs::write(path, found)
            .err()
            .map(|e| format!("{}: {e}", path.display()))
            .into_iter()
            .collect();
    }
    let wanted = match fs::read_to_string(path) {
        Ok(wanted) => wanted,
        Err(e) => return vec![format!("{}: {e}; BLESS=1 writes it", path.display())],
    };
    let (mut wants, mut finds) = (wanted.lines(), found.lines());
    let mut differences = Vec::new();
    for line in 1.. {
        match (wants.next(), finds.next()) {
            (None, None) => break,
            (want, find) if want == find => {}
            (want, find) => differences.push(format!(
                "line {line}: {:?}, got {:?}",
                want.unwrap_or(""),
                find.unwrap_or("")
            )),
        }
    }
    differences
}
