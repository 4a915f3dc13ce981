//! Random VMIs and contexts, made from the types themselves: whatever they are, the conversion does
//! not panic, and the XML that it writes is read back to the same domain.
//!
//! `CASES=100000 SEED=7 cargo test -p virt-launcher-convert --test random` runs more, and others; a
//! failure names the seed of its case.

mod value;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};

use api::vmi::Vmi;
use convert::{self, Context};
use domain::DomainSpec;
use value::Random;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[test]
fn conversion_never_panics_and_its_xml_reads_back() {
    let (first, cases) = (number("SEED", 1), number("CASES", 2000));
    let (mut accepted, mut refused) = (0_u64, 0_u64);
    for seed in first..first + cases {
        let mut random = Random::new(seed);
        let vmi: Vmi = random.value();
        let context: Context = random.value();
        let outcome = catch_unwind(AssertUnwindSafe(|| convert::domain(&vmi, &context)));
        let Ok(outcome) = outcome else {
            panic!("SEED={seed} CASES=1: the conversion panicked on\n{vmi:#?}\n{context:#?}")
        };
        match outcome {
            Ok(domain) => {
                accepted += 1;
                let xml = domain.to_xml();
                let read = DomainSpec::from_xml(&xml)
                    .unwrap_or_else(|e| panic!("SEED={seed} CASES=1: {e}\n{xml}"));
                assert!(
                    read == domain,
                    "SEED={seed} CASES=1: read back differently\n{xml}\n{}",
                    read.to_xml()
                );
            }
            Err(error) => {
                refused += 1;
                assert!(
                    !error.field.is_empty() && !error.reason.to_string().is_empty(),
                    "SEED={seed} CASES=1: {error}"
                );
            }
        }
    }
    println!("{accepted} accepted, {refused} refused");
    // Both must occur often, or the generator has lost its aim.
    assert!(
        accepted * 5 > cases && refused * 50 > cases,
        "{accepted} of {cases} accepted"
    );
}
