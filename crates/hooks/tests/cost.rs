//! What the worst answers cost: the memory that checking and comparing one takes, as a multiple of its size. Times are
//! printed (`--nocapture`), and not asserted.
#![allow(unsafe_code, reason = "an allocator can only be counted by being one")]
#![allow(clippy::unwrap_used, reason = "a test ends this way")]

mod peak;
mod worst;

use std::time::{Duration, Instant};

use domain::xml::tree::Element;
use hooks::answer;
use hooks::diff::{diff, summary};
use hooks::plugins::{Applied, InvocationContext, Pipeline, PluginError};
use prost::bytes::Bytes;
use serde_json::json;

/// Limit of the memory for checking and comparing an answer, as a multiple of the size of the two documents. An element
/// of four bytes, `<a/>`, is a name, a list of attributes and a list of what is inside.
const MAX_MULTIPLE: usize = 64;
/// Limit of the text that one comparison may leave behind, in the log and in the report.
const MAX_CHANGES_BYTES: usize = 512 << 10;

#[test]
fn checking_and_comparing_an_answer_takes_a_bounded_multiple_of_its_size() {
    let _alone = peak::alone();
    println!(
        "{:<42} {:>9} {:>12} {:>9} {:>9}",
        "answer", "bytes", "peak", "multiple", "ms"
    );
    let mut exceeded = Vec::new();
    for (name, before, after) in worst::answers() {
        let size = before.len() + after.len();
        let start = Instant::now();
        let (kept, peak) = peak::of(|| {
            let before = Element::parse(&before).unwrap();
            match answer::check(&before, after.as_bytes()) {
                Ok(answer) => {
                    let changes = diff(&before, &answer.tree);
                    serde_json::to_string(&changes).unwrap() + &summary(&changes)
                }
                Err(error) => os::logging::chain(&error),
            }
        });
        println!(
            "{name:<42} {size:>9} {peak:>12} {:>9.1} {:>9}",
            peak as f64 / size as f64,
            start.elapsed().as_millis()
        );
        if kept.len() > MAX_CHANGES_BYTES || peak > MAX_MULTIPLE * size {
            exceeded.push(format!("{name}: {peak} bytes, {} kept", kept.len()));
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}

/// Limit of the memory for an expression. It does not depend on its size, but on the limit of its cost.
const MAX_EXPRESSION_BYTES: usize = 128 << 20;

#[test]
fn an_expression_takes_a_bounded_amount_of_memory() {
    let _alone = peak::alone();
    println!(
        "{:<42} {:>9} {:>12} {:>9}",
        "expression", "bytes", "peak", "ms"
    );
    let domain = worst::domain_of_disks(2_000);
    let mut exceeded = Vec::new();
    for (name, expression) in worst::expressions() {
        let start = Instant::now();
        let (_, peak) =
            peak::of(|| mutated(&domain, &expression).map_err(|error| os::logging::chain(&error)));
        println!(
            "{name:<42} {:>9} {peak:>12} {:>9}",
            expression.len(),
            start.elapsed().as_millis()
        );
        if peak > MAX_EXPRESSION_BYTES {
            exceeded.push(format!("{name}: {peak} bytes"));
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}

/// The domain after a plugin with that expression.
fn mutated(domain: &str, expression: &str) -> Result<Applied, PluginError> {
    let hooks = json!([{"cel": {"expression": expression}}]);
    let plugins = json!([{"metadata": {"name": "p"}, "spec": {"domainHooks": hooks}}]);
    let pipeline = Pipeline::from_json(plugins.to_string().as_bytes())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(pipeline.apply(
        domain.to_owned(),
        &Bytes::from_static(b"{}"),
        InvocationContext::Boot,
        os::time::deadline(Duration::from_secs(60)),
    ))
}
