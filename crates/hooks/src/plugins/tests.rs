//! The order of plugins and hooks, conditions, and failure strategies.
use std::time::Duration;

use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Applied, InvocationContext, Pipeline, PluginError};

const DOMAIN: &str = "<domain type=\"kvm\"><name>test-vm</name><uuid>5d307ca9-b3ef-428c-8861-06e72d69f223</uuid></domain>";

fn vmi() -> Value {
    json!({"metadata": {"name": "test-vmi", "namespace": "default"}})
}

fn later() -> Instant {
    os::time::deadline(Duration::from_secs(60))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

fn apply(plugins: Value) -> Result<String, PluginError> {
    applied(plugins).map(|applied| applied.xml)
}

/// The text of the error, with its causes.
fn refusal(plugins: Value) -> String {
    chain(&apply(plugins).unwrap_err())
}

fn applied(plugins: Value) -> Result<Applied, PluginError> {
    let pipeline = Pipeline::from_json(plugins.to_string().as_bytes()).unwrap();
    block_on(pipeline.apply(
        DOMAIN.into(),
        &Bytes::from(vmi().to_string()),
        InvocationContext::Boot,
        later(),
    ))
}

fn plugin(name: &str, hooks: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"domainHooks": hooks}})
}

fn titled(title: &str) -> Value {
    json!({"cel": {"expression": format!("Domain{{Title: {title:?}}}")}})
}

#[test]
fn plugins_apply_by_name_and_hooks_as_declared() {
    let xml = apply(json!([
        plugin("beta", json!([titled("from-beta")])),
        plugin("alpha", json!([titled("from-alpha")]))
    ]))
    .unwrap();
    assert!(
        xml.contains("from-beta") && !xml.contains("from-alpha"),
        "{xml}"
    );
    let xml = apply(json!([plugin(
        "p",
        json!([titled("first"), titled("second")])
    )]))
    .unwrap();
    assert!(xml.contains("second") && !xml.contains("first"), "{xml}");
}

#[test]
fn a_plugin_is_read_as_virt_handler_writes_it() {
    let list = json!([{
        "metadata": {"name": "p", "creationTimestamp": null, "resourceVersion": "7"},
        "spec": {
            "condition": "vmi.Name != ''", "failureStrategy": "Fail",
            "domainHooks": [
                {"cel": {"expression": "Domain{Title: 'set'}"}, "failureStrategy": "Ignore", "timeout": "1m30s"},
                // Half of a hook is a hook that fails, and no list that cannot be read.
                {"cel": {}, "failureStrategy": "Ignore"},
                {"sidecar": {}, "failureStrategy": "Ignore", "timeout": "100µs"},
            ],
            "nodeHooks": [{"socket": "/node.sock", "permittedHooks": ["PreVMStart"]}],
            "mutatingAdmissionPolicies": [{"name": "m"}], "validatingAdmissionWebhooks": null,
        },
        "status": {},
    }]);
    assert!(apply(list).unwrap().contains("<title>set</title>"));
}

#[test]
fn modified_by_names_the_plugins_that_changed_the_domain() {
    let same = json!({"cel": {"expression": "Domain{}"}});
    let plugins = json!([
        plugin("b", json!([same])),
        plugin("c", json!([titled("1"), titled("2")])),
        plugin("a", json!([titled("0")]))
    ]);
    assert_eq!(applied(plugins).unwrap().modified_by, ["a", "c"]);
}

#[test]
fn without_plugins_the_domain_xml_stays_byte_for_byte() {
    for list in ["", "null", "[]"] {
        let pipeline = Pipeline::from_json(list.as_bytes()).unwrap();
        let applied = block_on(pipeline.apply(
            DOMAIN.into(),
            &Bytes::from_static(b"{}"),
            InvocationContext::Boot,
            later(),
        ))
        .unwrap();
        assert_eq!(
            applied,
            Applied {
                xml: DOMAIN.into(),
                modified_by: Vec::new()
            }
        );
    }
    assert!(matches!(
        Pipeline::from_json(b"{"),
        Err(PluginError::List(_))
    ));
}

#[test]
fn plugins_and_hooks_apply_when_their_conditions_hold() {
    let with = |outer: &str, inner: &str| {
        let hook = json!({"condition": inner, "cel": {"expression": r#"Domain{Title: "set"}"#}});
        apply(json!([{"metadata": {"name": "p"}, "spec": {"condition": outer, "domainHooks": [hook]}}])).unwrap().contains("set")
    };
    assert!(with("", "") && with("true", r#"vmi.Namespace == "default""#));
    assert!(!with("false", "true") && !with("true", r#"vmi.Namespace == "wrong""#));
}

#[test]
fn a_failing_condition_fails_whatever_the_strategy() {
    let bad = json!({"metadata": {"name": "p"}, "spec": {"condition": "invalid!!!", "failureStrategy": "Ignore", "domainHooks": [titled("x")]}});
    assert!(matches!(
        apply(json!([bad])).unwrap_err(),
        PluginError::Condition { hook: None, .. }
    ));
    let bad = json!({"metadata": {"name": "p"}, "spec": {"domainHooks": [{"condition": "1", "failureStrategy": "Ignore"}]}});
    let error = refusal(json!([bad]));
    assert!(
        error
            .starts_with("plugin p hook 0 condition evaluation failed: condition must return bool"),
        "{error}"
    );
}

#[test]
fn failure_strategy_of_the_hook_then_of_the_plugin_then_fail() {
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
        );
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

#[test]
fn a_hook_without_cel_and_sidecar_is_skipped_and_a_socket_elsewhere_is_refused() {
    assert!(
        apply(json!([plugin("p", json!([{}, titled("after")]))]))
            .unwrap()
            .contains("after")
    );
    let error = refusal(json!([plugin(
        "p",
        json!([{"sidecar": {"socketPath": "/tmp/test.sock"}}])
    )]));
    assert!(
        error.contains("outside /var/run/kubevirt-plugin/p/"),
        "{error}"
    );
}

#[test]
fn an_expression_that_takes_too_long_times_out() {
    let range = format!("[{}]", vec!["1"; 40].join(","));
    let slow = format!(
        "{range}.all(a, {range}.all(b, {range}.all(c, {range}.all(d, a + b + c + d == 4))))"
    );
    let pipeline = Pipeline::from_json(
        json!([{"spec": {"condition": slow}}])
            .to_string()
            .as_bytes(),
    )
    .unwrap();
    let result = block_on(async {
        let until = os::time::deadline(Duration::from_millis(200));
        pipeline
            .apply(
                DOMAIN.into(),
                &Bytes::from_static(b"{}"),
                InvocationContext::Boot,
                until,
            )
            .await
    });
    assert!(chain(&result.unwrap_err()).contains("no result after"));
}

#[test]
// D-hook-8 (docs/differences.md).
fn a_mutation_that_renames_the_domain_is_refused() {
    for (expression, expected) in [
        (r#"Domain{Name: "other"}"#, "the domain's name was changed"),
        (r#"Domain{UUID: ""}"#, "the domain's UUID was changed"),
    ] {
        let hooks = json!([{"cel": {"expression": expression}}]);
        let error = refusal(json!([plugin("p", hooks)]));
        assert!(error.contains(expected), "{expression}: {error}");
    }
}
