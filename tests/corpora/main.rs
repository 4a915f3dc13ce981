//! Each case of the conformance corpora, of our goldens, and of what is derived from them, as a
//! test with its own name:
//!
//! ```text
//! cargo test --test corpora                          all
//! cargo test --test corpora domain_xml/generated     those with this in their names
//! BLESS=1 cargo test --test corpora golden           rewrites the goldens; read the change
//! ```
//!
//! The corpora are read from `../shared/conformance`, or from where `CONFORMANCE_DIR` says. Where
//! they are missing their tests are shown as ignored; with `CI` set they fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends this way"
)]

mod compare;
mod corpus;
mod disk_plan;
mod domain_json;
mod domain_xml;
mod explain;
mod golden;
mod golden_convert;
mod golden_interface_plan;
mod golden_plan;
#[cfg(feature = "libvirt")]
mod libvirt_accepts;
mod premigration;
mod round_trip;
mod rule_order;
mod stats;

use std::process::ExitCode;

use libtest_mimic::{Arguments, run};

fn main() -> ExitCode {
    let mut tests = compare::tests();
    tests.extend(domain_xml::tests());
    tests.extend(domain_json::tests());
    tests.extend(disk_plan::tests());
    tests.extend(round_trip::tests());
    tests.extend(rule_order::tests());
    tests.extend(explain::tests());
    tests.extend(golden_convert::tests());
    tests.extend(golden_interface_plan::tests());
    tests.extend(golden_plan::tests());
    tests.extend(stats::tests());
    tests.extend(premigration::tests());
    #[cfg(feature = "libvirt")]
    tests.extend(libvirt_accepts::tests());
    run(&Arguments::from_args(), tests).exit_code()
}
