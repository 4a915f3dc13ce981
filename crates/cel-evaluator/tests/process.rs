//! Runs plugins with the program `cel-evaluator`: order, conditions, failures, hostile expressions.

use std::time::{Duration, Instant};

use hooks::plugins::{Applied, InvocationContext, Pipeline, PluginError};
use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::{Value, json};

const DOMAIN: &str = "<domain type=\"kvm\"><name>test-vm</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid></domain>";
const VMI: &[u8] = br#"{"metadata": {"name": "test-vmi", "namespace": "default"}}"#;

/// Time left in the request, for tests that do not depend on it.
const LONG: Duration = Duration::from_secs(60);

async fn applied_within(limit: Duration, plugins: &Value) -> Result<Applied, PluginError> {
    let pipeline = Pipeline::from_json(plugins.to_string().as_bytes())
        .unwrap()
        .evaluated_by(env!("CARGO_BIN_EXE_cel-evaluator").into());
    let vmi = Bytes::from_static(VMI);
    pipeline
        .apply(
            DOMAIN.into(),
            &vmi,
            InvocationContext::Boot,
            os::time::deadline(limit),
        )
        .await
}

async fn applied(plugins: Value) -> Result<Applied, PluginError> {
    applied_within(LONG, &plugins).await
}

async fn apply(plugins: Value) -> Result<String, PluginError> {
    applied(plugins).await.map(|applied| applied.xml)
}

/// The text of the error, with its causes.
async fn refusal(plugins: Value) -> String {
    chain(&apply(plugins).await.unwrap_err())
}

fn plugin(name: &str, hooks: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"domainHooks": hooks}})
}

fn titled(title: &str) -> Value {
    json!({"cel": {"expression": format!("Domain{{Title: {title:?}}}")}})
}

#[tokio::test]
async fn plugins_apply_by_name_and_hooks_as_declared() {
    let xml = apply(json!([
        plugin("beta", json!([titled("from-beta")])),
        plugin("alpha", json!([titled("from-alpha")]))
    ]))
    .await
    .unwrap();
    assert!(
        xml.contains("from-beta") && !xml.contains("from-alpha"),
        "{xml}"
    );
    let xml = apply(json!([plugin(
        "p",
        json!([titled("first"), titled("second")])
    )]))
    .await
    .unwrap();
    assert!(xml.contains("second") && !xml.contains("first"), "{xml}");
}

#[tokio::test]
async fn a_plugin_is_read_as_virt_handler_writes_it() {
    let list = json!([{
        "metadata": {"name": "p", "creationTimestamp": null, "resourceVersion": "7"},
        "spec": {
            "condition": "vmi.Name != ''", "failureStrategy": "Fail",
            "domainHooks": [
                {"cel": {"expression": "Domain{Title: 'set'}"}, "failureStrategy": "Ignore", "timeout": "1m30s"},
                // An incomplete hook fails; it does not make the list unreadable.
                {"cel": {}, "failureStrategy": "Ignore"},
                {"sidecar": {}, "failureStrategy": "Ignore", "timeout": "100µs"},
            ],
            "nodeHooks": [{"socket": "/node.sock", "permittedHooks": ["PreVMStart"]}],
            "mutatingAdmissionPolicies": [{"name": "m"}], "validatingAdmissionWebhooks": null,
        },
        "status": {},
    }]);
    assert!(apply(list).await.unwrap().contains("<title>set</title>"));
}

#[tokio::test]
async fn modified_by_names_the_plugins_that_changed_the_domain() {
    let same = json!({"cel": {"expression": "Domain{}"}});
    let plugins = json!([
        plugin("b", json!([same])),
        plugin("c", json!([titled("1"), titled("2")])),
        plugin("a", json!([titled("0")]))
    ]);
    assert_eq!(applied(plugins).await.unwrap().modified_by, ["a", "c"]);
}

#[tokio::test]
async fn plugins_and_hooks_apply_when_their_conditions_hold() {
    let with = async |outer: &str, inner: &str| {
        let hook = json!({"condition": inner, "cel": {"expression": r#"Domain{Title: "set"}"#}});
        apply(json!([{"metadata": {"name": "p"}, "spec": {"condition": outer, "domainHooks": [hook]}}]))
            .await
            .unwrap()
            .contains("set")
    };
    assert!(with("", "").await && with("true", r#"vmi.Namespace == "default""#).await);
    assert!(!with("false", "true").await && !with("true", r#"vmi.Namespace == "wrong""#).await);
}

#[tokio::test]
async fn a_failing_condition_fails_whatever_the_strategy() {
    let bad = json!({"metadata": {"name": "p"}, "spec": {"condition": "invalid!!!", "failureStrategy": "Ignore", "domainHooks": [titled("x")]}});
    assert!(matches!(
        apply(json!([bad])).await.unwrap_err(),
        PluginError::Condition { hook: None, .. }
    ));
    let bad = json!({"metadata": {"name": "p"}, "spec": {"domainHooks": [{"condition": "1", "failureStrategy": "Ignore"}]}});
    let error = refusal(json!([bad])).await;
    assert!(
        error
            .starts_with("plugin p hook 0 condition evaluation failed: condition must return bool"),
        "{error}"
    );
}

#[tokio::test]
async fn failure_strategy_of_the_hook_then_of_the_plugin_then_fail() {
    for (plugin, hook, fails) in [
        ("", "Fail", true),
        ("", "Ignore", false),
        ("", "", true),
        ("Ignore", "", false),
        ("Ignore", "Fail", true),
    ] {
        let bad = json!({"failureStrategy": hook, "cel": {"expression": "invalid!!! expression"}});
        let result = apply(
            json!([{"metadata": {"name": "p"}, "spec": {"failureStrategy": plugin, "domainHooks": [bad, titled("after")]}}]),
        )
        .await;
        match result {
            Ok(xml) => assert!(!fails && xml.contains("after"), "{plugin:?} {hook:?}"),
            Err(error) => {
                let error = chain(&error);
                let expected = "plugin p hook 0 failed: compiling";
                assert!(fails && error.starts_with(expected), "{error}");
            }
        }
    }
}

#[tokio::test]
// D-hook-8 (docs/differences.md).
async fn a_mutation_that_renames_the_domain_is_refused() {
    for (expression, expected) in [
        (r#"Domain{Name: "other"}"#, "the domain's name was changed"),
        (r#"Domain{UUID: ""}"#, "the domain's UUID was changed"),
    ] {
        let hooks = json!([{"cel": {"expression": expression}}]);
        let error = refusal(json!([plugin("p", hooks)])).await;
        assert!(error.contains(expected), "{expression}: {error}");
    }
}

/// An expression that doubles a list sixty times.
fn doubled() -> String {
    let steps = ".map(x, [x, x, x, x, x, x, x, x])".repeat(60);
    format!("size([vmi.Name]{steps}) == 1")
}

/// An expression with `depth` nested loops of 40 steps each.
fn endless(depth: usize) -> String {
    let range = format!("[{}]", ["1"; 40].join(","));
    (0..depth).fold("true".to_owned(), |inner, level| {
        format!("{range}.all(x{level}, {inner})")
    })
}

#[tokio::test]
async fn an_expression_that_takes_too_long_is_ended_at_the_requests_deadline() {
    let start = Instant::now();
    let plugins = json!([{"spec": {"condition": endless(8)}}]);
    let error = applied_within(Duration::from_millis(800), &plugins)
        .await
        .unwrap_err();
    let error = chain(&error);
    assert!(
        error.contains("the expression has no result after "),
        "{error}"
    );
    assert!(start.elapsed() < LONG / 2);
}

#[tokio::test]
// D-hook-7 (docs/differences.md).
async fn an_expression_that_takes_too_much_memory_or_stack_ends_its_process_and_nothing_else() {
    let deep = format!("0{} == 0", "+0".repeat(20_000));
    for (expression, expected) in [
        (doubled(), "memory allocation of"),
        (deep, "has overflowed its stack"),
    ] {
        let hook = json!({"condition": expression, "cel": {"expression": "Domain{}"}});
        let error = refusal(json!([plugin("p", json!([hook]))])).await;
        let begins =
            "plugin p hook 0 condition evaluation failed: the expression cannot be evaluated: ";
        assert!(error.starts_with(begins), "{error}");
        assert!(
            error.contains("signal: 6") && error.contains(expected),
            "{error}"
        );

        let mutation = format!("Domain{{Title: string({expression})}}");
        let hook = json!({"failureStrategy": "Ignore", "cel": {"expression": mutation}});
        let xml = apply(json!([plugin("p", json!([hook, titled("after")]))]))
            .await
            .unwrap();
        assert!(xml.contains("<title>after</title>"), "{xml}");
    }
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused() {
    let long = (0..22).fold("'abcd'".to_owned(), |text, _| {
        format!("[{text}].map(x, x + x)[0]")
    });
    let error = refusal(json!([plugin(
        "p",
        json!([{"cel": {"expression": format!("Domain{{Title: {long}}}")}}])
    )]))
    .await;
    assert!(error.contains("it wrote more than"), "{error}");
}

#[tokio::test]
async fn brackets_are_refused_beyond_a_depth_and_the_error_is_short() {
    let error = refusal(json!([{"spec": {"condition": "(".repeat(50_000)}}])).await;
    assert!(
        error.contains("Recursion limit of 96") && error.len() < 10_000,
        "{error}"
    );
}

#[tokio::test]
async fn what_authors_write_at_most_is_evaluated() {
    for condition in [
        format!("{}true{}", "(".repeat(95), ")".repeat(95)),
        format!("0{} == 0", "+0".repeat(2_000)),
        endless(3),
    ] {
        let plugins = json!([{"spec": {"condition": condition, "domainHooks": [titled("set")]}}]);
        assert!(apply(plugins).await.unwrap().contains("<title>set</title>"));
    }
}
