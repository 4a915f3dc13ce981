//! Measures a conversion over the public corpus (VMI as JSON → [`Vmi`] → domain → XML): time and
//! allocations for each case.
//!
//! `cargo bench --bench convert [-- FILTER]`; the filter chooses cases by a part of their names.
//!
//! Results of all three steps on two shared cores, for each of the 768 cases: 26 µs and 224
//! allocations. `recorded` takes 17 µs and 134 allocations (the reference: 214 µs and 471),
//! `generated` 32 µs and 299 (328 µs and 480). The 23 guests with Grace GPUs take longest (118 µs):
//! their conversion reads much of sysfs and writes the distances between up to 34 NUMA cells.

#![allow(unsafe_code, reason = "an allocator can only be counted by being one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use api::vmi::Vmi;
use convert::{self, Context};
use domain::DomainSpec;

/// The system's allocator, counting allocations and bytes.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    BYTES.fetch_add(bytes as u64, Relaxed);
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract of
// the trait; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as promised by our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as promised by our caller; the block is from `System`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: as promised by our caller; the block is from `System`.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How long each step is measured.
const DURATION: Duration = Duration::from_millis(1500);

#[derive(Clone)]
struct Case {
    vmi_json: String,
    vmi: Vmi,
    context: Context,
    domain: DomainSpec,
}

/// The accepted cases of a corpus file; `None` where it is missing.
fn cases(file: &str, filter: Option<&str>) -> Option<Vec<Case>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/conformance/domain-xml")
        .join(file);
    let text = std::fs::read_to_string(&path)
        .map_err(|e| println!("skipped: {}: {e}", path.display()))
        .ok()?;
    let case = |line: &str| {
        let mut line: serde_json::Value =
            serde_json::from_str(line).expect("a line of the corpus is JSON");
        let name = line["name"].as_str().unwrap_or_default().to_owned();
        if filter.is_some_and(|filter| !name.contains(filter)) {
            return None;
        }
        let context: Context = serde_json::from_value(line["context"].take())
            .expect("a context of the corpus can be read");
        let vmi_json = line["vmi"].to_string();
        let vmi: Vmi = serde_json::from_str(&vmi_json).expect("a VMI of the corpus can be read");
        let domain = convert::domain(&vmi, &context).ok()?;
        Some(Case {
            vmi_json,
            vmi,
            context,
            domain,
        })
    };
    Some(text.lines().filter_map(case).collect())
}

/// Runs `step` over all cases for [`DURATION`]. Returns, for each case, the best round's time in
/// µs, its allocations and its bytes.
fn measure(cases: &[Case], step: impl Fn(&Case)) -> (f64, f64, f64) {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let each = cases.len() as f64;
    let (mut allocations, mut bytes) = (0, 0);
    while begin.elapsed() < DURATION {
        let before = (ALLOCATIONS.load(Relaxed), BYTES.load(Relaxed));
        let round = Instant::now();
        cases.iter().for_each(&step);
        best = best.min(round.elapsed().as_secs_f64() * 1e6 / each);
        (allocations, bytes) = (
            ALLOCATIONS.load(Relaxed) - before.0,
            BYTES.load(Relaxed) - before.1,
        );
    }
    (best, allocations as f64 / each, bytes as f64 / each)
}

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let files = ["generated.jsonl", "recorded.jsonl"]
        .map(|file| (file, cases(file, filter.as_deref()).unwrap_or_default()));
    let both = files.iter().flat_map(|(_, cases)| cases.clone()).collect();
    for (file, cases) in files.into_iter().chain([("both", both)]) {
        if cases.is_empty() {
            continue;
        }
        println!("{file}: {} cases", cases.len());
        println!(
            "  {:<22} {:>9} {:>12} {:>12}",
            "step", "µs", "allocations", "bytes"
        );
        let report = |name: &str, (time, allocations, bytes): (f64, f64, f64)| {
            println!("  {name:<22} {time:>9.1} {allocations:>12.1} {bytes:>12.0}");
        };
        report(
            "parse",
            measure(&cases, |case| {
                drop(black_box(serde_json::from_str::<Vmi>(&case.vmi_json)))
            }),
        );
        report(
            "convert",
            measure(&cases, |case| {
                drop(black_box(convert::domain(&case.vmi, &case.context)))
            }),
        );
        report(
            "write",
            measure(&cases, |case| drop(black_box(case.domain.to_xml()))),
        );
        report(
            "parse, convert, write",
            measure(&cases, |case| {
                let vmi: Vmi = serde_json::from_str(&case.vmi_json).expect("read before");
                let domain = convert::domain(&vmi, &case.context).expect("converted before");
                drop(black_box(domain.to_xml()));
            }),
        );
    }
}
