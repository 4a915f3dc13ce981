//! The comparisons that the corpora rely on have tests of their own.

use libtest_mimic::Trial;
use serde_json::json;

use super::{json, xml};

/// All of them.
pub fn tests() -> Vec<Trial> {
    let tests: [(&str, fn()); 7] = [
        ("json_null_is_not_absent", json_null_is_not_absent),
        ("json_presence_counts", json_presence_counts),
        ("json_lists_are_compared_by_item", json_lists_by_item),
        ("xml_order_of_attributes_is_free", xml_free_order),
        ("xml_order_among_siblings_counts", xml_siblings),
        ("xml_namespaces_are_expanded", xml_namespaces),
        ("xml_missing_text_and_broken_output", xml_missing),
    ];
    let test = |(name, test): (&str, fn())| {
        Trial::test(format!("compare/{name}"), move || {
            test();
            Ok(())
        })
    };
    tests.map(test).into()
}

fn json_null_is_not_absent() {
    assert_eq!(
        json::differences(&json!({"a": null}), &json!({})),
        ["$.a: missing, want null"]
    );
    assert_eq!(
        json::differences(&json!({}), &json!({"a": 0})),
        ["$.a: unexpected 0"]
    );
}

fn json_presence_counts() {
    assert_eq!(
        json::differences(&json!({"ACPI": {}}), &json!({"ACPI": null})),
        ["$.ACPI: {}, got null"]
    );
}

fn json_lists_by_item() {
    let found = json::differences(&json!([1, {"x": "a"}]), &json!([1, {"x": "b"}, 3]));
    assert_eq!(found, ["$: 2 items, got 3", "$[1].x: \"a\", got \"b\""]);
}

fn xml_free_order() {
    let found = xml::differences(
        "<a x='1' y='2'><b/><c/><b i='2'/></a>",
        "<a y=\"2\" x=\"1\">\n <c></c><b></b> <b i='2'/></a>",
    );
    assert!(found.is_empty(), "{found:?}");
}

fn xml_siblings() {
    let found = xml::differences("<a><b i='1'/><b i='2'/></a>", "<a><b i='2'/><b i='1'/></a>");
    assert_eq!(
        found,
        [
            "/a/b[0]/@i: \"1\", got \"2\"",
            "/a/b[1]/@i: \"2\", got \"1\""
        ]
    );
}

fn xml_namespaces() {
    let plain = "<a><k xmlns='http://kubevirt.io'><u>1</u></k></a>";
    let prefixed = "<a><p:k xmlns:p='http://kubevirt.io'><p:u>1</p:u></p:k></a>";
    assert!(xml::differences(plain, prefixed).is_empty());
    let without = xml::differences(plain, "<a><k><u>1</u></k></a>");
    assert_eq!(without.len(), 2);
}

fn xml_missing() {
    assert_eq!(
        xml::differences("<a><b>x</b></a>", "<a/>"),
        ["/a/b: missing (<b>x</b>)"]
    );
    assert_eq!(
        xml::differences("<a>x &amp; y</a>", "<a>x &amp; z</a>"),
        ["/a: text \"x & y\", got \"x & z\""]
    );
    assert!(xml::differences("<a/>", "<a>")[0].starts_with("output is not well-formed XML"));
}
