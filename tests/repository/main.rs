//! What the repository says about itself is so: its layout, and the references between sources and documents.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends this way"
)]

mod architecture;
mod contract;
mod differences;
mod links;
mod markdown;

use std::fs;
use std::path::{Path, PathBuf};

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

/// All sources, documents and scripts of the repository, but for these tests, which have examples of what they look for.
fn texts() -> Vec<Text> {
    let mut found = Vec::new();
    let mut directories = vec![root().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !matches!(name.as_str(), "target" | ".git" | "repository") {
                directories.push(entry.path());
            } else if kind.is_file() && is_text(&entry.path()) {
                let path = entry.path().strip_prefix(root()).unwrap().to_owned();
                if let Ok(content) = fs::read_to_string(entry.path()) {
                    found.push(Text { path, content });
                }
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
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
