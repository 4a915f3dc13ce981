//! Domain XML to Domain JSON, against what the reference sends for the same XML. Exact: a null where
//! the reference leaves a member out is a difference.

use domain::DomainSpec;
use libtest_mimic::Trial;

use crate::compare::json;
use crate::corpus::{self, Case, Differences};

pub fn tests() -> Vec<Trial> {
    let files = [
        "domain-xml/recorded.jsonl",
        "domain-xml/generated.jsonl",
        "domain-json/live.jsonl",
    ];
    let has_json = |case: &Case| case.get("json").is_some();
    corpus::tests("domain_json", &files, has_json, check)
}

fn check(case: &Case) -> Differences {
    let domain = match DomainSpec::from_xml(case.text("xml")) {
        Ok(domain) => domain,
        Err(e) => return vec![e.to_string()],
    };
    match serde_json::to_value(domain::xml::Go(&domain)) {
        Ok(got) => json::differences(&case.value["json"]["Spec"], &got),
        Err(e) => vec![format!("cannot be shown as JSON: {e}")],
    }
}
