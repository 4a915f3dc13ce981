//! The answers within the limits that are most expensive to check. Each stresses one step.

/// Elements in a document, just below the limit.
const ELEMENTS: usize = 60_000;
/// About the size of the documents, in bytes.
const SIZE: usize = 1 << 20;

/// A domain with `inside` as its content. All documents describe the same domain.
fn domain(attributes: &str, inside: &str) -> String {
    format!("<domain{attributes}><name>ns_vm</name>{inside}</domain>")
}

fn repeated(count: usize, part: impl Fn(usize) -> String) -> String {
    (0..count).map(part).collect()
}

/// Returns each answer's subject, the sidecar's input and its output.
pub fn answers() -> Vec<(&'static str, String, String)> {
    let plain = domain("", "");
    let long = |length: usize| "n".repeat(length);
    let children = |name: &str| format!("<{name}/>").repeat(ELEMENTS);
    let nested = |inside: &str| format!("{}{inside}{}", "<a>".repeat(240), "</a>".repeat(240));
    let disks = |dev: &dyn Fn(usize) -> usize| {
        repeated(ELEMENTS / 2, |n| {
            format!("<disk><target dev='v{}'/></disk>", dev(n))
        })
    };
    let in_namespace = |uri: &str, inside: &str| {
        let uri = format!(" xmlns:p='{}{uri}'", long(SIZE / 2));
        domain(&uri, &children("p:a").replacen("<p:a/>", inside, 1))
    };
    vec![
        ("small elements", plain.clone(), domain("", &children("a"))),
        (
            "many children of a long namespace",
            in_namespace("", ""),
            in_namespace("", "<p:b/>"),
        ),
        (
            "another long namespace",
            in_namespace("1", ""),
            in_namespace("2", ""),
        ),
        (
            "many namespaces",
            plain.clone(),
            domain(
                "",
                &repeated(10_000, |n| {
                    format!("<a xmlns='u{n}'><p:b xmlns:p='v{n}'/></a>")
                }),
            ),
        ),
        (
            "namespaces in each other",
            domain("", &nested("")),
            domain(
                "",
                &repeated(240, |n| {
                    format!("<a xmlns:p{n}='u{n}' xmlns='w{n}'><p{n}:b/>")
                }),
            )
            .replace("</domain>", &format!("{}</domain>", "</a>".repeat(240))),
        ),
        (
            "changes below a long name",
            domain("", &format!("<{0}></{0}>", long(SIZE / 4))),
            domain(
                "",
                &format!("<{0}>{1}</{0}>", long(SIZE / 4), children("b")),
            ),
        ),
        (
            "a child with a long name, removed",
            domain("", &format!("<{}/>{}", long(SIZE), children("b"))),
            plain.clone(),
        ),
        (
            "children that match only late",
            domain("", &disks(&|n| n)),
            domain("", &disks(&|n| ELEMENTS - n)),
        ),
        (
            "children without an identity",
            domain("", &children("a")),
            domain("", &format!("<b/>{}<b/>", children("a"))),
        ),
        (
            "deep nesting, changed at its end",
            domain("", &nested(&children("b"))),
            domain("", &nested(&format!("{}<c/>", children("b")))),
        ),
        (
            "every level with children of its own",
            domain(
                "",
                &format!(
                    "{}{}",
                    format!("{}<a>", "<b/>".repeat(200)).repeat(240),
                    "</a>".repeat(240)
                ),
            ),
            domain(
                "",
                &format!(
                    "{}<c/>{}",
                    format!("{}<a>", "<b/>".repeat(200)).repeat(240),
                    "</a>".repeat(240)
                ),
            ),
        ),
        (
            "small elements, as deep as they are indented",
            plain.clone(),
            domain(
                "",
                &format!("{}{}{}", "<a>".repeat(32), children("b"), "</a>".repeat(32)),
            ),
        ),
        (
            "many attributes",
            domain(
                "",
                &repeated(1_000, |_| {
                    format!("<a{}/>", repeated(128, |n| format!(" a{n}=''")))
                }),
            ),
            domain(
                "",
                &repeated(1_000, |_| {
                    format!("<a{}/>", repeated(128, |n| format!(" b{n}='1'")))
                }),
            ),
        ),
        (
            "more attributes than are accepted",
            plain.clone(),
            domain(
                "",
                &format!("<a{}/>", repeated(10_000, |n| format!(" a{n}=''"))),
            ),
        ),
        (
            "one text",
            domain("", &format!("<t>{}</t>", long(SIZE))),
            domain("", &format!("<t>{}</t>", "m".repeat(SIZE))),
        ),
        (
            "references to entities",
            plain.clone(),
            domain("", &format!("<t a='{0}'>{0}</t>", "&lt;".repeat(SIZE / 8))),
        ),
        (
            "text between elements",
            plain.clone(),
            domain("", &"x<a/>".repeat(ELEMENTS)),
        ),
        (
            "a long value everywhere",
            domain(
                "",
                &repeated(300, |n| format!("<a id='{n}' v='{}'/>", long(3_000))),
            ),
            domain(
                "",
                &repeated(300, |n| format!("<a id='{n}' v='x{}'/>", long(3_000))),
            ),
        ),
        (
            "another name",
            domain("", ""),
            domain("", "").replace("ns_vm", &long(SIZE)),
        ),
        (
            "an end tag that does not match",
            plain.clone(),
            domain("", &format!("<{}></b>", long(SIZE))),
        ),
        (
            "an invalid name",
            plain.clone(),
            domain("", &format!("<a&{}/>", long(SIZE))),
        ),
        (
            "an unknown entity",
            plain,
            domain("", &format!("&{};", long(SIZE))),
        ),
    ]
}
