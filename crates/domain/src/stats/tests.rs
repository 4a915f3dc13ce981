use super::*;

fn parameters(values: &[(&str, TypedValue)]) -> Parameters {
    values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

#[test]
fn nothing_reported_is_nothing_set() {
    let stats = DomainStats::new(&Parameters::new(), &[], &HashMap::new());
    let json: serde_json::Value = serde_json::from_str(&stats.to_json()).unwrap();
    assert_eq!(json["Cpu"]["TimeSet"], false);
    assert_eq!(json["Cpu"]["Time"], 0);
    assert_eq!(json["Net"], serde_json::json!([]));
    assert_eq!(json["CPUMapSet"], false);
    assert_eq!(json["Load"]["Load1mSet"], false);
}

#[test]
fn devices_have_the_vmis_names() {
    let values = parameters(&[
        ("net.count", TypedValue::Unsigned(2)),
        ("net.0.name", TypedValue::Text("tap0".into())),
        ("net.1.name", TypedValue::Text("tap1".into())),
        ("block.count", TypedValue::Unsigned(1)),
        ("block.0.name", TypedValue::Text("vda".into())),
        ("block.0.rd.bytes", TypedValue::Unsigned(7)),
    ]);
    let aliases = [("tap0", "default"), ("vda", "rootdisk")]
        .map(|(target, alias)| (target.to_owned(), alias.to_owned()));
    let stats = DomainStats::new(&values, &[], &HashMap::from(aliases));
    let json: serde_json::Value = serde_json::from_str(&stats.to_json()).unwrap();
    assert_eq!(json["Net"][0]["Alias"], "default");
    assert_eq!(json["Net"][0]["AliasSet"], true);
    assert_eq!(json["Net"][1]["AliasSet"], false);
    assert_eq!(json["Block"][0]["Alias"], "rootdisk");
    assert!(json["Block"][0]["AliasSet"].is_null());
    assert_eq!(json["Block"][0]["RdBytes"], 7);
}

#[test]
fn a_count_that_nobody_can_have_is_bounded() {
    let values = parameters(&[("vcpu.maximum", TypedValue::Unsigned(u32::MAX.into()))]);
    let stats = DomainStats::new(&values, &[], &HashMap::new());
    assert_eq!(stats.vcpu.len(), MAX_ENTRIES as usize);
    assert_eq!(stats.vcpu[0].state, Some(VCPU_OFFLINE));
}
