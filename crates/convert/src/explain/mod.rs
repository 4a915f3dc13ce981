//! Why the domain has what it has: for each attribute and text of the XML, the rule that wrote it
//! and the fields of the VMI and members of the context that it depends on.
//!
//! The conversion itself knows nothing of this. It is run from the outside, so that an
//! explanation cannot drift from the conversion, and costs nothing unless it is asked for:
//!
//! ```text
//! which rule     the rules run one by one; after each, the document is compared with the last
//! which fields   each field is removed, then changed; what differs in the document depends on it
//! ```
//!
//! A fact that depends on no field is a rule's own choice, such as the name of a default device.

mod context;
mod facts;
mod probe;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Context, ConvertError, DomainSpec, Input, RULES};
use api::vmi::Vmi;
use domain::xml::ReadError;
use facts::DocumentFacts;

/// Why a VMI cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The JSON is not a VMI.
    #[error("not a VMI")]
    Vmi(#[source] serde_json::Error),
    /// Each field takes conversions of the whole VMI, each of which reads all fields and writes the
    /// whole domain.
    #[error(
        "the VMI has {fields} fields and items of lists, its domain {facts} attributes and texts: \
         together too many to explain. Take out those that are not of interest"
    )]
    TooLarge {
        /// How many fields and items of lists there are.
        fields: usize,
        /// How many attributes, texts and empty elements the domain has.
        facts: usize,
    },
    /// The domain is larger than a document may be.
    #[error("the domain cannot be explained")]
    Document(#[from] ReadError),
    /// The VMI is refused.
    #[error(transparent)]
    Refused(#[from] ConvertError),
}

/// Most work for an explanation: the fields, times the fields and facts that are compared for each.
/// A VMI with a hundred disks takes less than half of it.
const MAX_WORK: usize = 10_000_000;

/// Where everything in a domain comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// One for each attribute, text and empty element, in the order of the document.
    pub entries: Vec<Entry>,
    /// Fields without which the VMI would be refused, and how.
    pub needed: Vec<Needed>,
}

/// An attribute, a text or an empty element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Where it is, as an XPath: `/domain/devices/disk[2]/target/@dev`.
    pub path: String,
    /// Its value; empty for an empty element.
    pub value: String,
    /// Name of the rule that wrote it, see [`RULES`].
    #[serde(rename = "step")]
    pub rule: &'static str,
    /// Fields of the VMI (`spec.domain.memory.guest`) and members of the context
    /// (`context.topology`) that it depends on; none: the rule's own choice.
    pub sources: Vec<String>,
}

/// A field without which the VMI would be refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Needed {
    /// Path of the field.
    pub field: String,
    pub refusal: String,
}

/// Explains the domain of a VMI, given as the JSON that virt-handler sends.
///
/// # Errors
/// When there is no domain to explain.
pub fn explain(vmi: &Value, ctx: &Context) -> Result<Explanation, ExplainError> {
    let parsed = Vmi::deserialize(vmi).map_err(ExplainError::Vmi)?;
    let domain = crate::domain(&parsed, ctx)?;
    let facts = DocumentFacts::of(&domain)?;
    check_work(probe::fields(vmi), facts.iter().count())?;
    let rules = rules(&parsed, ctx)?;

    let mut sources = BTreeMap::<&str, BTreeSet<String>>::new();
    let mut needed = Vec::new();
    let mut note = |finding: probe::Finding<'_>| match finding {
        probe::Finding::Source { key, field } => {
            if let Some(fact) = facts.get(key) {
                sources
                    .entry(fact.key.as_str())
                    .or_default()
                    .insert(field.to_owned());
            }
        }
        probe::Finding::Needed { field, refusal } => needed.push(Needed {
            field: field.to_owned(),
            refusal: refusal.to_string(),
        }),
    };
    let converted = Converted {
        domain,
        facts: &facts,
    };
    probe::vmi(vmi, ctx, &converted, &mut note);
    context::probe(&parsed, ctx, &converted, &mut note);

    let entry = |fact: &facts::Fact| Entry {
        path: fact.path.clone(),
        value: fact.value.clone(),
        rule: rules.get(&fact.key).copied().unwrap_or_default(),
        sources: sources
            .remove(fact.key.as_str())
            .into_iter()
            .flatten()
            .collect(),
    };
    Ok(Explanation {
        entries: facts.iter().map(entry).collect(),
        needed,
    })
}

fn check_work(fields: usize, facts: usize) -> Result<(), ExplainError> {
    let work = fields.saturating_mul(fields.saturating_add(facts));
    if work > MAX_WORK {
        return Err(ExplainError::TooLarge { fields, facts });
    }
    Ok(())
}

/// The domain that is explained, and its facts.
struct Converted<'a> {
    domain: DomainSpec,
    facts: &'a DocumentFacts,
}

impl<'a> Converted<'a> {
    /// Keys of the facts that another domain lacks or has with another value; `None` when that one
    /// is too large for a document.
    fn keys_changed_in(&self, other: &DomainSpec) -> Option<BTreeSet<&'a str>> {
        // Writing and reading a document takes most of the time.
        if *other == self.domain {
            return Some(BTreeSet::new());
        }
        let other = DocumentFacts::of(other).ok()?;
        let changed = self.facts.changed_since(&other);
        Some(changed.map(|fact| fact.key.as_str()).collect())
    }
}

/// Runs the rules one by one; for each fact, the last rule that wrote it.
fn rules(vmi: &Vmi, ctx: &Context) -> Result<BTreeMap<String, &'static str>, ExplainError> {
    let input = Input::new(vmi, ctx)?;
    let mut domain = DomainSpec::default();
    let mut before = DocumentFacts::default();
    let mut rules = BTreeMap::new();
    for rule in RULES {
        (rule.apply)(&input, &mut domain)?;
        let after = DocumentFacts::of(&domain)?;
        rules.extend(
            after
                .changed_since(&before)
                .map(|fact| (fact.key.clone(), rule.name)),
        );
        before = after;
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn explained(spec: Value, ctx: &Context) -> Explanation {
        let vmi = json!({"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec});
        explain(&vmi, ctx).unwrap()
    }

    fn on_kvm() -> Context {
        Context {
            hypervisor_device_available: true,
            ..Context::default()
        }
    }

    /// `rule <- fields` of the entry at `path`.
    fn origin(explanation: &Explanation, path: &str) -> String {
        let entry = explanation.entries.iter().find(|entry| entry.path == path);
        entry.map_or_else(
            || "none".to_owned(),
            |entry| format!("{} <- {}", entry.rule, entry.sources.join(", ")),
        )
    }

    #[track_caller]
    fn has(explanation: &Explanation, path: &str, expected: &str) {
        assert_eq!(origin(explanation, path), expected, "{path}");
    }

    #[test]
    fn memory_comes_from_the_guest_memory() {
        let explanation = explained(json!({"domain": {"memory": {"guest": "1Gi"}}}), &on_kvm());
        has(
            &explanation,
            "/domain/memory",
            "memory <- spec.domain.memory.guest",
        );
        has(&explanation, "/domain/memory/@unit", "memory <- ");
        has(
            &explanation,
            "/domain/name",
            "name <- metadata.name, metadata.namespace",
        );
    }

    #[test]
    fn a_field_that_repeats_the_default_is_found_too() {
        let explanation = explained(
            json!({"domain": {"cpu": {"cores": 1, "model": "host-model"}}}),
            &on_kvm(),
        );
        has(
            &explanation,
            "/domain/cpu/topology/@cores",
            "cpu <- spec.domain.cpu.cores",
        );
        has(
            &explanation,
            "/domain/cpu/@mode",
            "cpu <- spec.domain.cpu.model",
        );
    }

    #[test]
    fn a_disk_comes_from_the_disk_and_its_path_from_the_volume() {
        let spec = json!({
            "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}, "cache": "none"}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "claim"}}],
        });
        let explanation = explained(spec, &on_kvm());
        has(
            &explanation,
            "/domain/devices/disk/alias/@name",
            "disks <- spec.domain.devices.disks[0]",
        );
        has(
            &explanation,
            "/domain/devices/disk/driver/@cache",
            "disks <- spec.domain.devices.disks[0].cache",
        );
        let source = origin(&explanation, "/domain/devices/disk/source/@file");
        assert!(source.contains("spec.volumes[0]"), "{source}");
        let mut needed = explanation.needed.iter();
        assert!(needed.any(|needed| needed.field == "spec.volumes[0]"));
    }

    #[test]
    fn the_context_and_a_later_step_are_told() {
        let kvm = Context {
            allow_emulation: true,
            ..on_kvm()
        };
        let why = "defaults <- context.hypervisorDeviceAvailable";
        has(&explained(json!({}), &kvm), "/domain/@type", why);
        let emulated = Context {
            hypervisor_device_available: false,
            ..kvm
        };
        let why = "hypervisor <- context.hypervisorDeviceAvailable";
        has(&explained(json!({}), &emulated), "/domain/@type", why);
    }

    #[test]
    fn a_vmi_whose_fields_take_too_much_work_is_refused_before_they_are_probed() {
        let volume = |n| json!({"name": format!("d{n}"), "emptyDisk": {"capacity": "1Mi"}});
        let disk = |n| json!({"name": format!("d{n}"), "disk": {"bus": "virtio"}});
        let (disks, volumes): (Vec<_>, Vec<_>) = (0..400).map(|n| (disk(n), volume(n))).unzip();
        let vmi = json!({"spec": {"domain": {"devices": {"disks": disks}}, "volumes": volumes}});
        assert!(matches!(
            explain(&vmi, &on_kvm()),
            Err(ExplainError::TooLarge { fields: 3_205, .. })
        ));
        // Few fields with a large domain; a VMI with a hundred disks.
        assert!(check_work(200, 60_000).is_err());
        assert!(check_work(1_300, 1_700).is_ok());
    }

    #[test]
    fn what_is_refused_is_not_explained() {
        assert!(matches!(
            explain(&json!({}), &Context::default()),
            Err(ExplainError::Refused(_))
        ));
        assert!(matches!(
            explain(&json!("VMI"), &on_kvm()),
            Err(ExplainError::Vmi(_))
        ));
    }
}
