//! VMI to domain XML, against the reference's for the same VMI and context; where the
//! reference refuses, we refuse.

use api::vmi::Vmi;
use convert::Context;
use libtest_mimic::Trial;

use crate::compare::xml;
use crate::corpus::{self, Case, Differences};
use crate::rule_order;

pub fn tests() -> Vec<Trial> {
    let files = ["domain-xml/generated.jsonl", "domain-xml/recorded.jsonl"];
    corpus::tests("domain_xml", &files, |_| true, check)
}

fn check(case: &Case) -> Differences {
    let (vmi, context) = (&case.value["vmi"], &case.value["context"]);
    let outcome = convert(&vmi.to_string(), &context.to_string());
    match (outcome, case.get("error").and_then(|error| error.as_str())) {
        (Ok((xml, by_order)), None) => {
            let mut found = xml::differences(case.text("xml"), &xml);
            found.extend(by_order);
            found
        }
        (Err(_), Some(_)) => Vec::new(),
        (Ok(_), Some(error)) => vec![format!("accepted, but the reference refuses: {error}")],
        (Err(error), None) => vec![format!("refused: {error}")],
    }
}

/// The XML, and where it depends on an order of the rules that they do not ask for.
fn convert(vmi: &str, context: &str) -> Result<(String, Differences), String> {
    let vmi: Vmi = serde_json::from_str(vmi).map_err(|e| format!("the VMI cannot be read: {e}"))?;
    let context: Context =
        serde_json::from_str(context).map_err(|e| format!("the context cannot be read: {e}"))?;
    let domain = convert::domain(&vmi, &context).map_err(|e| e.to_string())?;
    Ok((domain.to_xml(), rule_order::differences(&vmi, &context)))
}
