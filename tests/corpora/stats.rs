//! libvirt's parameters to statistics, with what KubeVirt makes of the same parameters:
//! `xml-fixtures/stats/cases.jsonl`, a case a line. They are generated: values present and missing,
//! vCPUs that are not plugged in, counts that announce more or less than there is, names of newer
//! libvirt. The results are those of KubeVirt's own `statsconv`.

use std::collections::HashMap;
use std::path::Path;

use domain::stats::{DomainStats, Parameters, TypedValue};
use libtest_mimic::Trial;
use serde_json::Value as Json;

use crate::golden;

pub fn tests() -> Vec<Trial> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("xml-fixtures/stats/cases.jsonl");
    let cases = golden::read(&path);
    let cases: Vec<String> = cases.lines().map(str::to_owned).collect();
    assert!(cases.len() >= 200, "{}", path.display());
    let trial = |(number, line): (usize, String)| {
        Trial::test(format!("stats/{number}"), move || check(&line))
    };
    cases.into_iter().enumerate().map(trial).collect()
}

fn check(line: &str) -> Result<(), libtest_mimic::Failed> {
    let case: Json = serde_json::from_str(line)?;
    let parameters: Parameters = case["parameters"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), parameter(value)))
        .collect();
    let memory: Vec<(u32, u64)> = serde_json::from_value(case["memory"].clone())?;
    let mut stats = DomainStats::new(&parameters, &memory, &HashMap::new());
    stats.name = "default_vm".to_owned();
    stats.uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223".to_owned();
    let mut found: Json = serde_json::from_str(&stats.to_json())?;
    // Go writes a list that was never made as null; for its reader that is the same.
    if found["CPUMap"] == serde_json::json!([]) {
        found["CPUMap"] = Json::Null;
    }
    // And 0.0 as 0.
    for name in ["Load1m", "Load5m", "Load15m"] {
        assert_eq!(found["Load"][name], 0.0);
        found["Load"][name] = serde_json::json!(0);
    }
    if found == case["stats"] {
        Ok(())
    } else {
        Err(format!("{found}\nis not\n{}", case["stats"]).into())
    }
}

fn parameter(value: &Json) -> TypedValue {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "int" | "long" => TypedValue::Signed(value.as_i64().unwrap()),
        "uint" | "ulong" => TypedValue::Unsigned(value.as_u64().unwrap()),
        "bool" => TypedValue::Signed(value.as_bool().unwrap().into()),
        "double" => TypedValue::Double(value.as_f64().unwrap()),
        "text" => TypedValue::Text(value.as_str().unwrap().to_owned()),
        other => panic!("{other}"),
    }
}
