//! Limits the memory for checking and comparing the worst answers, as a multiple of their size.
//! Times are printed (`--nocapture`), not asserted.
#![allow(unsafe_code, reason = "an allocator can only be counted by being one")]

mod peak;
mod worst;

use std::time::Instant;

use domain::xml::tree::Element;
use hooks::answer;
use hooks::diff::{diff, summary};

/// Limit of the memory for checking and comparing an answer, as a multiple of the size of both
/// documents. An element of four bytes, `<a/>`, becomes a name and two lists.
const MAX_MULTIPLE: usize = 64;
/// Limit of the memory for parsing an answer and writing it again, as a multiple of its size.
const MAX_REWRITE_MULTIPLE: usize = 64;
/// Limit of the text that one comparison adds to the log and the report, in bytes.
const MAX_CHANGES_BYTES: usize = 512 << 10;

#[test]
fn checking_and_comparing_an_answer_takes_a_bounded_multiple_of_its_size() {
    println!(
        "{:<42} {:>9} {:>12} {:>9} {:>9} {:>9}",
        "answer", "bytes", "peak", "multiple", "rewrite", "ms"
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
        let time = start.elapsed().as_millis();
        // The launcher writes the answer again for the next plugin.
        let (_, rewrite) = peak::of(|| Element::parse(&after).map(|tree| tree.to_xml().len()));
        println!(
            "{name:<42} {size:>9} {peak:>12} {:>9.1} {:>9.1} {time:>9}",
            peak as f64 / size as f64,
            rewrite as f64 / after.len() as f64,
        );
        if kept.len() > MAX_CHANGES_BYTES || peak > MAX_MULTIPLE * size {
            exceeded.push(format!("{name}: {peak} bytes, {} kept", kept.len()));
        }
        if rewrite > MAX_REWRITE_MULTIPLE * after.len() {
            exceeded.push(format!("{name}: {rewrite} bytes to write it anew"));
        }
    }
    assert!(exceeded.is_empty(), "{exceeded:#?}");
}
