//! Metrics as JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The samples of an OpenMetrics text: each name has a list of `{"labels": {…}, "value": …}`.
/// Other lines are left out. A value that JSON cannot hold, such as NaN, is null.
#[must_use]
pub fn metrics_as_json(metrics: &str) -> Value {
    let mut names: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let value: Value = value.parse().unwrap_or_default();
        let sample = json!({"labels": labels_of(labels), "value": value});
        names.entry(name).or_default().push(sample);
    }
    json!(names)
}

/// `a="b",c="d"}`; the values are escaped as in JSON.
fn labels_of(mut text: &str) -> Map<String, Value> {
    let mut labels = Map::new();
    while let Some((name, rest)) = text.split_once('=') {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        let Some(Ok(value)) = values.next() else {
            break;
        };
        labels.insert(name.trim_start_matches(',').to_owned(), value);
        text = rest.get(values.byte_offset()..).unwrap_or_default();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_values_with_labels() {
        let text = "\
# TYPE syncs counter
syncs_total 3
wait_seconds_bucket{le=\"0.5\",why=\"a \\\"b\\\" = {c}\"} 1.5
wait_seconds_bucket{le=\"+Inf\"} NaN
# EOF";
        let expected = json!({
            "syncs_total": [{"labels": {}, "value": 3}],
            "wait_seconds_bucket": [
                {"labels": {"le": "0.5", "why": "a \"b\" = {c}"}, "value": 1.5},
                {"labels": {"le": "+Inf"}, "value": null},
            ],
        });
        assert_eq!(metrics_as_json(text), expected);
    }
}
