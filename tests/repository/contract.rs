//! Sections of docs/contract.md that are cited exist.

use super::{expect_none, read, texts};

const DOCUMENT: &str = "docs/contract.md";

/// The number of the section that a text begins with.
fn number(text: &str) -> String {
    text.chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn cited_sections_of_the_contract_exist() {
    let sections: Vec<String> = read(DOCUMENT)
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(number)
        .collect();
    let mut findings = Vec::new();
    for text in texts() {
        // The document cites its own sections without its name.
        let words = if text.path.ends_with(DOCUMENT) {
            "§"
        } else {
            "contract.md §"
        };
        for (place, line) in text.lines() {
            let cited = line.split(words).skip(1).map(number);
            let missing = cited.filter(|cited| !sections.contains(cited));
            findings.extend(missing.map(|cited| format!("{place}: §{cited}")));
        }
    }
    expect_none("docs/contract.md has no such section", &findings);
}

#[test]
fn sections_of_the_contract_are_numbered_in_order() {
    let document = read(DOCUMENT);
    let headings = document.lines().filter_map(|line| line.strip_prefix("## "));
    for (heading, expected) in headings.zip(1..) {
        assert_eq!(number(heading), expected.to_string(), "{heading}");
    }
}
