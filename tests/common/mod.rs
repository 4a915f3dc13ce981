//! What the conformance tests share: where the corpus is, a runner that names each case, and the
//! two comparisons. Tests that use the runner have `harness = false` in Cargo.toml:
//!
//! ```text
//! mod common;
//! fn main() -> std::process::ExitCode {
//!     common::run("domain JSON", common::corpus("domain-xml/recorded.jsonl"), |case| …)
//! }
//! ```
//!
//! The runner takes the arguments of cargo's own that matter: substrings of names to run,
//! `--exact`, `--skip TEXT`, `--list`, and `--quiet` (failures and the count only).

#![allow(dead_code, reason = "each test uses its own part")]
#![allow(clippy::panic, clippy::expect_used, reason = "a test ends this way")]

pub mod json_compare;
pub mod xml_compare;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

/// The directory of the conformance corpus: beside the repository, or where `CONFORMANCE_DIR` says.
pub fn corpus_dir() -> PathBuf {
    std::env::var_os("CONFORMANCE_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    )
}

/// The cases of a `.jsonl` file of the corpus; `None`, said on standard output, where it is missing.
///
/// # Panics
/// When the file is there but is not a corpus file.
pub fn corpus(file: &str) -> Option<Vec<Case>> {
    let path = corpus_dir().join(file);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) => {
            println!("skipped: {}: {e}", path.display());
            return None;
        }
    };
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let case = |(i, line): (usize, &str)| {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{file}:{}: {e}", i + 1));
        Case {
            name: format!("{stem}/{}", value["name"].as_str().unwrap_or("?")),
            value,
        }
    };
    Some(text.lines().enumerate().map(case).collect())
}

/// Runs `check` on each case, prints a line for each and the count; fails if one differs.
/// A case that panics fails alone. Without cases (`None`) the test is skipped.
pub fn run(what: &str, cases: Option<Vec<Case>>, check: impl Fn(&Case) -> Differences) -> ExitCode {
    let Some(cases) = cases else {
        return ExitCode::SUCCESS;
    };
    let arguments = Arguments::from_command_line();
    let chosen: Vec<&Case> = cases
        .iter()
        .filter(|case| arguments.choose(&case.name))
        .collect();
    if arguments.list {
        chosen
            .iter()
            .for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for case in &chosen {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(case)))
            .unwrap_or_else(|_| vec!["panicked, see above".to_owned()]);
        if found.is_empty() {
            if !arguments.quiet {
                println!("test {} ... ok", case.name);
            }
            continue;
        }
        failed += 1;
        println!("test {} ... FAILED\n{}", case.name, shorten(&found));
    }
    println!(
        "{what}: {} of {} cases agree",
        chosen.len() - failed,
        chosen.len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The first differences, indented.
fn shorten(found: &[String]) -> String {
    const LIMIT: usize = 5;
    let mut lines: Vec<String> = found
        .iter()
        .take(LIMIT)
        .map(|line| format!("    {line}"))
        .collect();
    if found.len() > LIMIT {
        lines.push(format!("    … and {} more", found.len() - LIMIT));
    }
    lines.join("\n")
}

/// What of cargo test's command line is understood; the rest is let pass.
#[derive(Default)]
struct Arguments {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
    quiet: bool,
}

impl Arguments {
    fn from_command_line() -> Self {
        let mut out = Self::default();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => out.list = true,
                "--exact" => out.exact = true,
                "--quiet" | "-q" => out.quiet = true,
                "--skip" => out.skip.extend(words.next()),
                "--format" | "--test-threads" | "--color" => drop(words.next()),
                flag if flag.starts_with('-') => {}
                _ => out.filters.push(word),
            }
        }
        out
    }

    fn choose(&self, name: &str) -> bool {
        let matches = |filter: &String| {
            if self.exact {
                name == filter
            } else {
                name.contains(filter.as_str())
            }
        };
        (self.filters.is_empty() || self.filters.iter().any(matches))
            && !self.skip.iter().any(matches)
    }
}
