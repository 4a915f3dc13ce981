//! Guesses the kind that a document was meant to have, so that a misspelt kind does not hide its
//! other problems.

use super::documents::{KINDS, VM, VMI};
use super::error::FieldError;
use super::lines::Node;

/// The kind that a document has or should have, [`VM`] or [`VMI`], and the field that does not fit
/// it. `None` if the document is unrelated.
pub fn meant_kind(document: &Node) -> Option<(&'static str, Option<FieldError>)> {
    let written = document.text("kind");
    let has = |path| document.find(path).is_some();
    let (has_domain, has_template) = (has("spec.domain"), has("spec.template"));
    let (kind, field, message) = match written {
        VM if has_domain && !has_template => (
            VMI,
            "spec.domain",
            "a VirtualMachine has this in spec.template.spec; or should it be kind: VirtualMachineInstance?".to_owned(),
        ),
        VMI if has_template && !has_domain => (
            VM,
            "spec.template",
            "a VirtualMachineInstance has no template: its fields are in spec itself; or should it be kind: VirtualMachine?".to_owned(),
        ),
        VM => return Some((VM, None)),
        VMI => return Some((VMI, None)),
        "" => {
            let kind = of_fields(document)?;
            (kind, "kind", format!("missing; did you mean {kind}?"))
        }
        _ => {
            let named = similar(written)?;
            let kind = of_fields(document).unwrap_or(named);
            let message = format!("{written:?} is not a kind of KubeVirt's; did you mean {kind}?");
            (kind, "kind", message)
        }
    };
    Some((kind, Some(FieldError::new(field, message))))
}

/// The kind that has a document's fields.
fn of_fields(document: &Node) -> Option<&'static str> {
    let kinds = [("spec.domain", VMI), ("spec.template.spec.domain", VM)];
    let mut kinds = kinds.into_iter();
    kinds.find_map(|(path, kind)| document.find(path).and(Some(kind)))
}

/// The kind that was probably meant.
fn similar(written: &str) -> Option<&'static str> {
    match &*written.to_lowercase() {
        "vm" => Some(VM),
        "vmi" => Some(VMI),
        written => crate::similar::similar(written, KINDS),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn meant(text: &str) -> Option<(&'static str, String)> {
        let documents = Node::read(text).unwrap();
        let (kind, problem) = meant_kind(documents.first().unwrap())?;
        Some((kind, problem.map(|it| it.field).unwrap_or_default()))
    }

    fn found(kind: &'static str, field: &str) -> Option<(&'static str, String)> {
        Some((kind, field.to_owned()))
    }

    #[test]
    fn a_misspelt_kind_is_found_by_its_name_and_its_fields() {
        let vm = "spec: {template: {spec: {domain: {}}}}\n";
        let vmi = "spec: {domain: {}}\n";
        let of = |kind: &str, spec: &str| meant(&format!("kind: {kind}\n{spec}"));
        assert_eq!(of(VM, vm), found(VM, ""));
        assert_eq!(of(VMI, vmi), found(VMI, ""));
        assert_eq!(of(VM, vmi), found(VMI, "spec.domain"));
        assert_eq!(of(VMI, vm), found(VM, "spec.template"));
        assert_eq!(of("VirtualMachin", vm), found(VM, "kind"));
        assert_eq!(of("virtualmachineinstance", vmi), found(VMI, "kind"));
        assert_eq!(of("VM", vmi), found(VMI, "kind"));
        assert_eq!(meant(vmi), found(VMI, "kind"));
        assert_eq!(of("VirtualMachineInstanceReplicaSet", vm), None);
        assert_eq!(of("Pod", "spec: {containers: []}"), None);
    }
}
