//! Plugins without expressions, and evaluators that fail. `crates/cel-evaluator` tests expressions.
use std::path::{Path, PathBuf};
use std::time::Duration;

use os::logging::chain;
use prost::bytes::Bytes;
use serde_json::{Value, json};

#[path = "../../../../tests/executable/mod.rs"]
mod executable;

use super::{Applied, InvocationContext, Pipeline, PluginError};

const DOMAIN: &str = "<domain type=\"kvm\"><name>test-vm</name></domain>";

/// Applies the plugins, with expressions evaluated by the program at `evaluator` within `limit`.
async fn applied(list: &str, evaluator: &Path, limit: Duration) -> Result<Applied, PluginError> {
    let pipeline = Pipeline::from_json(list.as_bytes())?.evaluated_by(evaluator.to_owned());
    pipeline
        .apply(
            DOMAIN.into(),
            &Bytes::from_static(b"{}"),
            InvocationContext::Boot,
            os::time::deadline(limit),
        )
        .await
}

#[tokio::test]
async fn without_plugins_the_domain_xml_stays_byte_for_byte() {
    for list in ["", "null", "[]"] {
        let applied = applied(list, Path::new("/none"), Duration::ZERO)
            .await
            .unwrap();
        assert_eq!(applied.xml, DOMAIN);
        assert_eq!(applied.modified_by, Vec::<String>::new());
    }
    assert!(matches!(
        Pipeline::from_json(b"{"),
        Err(PluginError::List(_))
    ));
}

#[tokio::test]
async fn a_hook_without_cel_and_sidecar_is_skipped_and_a_socket_elsewhere_is_refused() {
    let result = async |hook: Value| {
        let list = json!([{"metadata": {"name": "p"}, "spec": {"domainHooks": [hook]}}]);
        applied(
            &list.to_string(),
            Path::new("/none"),
            Duration::from_secs(60),
        )
        .await
    };
    assert!(result(json!({})).await.unwrap().xml.contains("test-vm"));
    let error = result(json!({"sidecar": {"socketPath": "/tmp/test.sock"}}))
        .await
        .unwrap_err();
    let error = chain(&error);
    assert!(
        error.contains("outside /var/run/kubevirt-plugin/p/"),
        "{error}"
    );
}

/// A shell script in place of the evaluator.
fn evaluator(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("cel-evaluator");
    executable::write_script(&path, &format!("#!/bin/sh\n{script}\n"));
    path
}

#[tokio::test]
async fn an_evaluator_that_fails_is_a_hook_that_fails_under_its_strategy() {
    let dir = tempfile::tempdir().unwrap();
    let long = Duration::from_secs(60);
    let list = |strategy: &str| {
        let hook = json!({"failureStrategy": strategy, "cel": {"expression": "e"}});
        json!([{"metadata": {"name": "p"}, "spec": {"domainHooks": [hook]}}]).to_string()
    };
    for (script, limit, expected) in [
        (
            "echo 'compiling expression: no' >&2; exit 1",
            long,
            "plugin p hook 0 failed: compiling expression: no",
        ),
        (
            "sleep 60",
            Duration::from_millis(800),
            "the expression has no result after ",
        ),
        ("kill -KILL $$", long, "failed (signal: 9 (SIGKILL))"),
        (
            "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
            long,
            "it wrote more than",
        ),
        ("echo '<domain/>'", long, "the domain's name was changed"),
        ("exit 0", long, "is empty"),
        ("exit 101", long, "failed (exit status: 101)"),
    ] {
        let program = evaluator(dir.path(), script);
        let error = chain(&applied(&list("Fail"), &program, limit).await.unwrap_err());
        assert!(
            error.starts_with("plugin p hook 0 failed: ") && error.contains(expected),
            "{script}: {error}"
        );
        let ignored = applied(&list("Ignore"), &program, limit).await.unwrap();
        assert_eq!(ignored.modified_by, Vec::<String>::new(), "{script}");
    }
    let missing = dir.path().join("missing");
    let error = chain(&applied(&list("Fail"), &missing, long).await.unwrap_err());
    assert!(
        error.contains("missing failed (exit status: 127)") && error.contains("is it installed?"),
        "{error}"
    );
}

#[tokio::test]
async fn an_evaluator_gets_the_expression_the_domain_and_the_vmi_within_limits() {
    let dir = tempfile::tempdir().unwrap();
    let seen = dir.path().join("seen");
    let script = format!(
        "(echo $1; tr '\\0' '\\n'; echo; ulimit -v; ulimit -t) > {}; echo false",
        seen.display()
    );
    let list = json!([{"metadata": {"name": "p"}, "spec": {"condition": "1 == 2"}}]).to_string();
    let program = evaluator(dir.path(), &script);
    applied(&list, &program, Duration::from_secs(60))
        .await
        .unwrap();
    let seen = std::fs::read_to_string(seen).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    let [kind, expression, domain @ .., vmi, memory, cpu] = &lines[..] else {
        panic!("{seen}")
    };
    assert_eq!([*kind, *expression], ["condition", "1 == 2"]);
    assert!(domain.concat().contains("<name>test-vm</name>"), "{seen}");
    assert_eq!([*vmi, *memory, *cpu], ["{}", "524288", "10"]);
}

#[test]
fn a_refusal_without_a_text_says_so() {
    let refused = |text: &str| {
        let status = tonic::Status::aborted(text);
        crate::HookCallError::from_status(status, 1).to_string()
    };
    assert_eq!(refused(" "), "failed with Aborted: it gave no reason");
    assert_eq!(refused("no licence"), "failed with Aborted: no licence");
}
