//! Each entry of docs/differences.md is cited where it is implemented or tested, and each cited
//! entry exists.

use std::collections::BTreeSet;

use super::markdown::entries;
use super::{expect_none, read, texts};

const DOCUMENT: &str = "docs/differences.md";

/// Entries that neither a test nor a line of code stands for, each with the reason.
const NOT_CITED: [(&str, &str); 0] = [];

/// The ids in a text, such as `D-disk-2`.
fn ids(text: &str) -> impl Iterator<Item = String> {
    let starts = text.match_indices("D-");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    starts.filter_map(move |(at, _)| {
        let word: String = text[at..].chars().take_while(|c| is_word(*c)).collect();
        let before = text[..at].chars().next_back();
        (is_id(&word) && !before.is_some_and(is_word)).then_some(word)
    })
}

fn is_id(word: &str) -> bool {
    let mut parts = word.split('-').skip(1);
    let is = |part: Option<&str>, what: fn(&u8) -> bool| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| what(&byte)))
    };
    let (area, number) = (parts.next(), parts.next());
    parts.next().is_none() && is(area, u8::is_ascii_lowercase) && is(number, u8::is_ascii_digit)
}

/// The ids in sources, each with its place.
fn cited() -> Vec<(String, String)> {
    let mut cited = Vec::new();
    for text in texts() {
        let is_document = text.is("md");
        for (place, line) in text.lines().filter(|_| !is_document) {
            cited.extend(ids(line).map(|id| (id, place.clone())));
        }
    }
    cited
}

#[test]
fn every_cited_difference_is_documented() {
    let document = read(DOCUMENT);
    let documented: BTreeSet<&str> = entries(&document).into_iter().map(|(id, _)| id).collect();
    let unknown = cited()
        .into_iter()
        .filter(|(id, _)| !documented.contains(id.as_str()));
    let findings: Vec<String> = unknown
        .map(|(id, place)| format!("{place}: {id}"))
        .collect();
    expect_none("docs/differences.md has no such entry", &findings);
}

#[test]
fn every_documented_difference_is_cited() {
    let cited: BTreeSet<String> = cited().into_iter().map(|(id, _)| id).collect();
    let is_excused = |id: &str| NOT_CITED.iter().any(|(excused, _)| *excused == id);
    let findings: Vec<String> = entries(&read(DOCUMENT))
        .into_iter()
        .filter(|(id, _)| !cited.contains(*id) && !is_excused(id))
        .map(|(id, _)| id.to_owned())
        .collect();
    expect_none("neither code nor a test cites these", &findings);
}

#[test]
fn every_difference_has_an_id_of_its_own_a_reason_and_a_consequence() {
    let mut seen = BTreeSet::new();
    for (id, text) in entries(&read(DOCUMENT)) {
        assert!(is_id(id) && seen.insert(id.to_owned()), "{id}");
        let (difference, consequence) = text.split_once("Seen:").expect(id);
        assert!(difference.contains("KubeVirt"), "{id}");
        // What differs and why take two sentences at least.
        let ends = difference.split_whitespace();
        let sentences = ends.filter(|word| word.ends_with('.')).count();
        assert!(sentences >= 2 && !consequence.trim().is_empty(), "{id}");
    }
    assert!(!seen.is_empty());
}

#[test]
fn an_id_is_found_among_other_words() {
    let text = "// D-disk-2 (docs/differences.md). ID-net-1 D-Bus D-net-x D-net-1-2; D-vm-12.";
    assert_eq!(ids(text).collect::<Vec<_>>(), ["D-disk-2", "D-vm-12"]);
}
