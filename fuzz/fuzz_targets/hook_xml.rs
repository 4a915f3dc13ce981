//! What a sidecar hands back for the domain that it was given: `GIVEN<NUL>HANDED BACK`. Checking never panics; what is
//! accepted can be compared, written and read again without loss, and is still the same domain.
#![no_main]

use hooks::check::check;
use hooks::diff::{diff, one_line};
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
    let Ok(checked) = check(&given, &data[at + 1..]) else {
        return;
    };
    assert_eq!(checked.tree.name, "domain");
    let text = |document: &Element, name| document.child(name).map(Element::text);
    assert_eq!(
        text(&checked.tree, "name").unwrap_or_default(),
        text(&given, "name").unwrap_or_default()
    );
    let _ = one_line(&diff(&given, &checked.tree), 8);
    let again = Element::parse(&checked.tree.to_xml()).expect("what we write can be read");
    assert!(
        diff(&checked.tree, &again).is_empty(),
        "something got lost:\n{}",
        checked.text
    );
});
