//! The comparisons that the conformance tests rely on have tests of their own.

mod common;

mod json {
    use super::common::json_compare::*;
    use serde_json::json;

    #[test]
    fn exact_tells_null_from_absent() {
        assert_eq!(
            differences(&json!({"a": null}), &json!({}), Mode::Exact),
            ["$.a: missing, want null"]
        );
        assert_eq!(
            differences(&json!({}), &json!({"a": 0}), Mode::Exact),
            ["$.a: unexpected 0"]
        );
        assert!(
            differences(&json!({"a": null}), &json!({"b": {"c": ""}}), Mode::GoZero).is_empty()
        );
    }

    #[test]
    fn presence_counts_in_both_modes() {
        for mode in [Mode::Exact, Mode::GoZero] {
            assert_eq!(
                differences(&json!({"ACPI": {}}), &json!({"ACPI": null}), mode),
                ["$.ACPI: {}, got null"]
            );
        }
    }

    #[test]
    fn lists_are_compared_item_by_item() {
        let found = differences(
            &json!([1, {"x": "a"}]),
            &json!([1, {"x": "b"}, 3]),
            Mode::Exact,
        );
        assert_eq!(found, ["$: 2 items, got 3", "$[1].x: \"a\", got \"b\""]);
    }
}

mod xml {
    use super::common::xml_compare::*;

    #[test]
    fn order_of_attributes_and_between_names_is_free() {
        let found = differences(
            "<a x='1' y='2'><b/><c/><b i='2'/></a>",
            "<a y=\"2\" x=\"1\">\n <c></c><b></b> <b i='2'/></a>",
        );
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn order_among_siblings_counts() {
        let found = differences("<a><b i='1'/><b i='2'/></a>", "<a><b i='2'/><b i='1'/></a>");
        assert_eq!(
            found,
            [
                "/a/b[0]/@i: \"1\", got \"2\"",
                "/a/b[1]/@i: \"2\", got \"1\""
            ]
        );
    }

    #[test]
    fn namespaces_are_expanded() {
        let plain = "<a><k xmlns='http://kubevirt.io'><u>1</u></k></a>";
        assert!(
            differences(
                plain,
                "<a><p:k xmlns:p='http://kubevirt.io'><p:u>1</p:u></p:k></a>"
            )
            .is_empty()
        );
        assert_eq!(differences(plain, "<a><k><u>1</u></k></a>").len(), 2);
    }

    #[test]
    fn missing_text_and_broken_output_are_told() {
        assert_eq!(
            differences("<a><b>x</b></a>", "<a/>"),
            ["/a/b: missing (<b>x</b>)"]
        );
        assert_eq!(
            differences("<a>x &amp; y</a>", "<a>x &amp; z</a>"),
            ["/a: text \"x & y\", got \"x & z\""]
        );
        assert!(differences("<a/>", "<a>")[0].starts_with("output is not well-formed XML"));
    }
}
