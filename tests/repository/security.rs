//! SECURITY.md and docs/security.md: the tests that they name exist, and what they say of the
//! launcher's dependencies is so.

use std::collections::BTreeSet;

use super::markdown::{code, entries};
use super::{expect_none, read, texts};

const POLICY: &str = "SECURITY.md";

/// The names of all functions.
fn functions() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in texts().iter().filter(|text| text.is("rs")) {
        for rest in text.content.split("fn ").skip(1) {
            let is_name = |c: char| !c.is_ascii_alphanumeric() && c != '_';
            found.extend(rest.split(is_name).next().map(str::to_owned));
        }
    }
    // These tests, which texts() leaves out.
    found.insert("the_launcher_does_not_talk_to_the_cluster".to_owned());
    found
}

#[test]
fn every_named_test_exists() {
    let functions = functions();
    let mut findings = Vec::new();
    for document in [POLICY, "docs/security.md"] {
        for (title, text) in entries(&read(document)) {
            let (_, tests) = text.rsplit_once("Test").unwrap_or_default();
            let tests = code(tests);
            // Some entries name the file of the tests.
            let names = tests.iter().filter(|name| !name.ends_with(".rs"));
            let missing = names.filter(|name| !functions.contains(*name));
            findings.extend(missing.map(|name| format!("{document}: {name}")));
            if tests.is_empty() {
                findings.push(format!("{document}: {title} names no test"));
            }
        }
    }
    expect_none("there is no such test", &findings);
}

#[test]
fn each_cve_stands_once() {
    let mut seen = BTreeSet::new();
    let policy = read(POLICY);
    for (title, _) in entries(&policy) {
        for cve in title.split(", ") {
            assert!(cve.starts_with("CVE-20"), "{cve}");
            assert!(seen.insert(cve.to_owned()), "{cve} stands twice");
        }
    }
    assert!(!seen.is_empty());
}

#[test]
fn the_launcher_does_not_talk_to_the_cluster() {
    let clients = ["name = \"kube", "name = \"k8s"];
    let lock = read("Cargo.lock");
    assert!(clients.iter().all(|client| !lock.contains(client)));
    let of_programs = |text: &super::Text| {
        let path = text.path.to_string_lossy();
        let is_programs = path.starts_with("src/") || path.starts_with("crates/");
        text.is("rs") && is_programs && !path.contains("/tests/")
    };
    let mut findings = Vec::new();
    for text in texts().iter().filter(|text| of_programs(text)) {
        for (place, line) in text.lines() {
            let words = ["KUBERNETES_SERVICE_", "serviceaccount/token"];
            if words.iter().any(|word| line.contains(word)) {
                findings.push(format!("{place}: {line}"));
            }
        }
    }
    expect_none("how a client finds the cluster's API", &findings);
}
