//! Explanations of cases of the corpus: they cover the whole document, from steps and fields that
//! exist.

use std::sync::atomic::{AtomicUsize, Ordering};

use convert::{Context, RULES, explain::explain};
use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::Value;

use crate::corpus::{self, Case};

pub fn tests() -> Vec<Trial> {
    /// Each case is converted some hundred times: a sample is enough.
    const EVERY: usize = 48;
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let files = ["domain-xml/generated.jsonl", "domain-xml/recorded.jsonl"];
    let in_sample = |case: &Case| {
        case.get("error").is_none() && SEEN.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY)
    };
    corpus::tests("explain", &files, in_sample, |case| {
        check(&case.name, &case.value["vmi"], &case.value["context"]);
        Vec::new()
    })
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
            RULES.iter().any(|rule| rule.name == entry.rule),
            "{name}: {} has the step {:?}",
            entry.path,
            entry.rule
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
