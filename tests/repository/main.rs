//! What the repository says about itself is so: its layout, and the references between sources and
//! documents.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends this way"
)]

mod architecture;
mod circles;
mod contract;
mod differences;
mod lines_of_code;
mod links;
mod markdown;
mod python;
mod seccomp;
mod security;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Larger files hold data, not text about the project.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Endings of data: recorded results, fixtures, lock files.
const DATA: [&str; 6] = ["json", "jsonl", "xml", "lock", "txt", "svg"];

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A text file: its path below the root, and its content.
struct Text {
    path: PathBuf,
    content: String,
}

impl Text {
    fn is(&self, ending: &str) -> bool {
        self.path.extension().is_some_and(|found| found == ending)
    }

    /// Each line with its number, for messages such as `src/lib.rs:3`.
    fn lines(&self) -> impl Iterator<Item = (String, &str)> {
        let numbered = self.content.lines().zip(1..);
        numbered.map(|(line, number)| (format!("{}:{number}", self.path.display()), line))
    }
}

/// All sources, documents and scripts of the repository, but for these tests, which have examples
/// of what they look for.
fn texts() -> Vec<Text> {
    let text = |path: PathBuf| {
        let content = fs::read_to_string(root().join(&path)).ok()?;
        Some(Text { path, content })
    };
    let mut found = files();
    found.retain(|path| !path.starts_with("tests/repository") && is_text(&root().join(path)));
    found.into_iter().filter_map(text).collect()
}

/// The repository's files, by their paths below the root: those that git tracks, or all where there
/// is no git.
fn files() -> Vec<PathBuf> {
    let git = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    let mut files: Vec<PathBuf> = match git {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let list = String::from_utf8(output.stdout).unwrap();
            list.split_terminator('\0').map(PathBuf::from).collect()
        }
        _ => walk(),
    };
    files.retain(|path| root().join(path).is_file());
    files.sort_unstable();
    files
}

/// All files below the root that are not built.
fn walk() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_type().unwrap().is_dir() {
                found.push(entry.path().strip_prefix(root()).unwrap().to_owned());
            } else if !["target", ".git"]
                .iter()
                .any(|name| entry.file_name() == *name)
            {
                directories.push(entry.path());
            }
        }
    }
    found
}

fn is_text(path: &Path) -> bool {
    let is_data = path
        .extension()
        .is_some_and(|ending| DATA.iter().any(|data| ending == *data));
    !is_data && path.metadata().unwrap().len() <= MAX_TEXT_BYTES
}

/// Fails with all findings at once.
fn expect_none(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n{}", findings.join("\n"));
}
