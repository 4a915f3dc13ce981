//! Finds a field of the VMI in the user's file; fields added by admission are not there.

use super::documents;
use super::lines::YamlNode;

/// The document from which a VMI was made.
#[derive(Debug)]
pub struct Origin(Option<YamlNode>);

impl Origin {
    /// Of the VM or VMI in a text.
    pub fn of(text: &str) -> Self {
        let documents = YamlNode::read(text).unwrap_or_default();
        let is_vm = |document: &&YamlNode| documents::KINDS.contains(&document.text("kind"));
        let vm = documents.iter().find(is_vm).or(match documents.as_slice() {
            // A VMI from a launcher may have no kind.
            [one] => Some(one),
            _ => None,
        });
        Self(vm.cloned())
    }

    /// The line of a field, by its path in the VMI; `None` for a default of KubeVirt's admission.
    pub fn line(&self, path: &str) -> Option<u64> {
        let document = self.0.as_ref()?;
        let in_template = match document.find("spec.template") {
            None => return Some(document.find(path)?.line),
            Some(template) => template.find(path),
        };
        // A VMI's name and namespace are those of its VM.
        let is_outside = path.starts_with("metadata.name");
        let outside = is_outside.then(|| document.find(path)).flatten();
        Some(outside.or(in_template)?.line)
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
        let line = |path| origin.line(path);
        assert_eq!(line("metadata.name"), Some(4));
        assert_eq!(line("metadata.namespace"), None);
        assert_eq!(line("spec.domain.memory.guest"), Some(10));
        assert_eq!(line("spec.domain.devices.disks[0].name"), Some(13));
        assert_eq!(line("spec.domain.devices.disks[1]"), None);
        assert_eq!(line("spec.domain.cpu.sockets"), None);
    }
}
