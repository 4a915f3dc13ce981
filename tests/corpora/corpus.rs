//! The files of the conformance corpora, and a test for each of their cases.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

/// What the check of one case found: nothing, or the differences.
pub type Differences = Vec<String>;

/// One line of a corpus file, `{"name": …}`.
pub struct Case {
    /// The file it is from and its name, such as `generated/gen-1-0000`.
    pub name: String,
    /// The whole line.
    pub value: Value,
}

impl Case {
    /// A member of the line as text; empty if it is absent.
    pub fn text(&self, member: &str) -> &str {
        self.value[member].as_str().unwrap_or_default()
    }

    /// A member of the line if it is there.
    pub fn get(&self, member: &str) -> Option<&Value> {
        self.value.get(member)
    }
}

/// A test `kind/file/case` for each case of these files for which `chosen` is true.
pub fn tests(
    kind: &'static str,
    files: &[&'static str],
    chosen: fn(&Case) -> bool,
    check: impl Fn(&Case) -> Differences + Clone + Send + 'static,
) -> Vec<Trial> {
    let mut tests = Vec::new();
    for &file in files {
        match read(file) {
            Ok(cases) => tests.extend(cases.iter().filter(|case| chosen(case)).map(|case| {
                let (case, check) = (case.clone(), check.clone());
                test(format!("{kind}/{}", case.name), move || check(&case))
            })),
            Err(missing) => {
                let missing = move || Err(Failed::from(missing));
                let in_ci = std::env::var_os("CI").is_some();
                tests
                    .push(Trial::test(format!("{kind}/{file}"), missing).with_ignored_flag(!in_ci));
            }
        }
    }
    tests
}

/// A test that fails if its check finds differences.
pub fn test(name: String, check: impl FnOnce() -> Differences + Send + 'static) -> Trial {
    Trial::test(name, move || match check().as_slice() {
        [] => Ok(()),
        found => Err(shorten(found).into()),
    })
}

/// The cases of a file; why there are none, where it is missing.
///
/// # Panics
/// When the file is there but is not a corpus file.
fn read(file: &'static str) -> Result<Arc<[Arc<Case>]>, String> {
    type Files = BTreeMap<&'static str, Arc<[Arc<Case>]>>;
    static READ: Mutex<Files> = Mutex::new(BTreeMap::new());
    let mut files = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cases) = files.get(file) {
        return Ok(cases.clone());
    }
    let path = directory().join(file);
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let stem = path.file_stem().unwrap().to_string_lossy();
    let case = |(i, line): (usize, &str)| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{file}:{}: {e}", i + 1));
        let name = value["name"].as_str();
        let name = name.unwrap_or_else(|| panic!("{file}:{}: has no name", i + 1));
        Arc::new(Case {
            name: format!("{stem}/{name}"),
            value,
        })
    };
    let cases: Arc<[_]> = text.lines().enumerate().map(case).collect();
    files.insert(file, cases.clone());
    Ok(cases)
}

fn directory() -> PathBuf {
    std::env::var_os("CONFORMANCE_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    )
}

/// The first differences, a line each.
fn shorten(found: &[String]) -> String {
    const LIMIT: usize = 5;
    let mut lines: Vec<String> = found.iter().take(LIMIT).cloned().collect();
    if found.len() > LIMIT {
        lines.push(format!("… and {} more", found.len() - LIMIT));
    }
    lines.join("\n")
}
