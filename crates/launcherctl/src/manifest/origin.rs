//! Finds a field of the VMI in the user's file; fields added by admission are not there.

use super::documents;
use super::lines::Node;

/// The document from which a VMI was made.
#[derive(Debug)]
pub struct Origin {
    document: Option<Node>,
}

/// The origin of a field of the VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOrigin {
    /// The file's line.
    Line(u64),
    /// Missing in the file: a default of KubeVirt's admission.
    Default,
}

impl Origin {
    /// Of the VM or VMI in a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let documents = Node::read(text).unwrap_or_default();
        let is_vm = |document: &&Node| documents::KINDS.contains(&document.text("kind"));
        let vm = documents.iter().find(is_vm).or(match documents.as_slice() {
            // A VMI from a launcher may have no kind.
            [one] => Some(one),
            _ => None,
        });
        Self {
            document: vm.cloned(),
        }
    }

    /// The origin of a field, by its path in the VMI.
    #[must_use]
    pub fn field(&self, path: &str) -> FieldOrigin {
        let Some(document) = &self.document else {
            return FieldOrigin::Default;
        };
        let is_template = document
            .get("spec")
            .is_some_and(|spec| spec.get("template").is_some());
        let in_template = is_template
            .then(|| document.find(&format!("spec.template.{path}")))
            .flatten();
        // A VMI's name and namespace are those of its VM.
        let is_outside = !is_template || path.starts_with("metadata.name");
        let outside = is_outside.then(|| document.find(path)).flatten();
        match outside.or(in_template) {
            Some(node) => FieldOrigin::Line(node.line),
            None => FieldOrigin::Default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_the_template_and_defaults_nowhere() {
        let text = "kind: ConfigMap
---
kind: VirtualMachine
metadata: {name: web}
spec:
  template:
    spec:
      domain:
        memory:
          guest: 1Gi
        devices:
          disks:
          - name: root
";
        let origin = Origin::of(text);
        let field = |path| origin.field(path);
        assert_eq!(field("metadata.name"), FieldOrigin::Line(4));
        assert_eq!(field("metadata.namespace"), FieldOrigin::Default);
        assert_eq!(field("spec.domain.memory.guest"), FieldOrigin::Line(10));
        assert_eq!(
            field("spec.domain.devices.disks[0].name"),
            FieldOrigin::Line(13)
        );
        assert_eq!(field("spec.domain.devices.disks[1]"), FieldOrigin::Default);
        assert_eq!(field("spec.domain.cpu.sockets"), FieldOrigin::Default);
    }
}
