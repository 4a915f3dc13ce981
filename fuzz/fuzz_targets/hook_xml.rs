//! A domain, and a sidecar's answer to it: `GIVEN<NUL>ANSWER`. The check never panics. An accepted
//! answer can be compared, written and read again without loss, and is still the same domain.
#![no_main]

use hooks::answer::check;
use hooks::diff::{MAX_CHANGES, diff, summary};
use domain::xml::tree::Element;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some(at) = data.iter().position(|&byte| byte == 0) else {
        return;
    };
    let Ok(given) = str::from_utf8(&data[..at]) else {
        return;
    };
    let Ok(given) = Element::parse(given) else {
        return;
    };
    let Ok(answer) = check(&given, &data[at + 1..]) else {
        return;
    };
    assert_eq!(answer.tree.name, "domain");
    let text = |document: &Element, name| document.child(name).map(Element::text);
    assert_eq!(
        text(&answer.tree, "name").unwrap_or_default(),
        text(&given, "name").unwrap_or_default()
    );
    let changes = diff(&given, &answer.tree);
    assert!(changes.list.len() <= MAX_CHANGES);
    assert!(summary(&changes).len() < 64 << 10, "the log line is bounded");
    let again = Element::parse(&answer.tree.to_xml()).expect("what we write can be read");
    assert!(
        diff(&answer.tree, &again).is_empty(),
        "something got lost:\n{}",
        answer.text
    );
});
