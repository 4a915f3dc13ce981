//! Domain XML to Domain JSON, against what the reference sends for the same XML. Exact: a null where
//! the reference leaves a member out is a difference.

mod common;

use std::process::ExitCode;

use common::json_compare::{Mode, differences};
use domain::DomainSpec;

fn main() -> ExitCode {
    let files = [
        "domain-xml/recorded.jsonl",
        "domain-xml/generated.jsonl",
        "domain-json/live.jsonl",
    ];
    let cases: Option<Vec<Vec<_>>> = files.into_iter().map(common::corpus).collect();
    let with_json = cases.map(|files| {
        files
            .into_iter()
            .flatten()
            .filter(|case| case.get("json").is_some())
            .collect()
    });
    common::run("Domain JSON", with_json, |case| {
        let domain = match DomainSpec::from_xml(case.text("xml")) {
            Ok(domain) => domain,
            Err(e) => return vec![e.to_string()],
        };
        let got = match serde_json::to_value(domain::xml::Go(&domain)) {
            Ok(got) => got,
            Err(e) => return vec![format!("cannot be shown as JSON: {e}")],
        };
        differences(&case.value["json"]["Spec"], &got, Mode::Exact)
    })
}
