//! Guesses the kind that a document was meant to have, so that a misspelt kind does not hide its
//! other problems.

use super::documents::{KINDS, VMI};
use super::lines::Node;

/// The other kind that describes a VM.
const VM: &str = "VirtualMachine";
/// Most wrong, missing or extra letters of a kind.
const MAX_DISTANCE: usize = 3;

/// The kind that a document is checked as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeantKind {
    /// `VirtualMachine` or `VirtualMachineInstance`.
    pub kind: &'static str,
    /// The field that does not fit the kind, with the problem.
    pub problem: Option<(&'static str, String)>,
}

/// The kind that a document has or should have; `None` if it is unrelated.
#[must_use]
pub fn meant_kind(document: &Node) -> Option<MeantKind> {
    let written = document.text("kind");
    let has_domain = document.find("spec.domain").is_some();
    let has_template = document.find("spec.template").is_some();
    let problem = |kind, field, message: String| {
        Some(MeantKind {
            kind,
            problem: Some((field, message)),
        })
    };
    match written {
        VM if has_domain && !has_template => problem(
            VMI,
            "spec.domain",
            "a VirtualMachine has this in spec.template.spec; or should it be kind: VirtualMachineInstance?".to_owned(),
        ),
        VMI if has_template && !has_domain => problem(
            VM,
            "spec.template",
            "a VirtualMachineInstance has no template: its fields are in spec itself; or should it be kind: VirtualMachine?".to_owned(),
        ),
        _ => {
            if let Some(kind) = KINDS.into_iter().find(|kind| *kind == written) {
                return Some(MeantKind { kind, problem: None });
            }
            let has_vm = document.find("spec.template.spec.domain").is_some();
            let kind = match (has_domain, has_vm) {
                (true, _) if written.is_empty() || is_similar(written) => VMI,
                (_, true) if written.is_empty() || is_similar(written) => VM,
                _ => similar(written)?,
            };
            let message = match written {
                "" => format!("missing; did you mean {kind}?"),
                written => format!("{written:?} is not a kind of KubeVirt's; did you mean {kind}?"),
            };
            problem(kind, "kind", message)
        }
    }
}

fn is_similar(written: &str) -> bool {
    similar(written).is_some()
}

/// The nearest kind, if it is near enough.
fn similar(written: &str) -> Option<&'static str> {
    let written = written.to_lowercase();
    match &*written {
        "" => return None,
        "vm" => return Some(VM),
        "vmi" => return Some(VMI),
        _ => {}
    }
    KINDS
        .into_iter()
        .find(|kind| strsim::damerau_levenshtein(&kind.to_lowercase(), &written) <= MAX_DISTANCE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn meant(text: &str) -> Option<(&'static str, &'static str)> {
        let documents = Node::read(text).unwrap();
        let meant = meant_kind(documents.first().unwrap())?;
        Some((meant.kind, meant.problem.map_or("", |(field, _)| field)))
    }

    #[test]
    fn a_misspelt_kind_is_found_by_its_name_and_its_fields() {
        let vm = "spec: {template: {spec: {domain: {}}}}\n";
        let vmi = "spec: {domain: {}}\n";
        let of = |kind: &str, spec: &str| meant(&format!("kind: {kind}\n{spec}"));
        assert_eq!(of(VM, vm), Some((VM, "")));
        assert_eq!(of(VMI, vmi), Some((VMI, "")));
        assert_eq!(of(VM, vmi), Some((VMI, "spec.domain")));
        assert_eq!(of(VMI, vm), Some((VM, "spec.template")));
        assert_eq!(of("VirtualMachin", vm), Some((VM, "kind")));
        assert_eq!(of("virtualmachineinstance", vmi), Some((VMI, "kind")));
        assert_eq!(of("VM", vmi), Some((VMI, "kind")));
        assert_eq!(meant(vmi), Some((VMI, "kind")));
        assert_eq!(of("VirtualMachineInstanceReplicaSet", vm), None);
        assert_eq!(of("Pod", "spec: {containers: []}"), None);
    }
}
