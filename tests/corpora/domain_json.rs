//! Domain XML to Domain JSON, against what the reference sends for the same XML. Exact: a null
//! where the reference leaves a member out is a difference.

use domain::xml::Go;
use domain::{Domain, DomainSpec};
use libtest_mimic::Trial;
use serde_json::json;

use crate::compare::json as compared;
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
    let expected = &case.value["json"]["Spec"];
    let shown = |spec: &DomainSpec| compared::differences(expected, &json!(Go(spec)));
    let mut differences = match DomainSpec::from_xml(case.text("xml")) {
        Ok(spec) => shown(&spec),
        Err(e) => vec![e.to_string()],
    };
    // What the reference sends is read, too, without losing anything.
    match serde_json::from_value::<Domain>(case.value["json"].clone()) {
        Ok(domain) => differences.extend(shown(&domain.spec)),
        Err(e) => differences.push(format!("cannot be read: {e}")),
    }
    differences
}
