//! Explanations of the conformance cases: they tell of the whole document, from steps and fields
//! that are there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends this way")]

mod common;

use convert::{Context, STEPS, explain::explain};
use serde::Deserialize;
use serde_json::Value;

/// Each case is converted some hundred times: a sample is enough.
const EVERY: usize = 48;

#[test]
fn every_entry_has_a_step_and_sources_that_exist() {
    for file in ["domain-xml/generated.jsonl", "domain-xml/recorded.jsonl"] {
        let Some(cases) = common::corpus(file) else {
            return;
        };
        for case in cases
            .iter()
            .filter(|case| case.value.get("error").is_none())
            .step_by(EVERY)
        {
            check(&case.name, &case.value["vmi"], &case.value["context"]);
        }
    }
}

fn check(name: &str, vmi: &Value, context: &Value) {
    let ctx = Context::deserialize(context).unwrap();
    let explanation = explain(vmi, &ctx).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(
        explanation.entries.len() > 20,
        "{name}: {} entries",
        explanation.entries.len()
    );
    for entry in &explanation.entries {
        assert!(
            STEPS.iter().any(|step| step.name == entry.step),
            "{name}: {} has the step {:?}",
            entry.path,
            entry.step
        );
        for source in &entry.sources {
            let exists = source
                .strip_prefix("context.")
                .map_or_else(|| field(vmi, source).is_some(), |member| !member.is_empty());
            assert!(
                exists,
                "{name}: {} comes from {source}, which is not there",
                entry.path
            );
        }
    }
    let memory = explanation
        .entries
        .iter()
        .find(|entry| entry.path == "/domain/memory")
        .unwrap();
    assert!(
        memory.value == "0"
            || memory
                .sources
                .iter()
                .any(|source| source.contains("memory")),
        "{name}: {memory:?}"
    );
}

/// The field at a path such as `spec.volumes[0].name` or `metadata.annotations[kubevirt.io/memfd]`.
fn field<'v>(vmi: &'v Value, path: &str) -> Option<&'v Value> {
    let mut value = vmi;
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let (segment, after) = if let Some(inside) = rest.strip_prefix('[') {
            inside.split_once(']')?
        } else {
            rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()))
        };
        value = segment
            .parse::<usize>()
            .map_or_else(|_| value.get(segment), |index| value.get(index))?;
        rest = after;
    }
    Some(value)
}
