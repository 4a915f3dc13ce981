//! Rules for memory and for the resources requested of the node.

use serde::Deserialize;
use serde_json::Value;

use crate::json::text_at;
use crate::manifest::paths::pointer;
use api::vmi::Quantity;

/// A guest with less memory was meant to have another unit.
const MIN_MEMORY_BYTES: i64 = 1_000_000;
const PAGE_SIZE: &str = "spec.domain.memory.hugepages.pageSize";

/// The field whose memory is not a whole number of huge pages.
pub(super) fn not_whole_pages(vmi: &Value) -> Option<(&'static str, String)> {
    let bytes = |field: &str| quantity(vmi.pointer(&pointer(field))?).ok();
    let page = bytes(PAGE_SIZE)?;
    if page <= 0 {
        let message = "must be more than 0, such as 2Mi or 1Gi";
        return Some((PAGE_SIZE, message.to_owned()));
    }
    // In this order, as the reference's admission has defaulted one from the other.
    let fields = [
        "spec.domain.resources.requests.memory",
        "spec.domain.memory.guest",
        "spec.domain.resources.limits.memory",
    ];
    let memory = |field| Some((field, bytes(field).filter(|bytes| *bytes > 0)?));
    let (field, memory) = fields.into_iter().find_map(memory)?;
    let size = text_at(vmi, &pointer(PAGE_SIZE));
    let message = match memory % page {
        _ if memory < page => format!("less than one huge page of {size} ({PAGE_SIZE})"),
        0 => return None,
        _ => format!("not a multiple of the huge pages' {size} ({PAGE_SIZE})"),
    };
    Some((field, message))
}

/// Explains an implausibly small memory: its unit is missing or wrong. `None` if it is enough, or
/// not a size.
pub fn too_little_memory(value: &Value) -> Option<String> {
    let bytes = quantity(value).ok()?;
    if !(0..MIN_MEMORY_BYTES).contains(&bytes) {
        return None;
    }
    let number = text_at(value, "").trim().strip_suffix('m');
    let thousandths = number.and_then(|number| number.parse::<f64>().ok());
    Some(match (number, thousandths, bytes) {
        (Some(number), Some(thousandths), _) => format!(
            "{number}m is {} bytes (m is a thousandth); did you mean {number}M or {number}Mi?",
            thousandths / 1000.0
        ),
        (.., 1) => "1 byte; is a unit missing, such as Mi?".to_owned(),
        (.., bytes) => format!("{bytes} bytes; is a unit missing, such as Mi?"),
    })
}

/// The value in thousandths, as CPUs are counted; `None` if it is not a quantity.
pub(super) fn thousandths(value: &Value) -> Option<i64> {
    quantity(value).ok()?;
    Quantity::deserialize(value).ok()?.thousandths().ok()
}

/// Why the value is not a quantity.
pub fn wrong_quantity(value: &Value) -> Option<String> {
    quantity(value).err()
}

/// Its value, or why it is not a quantity.
fn quantity(value: &Value) -> Result<i64, String> {
    let quantity = Quantity::deserialize(value).map_err(|error| error.to_string())?;
    let value = quantity.value().map_err(|error| error.to_string())?;
    quantity.bytes().map_err(|error| error.to_string())?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::super::tests::refused;
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_numbers_with_a_unit() {
        for (memory, is_refused) in [
            ("1Gi", false),
            ("1Gb", true),
            ("-1Gi", true),
            ("1024", true),
        ] {
            let found = refused(json!({"domain": {"memory": {"guest": memory}}}));
            assert_eq!(
                found == ["spec.domain.memory.guest"],
                is_refused,
                "{memory}: {found:?}"
            );
        }
        assert_eq!(
            refused(
                json!({"domain": {"memory": {"guest": "2Gi"}, "resources": {"limits": {"memory": "1Gi"}}}})
            ),
            ["spec.domain.memory.guest"]
        );
    }

    #[test]
    fn a_thousandth_is_not_taken_for_a_million() {
        for (memory, message) in [
            (
                json!("256m"),
                "256m is 0.256 bytes (m is a thousandth); did you mean 256M or 256Mi?",
            ),
            (json!("1"), "1 byte; is a unit missing, such as Mi?"),
            (json!("512"), "512 bytes; is a unit missing, such as Mi?"),
        ] {
            let vmi = json!({"spec": {"domain": {"memory": {"guest": memory}}}});
            let found = super::super::violations(&vmi);
            let messages: Vec<_> = found.map(|it| it.message).collect();
            assert_eq!(messages, [message]);
        }
    }

    #[test]
    fn requests_are_within_the_limits() {
        for (resource, request, limit, is_refused) in [
            ("memory", "2Gi", "1Gi", true),
            ("memory", "1Gi", "1Gi", false),
            ("cpu", "2", "1", true),
            ("cpu", "900m", "800m", true),
            ("cpu", "500m", "1", false),
            ("cpu", "1.5", "1", true),
            ("cpu", "0.5", "500m", false),
        ] {
            let found = refused(json!({"domain": {"resources": {
                "requests": {resource: request},
                "limits": {resource: limit},
            }}}));
            let field = format!("spec.domain.resources.requests.{resource}");
            assert_eq!(found == [field], is_refused, "{request} {limit}: {found:?}");
        }
    }

    #[test]
    fn the_memory_consists_of_whole_huge_pages() {
        for (guest, page, field) in [
            ("64Mi", "2Mi", None),
            ("1Gi", "1Gi", None),
            ("64Mi", "1Gi", Some("spec.domain.memory.guest")),
            ("3Mi", "2Mi", Some("spec.domain.memory.guest")),
            ("64Mi", "0", Some(PAGE_SIZE)),
        ] {
            let memory = json!({"guest": guest, "hugepages": {"pageSize": page}});
            let found = refused(json!({"domain": {"memory": memory}}));
            assert_eq!(found.first().map(String::as_str), field, "{guest} {page}");
        }
    }
}
