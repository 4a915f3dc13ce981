//! References to documents and files lead somewhere.

use std::path::{Component, Path, PathBuf};

use super::markdown::{anchors, code, links};
use super::{Text, expect_none, read, root, texts};

/// A path as `docs/../README.md`, without its detours.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normalized.pop()),
            Component::CurDir => {}
            part => normalized.push(part),
        }
    }
    normalized
}

/// What is wrong with a reference to `target`, which is relative to `directory`.
fn problem(directory: &Path, target: &str) -> Option<String> {
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let path = normalized(&directory.join(file));
    if !root().join(&path).exists() {
        return Some(format!("there is no {}", path.display()));
    }
    let anchor = anchor?;
    let known = anchors(&read(&path.to_string_lossy()));
    let is_known = known.iter().any(|known| known == anchor);
    (!is_known).then(|| format!("{} has no heading for #{anchor}", path.display()))
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut findings = Vec::new();
    for text in texts().iter().filter(|text| text.is("md")) {
        let directory = text.path.parent().unwrap();
        for (place, line) in text.lines() {
            let targets = links(line).filter(|target| !target.contains("://"));
            for target in targets {
                let own_heading = format!("{}{target}", text.path.display());
                let problem = match target.strip_prefix('#') {
                    Some(_) => problem(Path::new(""), &own_heading),
                    None => problem(directory, target),
                };
                findings.extend(problem.map(|problem| format!("{place}: {problem}")));
            }
        }
    }
    expect_none("links that lead nowhere", &findings);
}

/// The Markdown files that a line names, with their anchors; not those of URLs.
fn named_documents(line: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/.-_#:<>*".contains(c);
    let words = line.split(|c: char| !is_part(c));
    words
        .map(|word| word.trim_end_matches(['.', ':']))
        .filter(|word| word.ends_with(".md") || word.contains(".md#"))
        .filter(|word| {
            !word.contains("://") && !word.contains(['<', '*']) && !word.starts_with('/')
        })
        .collect()
}

#[test]
fn documents_that_are_named_are_in_the_repository() {
    let mut findings = Vec::new();
    for text in texts() {
        let directory = text.path.parent().unwrap();
        for (place, line) in text.lines() {
            for name in named_documents(line) {
                let problems = [directory, Path::new("")].map(|from| problem(from, name));
                if let [Some(problem), Some(_)] = problems {
                    findings.push(format!("{place}: {problem}"));
                }
            }
        }
    }
    expect_none("documents that are not in the repository", &findings);
}

#[test]
fn documents_outside_the_repository_are_not_cited() {
    const OUTSIDE: [&str; 4] = [
        "handler contract",
        "handler-contract",
        "pod contract",
        "calls contract",
    ];
    let mut findings = Vec::new();
    for text in texts() {
        let lines = text.lines();
        let cites = lines.filter(|(_, line)| OUTSIDE.iter().any(|words| line.contains(words)));
        findings.extend(cites.map(|(place, line)| format!("{place}: {}", line.trim())));
    }
    expect_none("cite docs/contract.md instead", &findings);
}

/// Whether a word in backticks is a path of the repository.
fn is_path(word: &str) -> bool {
    const DIRECTORIES: [&str; 10] = [
        "benches/",
        "compat/",
        "container/",
        "crates/",
        "examples/",
        "fuzz/",
        "proto/",
        "scripts/",
        "src/",
        "tests/",
    ];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/.-_".contains(c);
    let is_below = DIRECTORIES
        .iter()
        .any(|directory| word.starts_with(directory));
    word.chars().all(is_plain) && is_below
}

#[test]
fn paths_in_the_documents_exist() {
    let is_document = |text: &&Text| {
        let is_top = text.path.components().count() == 1;
        text.is("md") && (is_top || text.path.starts_with("docs"))
    };
    let mut findings = Vec::new();
    for text in texts().iter().filter(is_document) {
        for (place, line) in text.lines() {
            let paths = code(line).into_iter().filter(|word| is_path(word));
            let missing = paths.filter(|path| !root().join(path).exists());
            findings.extend(missing.map(|path| format!("{place}: {path}")));
        }
    }
    expect_none("paths that do not exist", &findings);
}
