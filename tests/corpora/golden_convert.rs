//! Our own examples of the conversion:
//!
//! ```text
//! convert/NAME/  vmi.json  context.json  domain.xml     what the VMI becomes
//! refused/RULE/  vmi.json  context.json  error.txt      why it is refused, one example for each rule
//! ```

use std::path::Path;

use api::vmi::Vmi;
use convert::{Context, ConvertError};
use domain::DomainSpec;
use libtest_mimic::Trial;

use crate::corpus::Differences;
use crate::golden;

pub fn tests() -> Vec<Trial> {
    let mut tests = golden::tests("convert", is_converted);
    tests.extend(golden::tests("refused", is_refused));
    tests
}

fn is_converted(directory: &Path) -> Differences {
    match convert(directory) {
        Ok(domain) => golden::compare(&directory.join("domain.xml"), &domain.to_xml()),
        Err(error) => vec![format!("refused: {error}")],
    }
}

fn is_refused(directory: &Path) -> Differences {
    match convert(directory) {
        Ok(_) => vec!["accepted, but this example is to be refused".to_owned()],
        Err(error) => golden::compare(&directory.join("error.txt"), &format!("{error}\n")),
    }
}

fn convert(directory: &Path) -> Result<DomainSpec, ConvertError> {
    let vmi: Vmi = read(&directory.join("vmi.json"));
    let context: Context = read(&directory.join("context.json"));
    convert::domain(&vmi, &context)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    serde_json::from_str(&golden::read(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
