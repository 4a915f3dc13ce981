//! docs/architecture.md has a maximum of lines of code for each crate, and the code keeps to it.

use std::collections::BTreeMap;

use super::markdown::{code, rows, section};
use super::{expect_none, read, texts};

/// Whose code is not the product's.
const ASIDE: [&str; 5] = ["tests", "fuzz", "benches", "examples", "compat"];

/// The crate that a file counts for; `None` for tests.
fn counted_for(path: &str) -> Option<String> {
    let is_test = path.contains("/tests/")
        || path.ends_with("test.rs")
        || path.ends_with("tests.rs")
        || ASIDE.contains(&path.split('/').next()?);
    let mut directories = path.split('/');
    let name = match (directories.next()?, directories.next()) {
        ("crates", Some(name)) => format!("crates/{name}"),
        ("src", Some(_)) => "src".to_owned(),
        _ => "other".to_owned(),
    };
    (!is_test).then_some(name)
}

/// The lines that are neither blank nor only a comment, before a file's first test.
fn lines_of_code(text: &str) -> usize {
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .map(str::trim_start)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[test]
fn no_crate_has_more_lines_than_its_maximum() {
    let document = read("docs/architecture.md");
    let mut left: BTreeMap<String, usize> = rows(section(&document, "Lines of code"))
        .iter()
        .map(|row| (code(&row[0])[0].clone(), row[1].parse().unwrap()))
        .collect();
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts().iter().filter(|text| text.is("rs")) {
        if let Some(name) = counted_for(text.path.to_str().unwrap()) {
            let lines = lines_of_code(&text.content);
            *counted.entry(name).or_default() += lines;
            *counted.entry("all".to_owned()).or_default() += lines;
        }
    }
    let findings: Vec<String> = counted
        .iter()
        .filter_map(|(name, lines)| match left.remove(name) {
            Some(maximum) if *lines <= maximum => None,
            Some(maximum) => Some(format!("{name}: {lines} lines, {maximum} at most")),
            None => Some(format!("{name}: {lines} lines, and no maximum")),
        })
        .collect();
    expect_none(
        "more lines of code than docs/architecture.md allows",
        &findings,
    );
    assert!(left.is_empty(), "there is no code of {left:?}");
}

#[test]
fn tests_blank_lines_and_comments_do_not_count() {
    let text = "//! Doc.\n\nfn a() {\n    // why\n    b()\n}\n\n#[cfg(test)]\nmod tests;\n";
    assert_eq!(lines_of_code(text), 3);
    assert_eq!(counted_for("crates/os/src/tests/x.rs"), None);
    assert_eq!(counted_for("tests/e2e/main.rs"), None);
    assert_eq!(counted_for("src/launcher/mod.rs").as_deref(), Some("src"));
    assert_eq!(
        counted_for("crates/os/build.rs").as_deref(),
        Some("crates/os")
    );
    assert_eq!(counted_for("build.rs").as_deref(), Some("other"));
}
