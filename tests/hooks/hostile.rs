//! A sidecar may answer anything: each call ends with a domain or an error, never with a crash or a
//! hang.

use std::sync::OnceLock;
use std::time::Duration;

use crate::support::{Fake, Pod, XML, vmi};
use hooks::{RequestId, Sidecars};
use proptest::prelude::*;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// A sidecar whose answer can be changed, and the launcher's side of it.
struct Bench {
    runtime: Runtime,
    sidecars: Sidecars,
    answer: crate::support::Answer,
    _pod: Pod,
}

fn bench() -> &'static Bench {
    static BENCH: OnceLock<Bench> = OnceLock::new();
    BENCH.get_or_init(|| {
        let pod = Pod::new();
        let (fake, answer) = Fake::answering();
        let _server = pod.serve("hook-sidecar-0/s", fake);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let sidecars = runtime
            .block_on(Sidecars::collect(
                pod.dir(),
                1,
                Instant::now() + Duration::from_secs(30),
            ))
            .unwrap();
        Bench {
            runtime,
            sidecars,
            answer,
            _pod: pod,
        }
    })
}

/// The domain XML, or the error, for a sidecar that answers with `answer`.
fn outcome(answer: &[u8]) -> Result<String, String> {
    // One at a time: they share the sidecar.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock();
    let bench = bench();
    bench.answer.set(answer);
    let deadline = Instant::now() + Duration::from_secs(60);
    bench
        .runtime
        .block_on(bench.sidecars.on_define_domain(
            XML.into(),
            &vmi(),
            RequestId::unique(),
            deadline,
        ))
        .map(|applied| applied.xml)
        .map_err(|error| os::logging::chain(&error))
}

/// A document that is nearly one: tags, attributes, entities and garbage in any order.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<domain>".to_owned()),
        Just("</domain>".to_owned()),
        Just("<name>ns_vm</name>".to_owned()),
        Just("<uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid>".to_owned()),
        Just("<!--".to_owned()),
        Just("-->".to_owned()),
        Just("<![CDATA[".to_owned()),
        Just("]]>".to_owned()),
        Just("<?xml version='1.0' encoding='".to_owned()),
        Just("?>".to_owned()),
        Just("<!DOCTYPE x [<!ENTITY e 'e'>]>".to_owned()),
        Just("&e;&amp;&#0;&#x110000;".to_owned()),
        "<[a-z:]{1,4}( [a-z]{1,2}='[^'<]{0,4}'){0,3}/?>".prop_map(|tag| tag),
        "</[a-z]{1,4}>".prop_map(|tag| tag),
        ".{0,8}".prop_map(|text| text),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

/// An element with anything well-formed in it.
fn element() -> impl Strategy<Value = String> {
    let leaf = (
        "[a-zA-Z_][a-zA-Z0-9_.-]{0,8}",
        "[a-z]{1,4}",
        "[^<&\"\\x00-\\x1f\\u{fffe}\\u{ffff}]{0,12}",
    )
        .prop_map(|(name, key, value)| {
            format!(
                "<{name} {key}=\"{value}\">{}</{name}>",
                value.replace(']', "")
            )
        });
    leaf.prop_recursive(5, 40, 5, |inner| {
        ("[a-z]{1,6}", proptest::collection::vec(inner, 0..5))
            .prop_map(|(name, inner)| format!("<{name}>{}</{name}>", inner.concat()))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_end_in_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let error = outcome(&bytes).unwrap_err();
        prop_assert!(error.contains("hook-sidecar-0/s"), "{error}");
    }

    #[test]
    fn almost_xml_ends_in_a_domain_or_an_error(text in soup()) {
        match outcome(text.as_bytes()) {
            Ok(xml) => prop_assert!(xml.contains("ns_vm"), "{xml}"),
            Err(error) => prop_assert!(error.contains("hook-sidecar-0/s"), "{error}"),
        }
    }

    #[test]
    fn added_elements_arrive_unchanged(added in element()) {
        let answer = XML.replace("</domain>", &format!("{added}</domain>"));
        // An element of its own called "name" comes after the real one and does not count.
        prop_assert_eq!(outcome(answer.as_bytes()), Ok(answer));
    }

    #[test]
    fn a_truncated_answer_is_refused_with_its_line(cut in 1..XML.len()) {
        let error = outcome(&XML.as_bytes()[..cut]).unwrap_err();
        prop_assert!(error.contains("line 1"), "{error}");
    }
}

#[test]
fn many_siblings_and_deep_nesting_are_refused() {
    for (answer, expected) in [
        (
            format!("<domain>{}</domain>", "<a/>".repeat(900_000)),
            "elements",
        ),
        (
            format!(
                "<domain{}/>",
                (0..300_000)
                    .map(|n| format!(" a{n}=''"))
                    .collect::<String>()
            ),
            "attributes",
        ),
        ("<domain>".repeat(400_000), "levels of nesting"),
        (format!("{}<domain/>", "\n".repeat(4 << 20)), "bytes"),
    ] {
        let error = outcome(answer.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    // Within the bounds, and all alike: comparing them must not take the square of their number.
    let many = XML.replace("</domain>", &format!("{}</domain>", "<a/>".repeat(49_000)));
    assert_eq!(outcome(many.as_bytes()), Ok(many));
}
