//! The parts of a Markdown document that the checks need, and how long a row of a table may be.

use super::{expect_none, texts};

/// What is longer is a paragraph or a list, which a terminal can show.
const MAX_ROW_CHARACTERS: usize = 200;

/// The text below a heading of the second level, up to the next one.
pub fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let start = format!("\n## {heading}\n");
    let (_, section) = text
        .split_once(&start)
        .unwrap_or_else(|| panic!("there is no section {heading:?}"));
    section.split("\n## ").next().unwrap_or(section)
}

/// The cells of each row of the tables in a text, without their heads.
pub fn rows(text: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_some_and(|next| next.starts_with("|---")) {
            lines.next();
        } else if let Some(line) = line.strip_prefix('|') {
            let line = line.trim_end().trim_end_matches('|');
            rows.push(
                line.split(" | ")
                    .map(|cell| cell.trim().to_owned())
                    .collect(),
            );
        }
    }
    rows
}

/// The title and the text of each entry: a paragraph that begins with its title in bold.
pub fn entries(document: &str) -> Vec<(&str, &str)> {
    let paragraphs = document.split("\n\n");
    paragraphs
        .filter_map(|paragraph| paragraph.strip_prefix("**")?.split_once("**"))
        .collect()
}

/// The words in backticks.
pub fn code(text: &str) -> Vec<String> {
    let words = text.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// The targets of links, `[text](target)`.
pub fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1);
    targets.filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// The anchors of a document, made of its headings as GitHub makes them.
pub fn anchors(document: &str) -> Vec<String> {
    let slug = |heading: &str| {
        let heading = heading.trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    let headings = document.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| slug(line.trim_start_matches('#')))
        .collect()
}

#[test]
fn a_terminal_can_show_each_row_of_a_table() {
    let mut findings = Vec::new();
    for text in texts().iter().filter(|text| text.is("md")) {
        let rows = text.lines().filter(|(_, line)| line.starts_with('|'));
        let long = rows.filter(|(_, row)| row.chars().count() > MAX_ROW_CHARACTERS);
        findings.extend(long.map(|(place, _)| place));
    }
    expect_none("rows of more than 200 characters", &findings);
}

#[test]
fn a_table_has_rows_of_cells() {
    let text =
        "\n## A\n\n| x | y |\n|---|---|\n| `1` | |\n| a\\|b | 2 |\n\n## B\n| other |\n|---|\n";
    assert_eq!(rows(section(text, "A")), [["`1`", ""], ["a\\|b", "2"]]);
}

#[test]
fn an_entry_is_a_paragraph_with_a_title() {
    let text = "## A\n\n**`x`**: one\ntwo.\n\nText, **bold**.\n\n**y** three\n";
    let expected = [("`x`", ": one\ntwo."), ("y", " three\n")];
    assert_eq!(entries(text), expected);
}

#[test]
fn anchors_are_githubs() {
    assert_eq!(
        anchors("## 6. The `Domain` document\ntext"),
        ["6-the-domain-document"]
    );
}

#[test]
fn links_are_found() {
    let found: Vec<&str> = links("see [a](b.md#c), [d](e)").collect();
    assert_eq!(found, ["b.md#c", "e"]);
}
