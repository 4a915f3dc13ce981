//! Our own examples of the conversion:
//!
//! ```text
//! convert/NAME/  vmi.json  context.json  domain.xml     what the VMI becomes
//! refused/RULE/  vmi.json  context.json  error.txt      why it is refused, one example for each rule
//! ```

use std::path::Path;

use api::vmi::Vmi;
use convert::Context;
use libtest_mimic::Trial;

use crate::corpus::Differences;
use crate::{golden, rule_order};

pub fn tests() -> Vec<Trial> {
    let mut tests = golden::tests("convert", is_converted);
    tests.extend(golden::tests("refused", is_refused));
    tests
}

fn is_converted(directory: &Path) -> Differences {
    let (vmi, context) = input(directory);
    let mut found = match convert::domain(&vmi, &context) {
        Ok(domain) => golden::compare(&directory.join("domain.xml"), &domain.to_xml()),
        Err(error) => vec![format!("refused: {error}")],
    };
    found.extend(rule_order::differences(&vmi, &context));
    found
}

fn is_refused(directory: &Path) -> Differences {
    let (vmi, context) = input(directory);
    match convert::domain(&vmi, &context) {
        Ok(_) => vec!["accepted, but this example is to be refused".to_owned()],
        Err(error) => golden::compare(&directory.join("error.txt"), &format!("{error}\n")),
    }
}

fn input(directory: &Path) -> (Vmi, Context) {
    let vmi = read(&directory.join("vmi.json"));
    (vmi, read(&directory.join("context.json")))
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_str(&golden::read(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
