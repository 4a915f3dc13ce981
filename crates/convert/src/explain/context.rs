//! Resets each member of the context and compares the resulting documents.

use serde::Deserialize;
use serde_json::{Value, json, to_value};

use super::Converted;
use super::probe::Finding;
use crate::Context;
use api::vmi::Vmi;

/// The member that says something by being false as well; the others count when they are set.
const FLIPPED: &str = "hypervisorDeviceAvailable";

/// What depends on the members of the context that are set.
pub fn probe(
    vmi: &Vmi,
    ctx: &Context,
    converted: &Converted<'_>,
    note: &mut dyn FnMut(Finding<'_>),
) {
    let unset = to_value(Context::default()).unwrap_or_default();
    let Ok(Value::Object(members)) = to_value(ctx) else {
        return;
    };
    for (name, value) in &members {
        let mut other = members.clone();
        if name == FLIPPED {
            other.insert(name.clone(), json!(!ctx.hypervisor_device_available));
        } else if unset.get(name) == Some(value) {
            continue;
        } else {
            other.remove(name);
        }
        let Ok(other) = Context::deserialize(Value::Object(other)) else {
            continue;
        };
        let field = format!("context.{name}");
        match crate::domain(vmi, &other) {
            Ok(domain) => {
                for key in converted.keys_changed_in(&domain).into_iter().flatten() {
                    note(Finding::Source { key, field: &field });
                }
            }
            Err(refusal) => note(Finding::Needed {
                field: &field,
                refusal: &refusal,
            }),
        }
    }
}
