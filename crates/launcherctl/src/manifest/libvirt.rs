//! What libvirt refuses of a VMI that converts, and the field because of which it does.

use std::cell::{Cell, RefCell};

use serde_json::Value;

use super::context::context_of_pod;
use super::error::FieldError;
use super::paths::{join, pointer};
use super::typed;

/// Limit of the questions about one VMI; each starts a program.
const MAX_QUESTIONS: usize = 60;
/// What depends on this machine's processor and QEMU: another machine may take it.
const OF_MACHINE: [&str; 6] = [
    "spec.domain.clock",
    "spec.domain.cpu",
    "spec.domain.features",
    "spec.domain.launchSecurity",
    "spec.domain.machine",
    "spec.domain.firmware",
];

/// Whoever reads domains as libvirt does.
pub trait Libvirt {
    /// Whether guests can use KVM here.
    fn has_kvm(&self) -> bool;
    /// Whether it takes the domain.
    fn define(&self, xml: &str) -> LibvirtAnswer;
}

/// libvirt's answer to a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibvirtAnswer {
    Accepted,
    /// With libvirt's words.
    Refused(String),
    /// It cannot be asked here, for this reason.
    NotAsked(String),
}

/// Questions about the domains of VMIs.
pub struct Questions<'l> {
    libvirt: &'l dyn Libvirt,
    left: Cell<usize>,
    /// Why libvirt was not asked.
    pub not_asked: RefCell<Option<String>>,
}

impl<'l> Questions<'l> {
    pub fn new(libvirt: &'l dyn Libvirt) -> Self {
        Self {
            libvirt,
            left: Cell::new(0),
            not_asked: RefCell::default(),
        }
    }

    /// The fields of a VMI because of which libvirt refuses its domain, with libvirt's words. The
    /// VMI converts.
    pub fn refusals(&self, mut vmi: Value) -> Vec<FieldError> {
        self.left.set(MAX_QUESTIONS);
        let mut found = Vec::new();
        while let Some(LibvirtAnswer::Refused(words)) = self.ask(&vmi) {
            let field = self.blamed(&vmi, "spec.domain".to_owned());
            let goes_on = remove(&mut vmi, &field);
            found.push(FieldError::new(
                field,
                format!("libvirt refuses it: {words}"),
            ));
            if !goes_on {
                break;
            }
        }
        found
    }

    /// The smallest part of the VMI at or below the field without which libvirt takes the domain.
    fn blamed(&self, vmi: &Value, field: String) -> String {
        let parts: Vec<String> = match vmi.pointer(&pointer(&field)) {
            Some(Value::Object(members)) => members.keys().map(|key| join(&field, key)).collect(),
            Some(Value::Array(items)) => (0..items.len())
                .map(|index| format!("{field}[{index}]"))
                .collect(),
            _ => Vec::new(),
        };
        let is_blamed = |part: &String| {
            let mut rest = vmi.clone();
            remove(&mut rest, part) && self.ask(&rest) == Some(LibvirtAnswer::Accepted)
        };
        match parts.into_iter().find(is_blamed) {
            Some(part) => self.blamed(vmi, part),
            None => field,
        }
    }

    /// libvirt's answer; `None` if the VMI does not convert, or too much has been asked.
    fn ask(&self, vmi: &Value) -> Option<LibvirtAnswer> {
        self.left.set(self.left.get().checked_sub(1)?);
        let vmi = typed(vmi).ok()?;
        let mut context = context_of_pod(&vmi);
        context.allow_emulation = true;
        context.hypervisor_device_available = self.libvirt.has_kvm();
        let xml = convert::domain(&vmi, &context).ok()?.to_xml();
        let answer = self.libvirt.define(&xml);
        if let LibvirtAnswer::NotAsked(reason) = &answer {
            self.not_asked.replace(Some(reason.clone()));
        }
        Some(answer)
    }
}

/// Whether another machine's libvirt may take what this one refuses.
pub fn depends_on_machine(field: &str) -> bool {
    OF_MACHINE.iter().any(|part| field.starts_with(part))
}

/// Removes a field, or an item of a list. Returns false if it is not there.
fn remove(vmi: &mut Value, field: &str) -> bool {
    let pointer = pointer(field);
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return false;
    };
    match vmi.pointer_mut(parent) {
        Some(Value::Object(members)) => members.remove(last).is_some(),
        Some(Value::Array(items)) => match last.parse::<usize>() {
            Ok(index) if index < items.len() => {
                items.remove(index);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Refuses domains that have one of these texts.
    struct Refusing(&'static [&'static str]);

    impl Libvirt for Refusing {
        fn has_kvm(&self) -> bool {
            false
        }

        fn define(&self, xml: &str) -> LibvirtAnswer {
            match self.0.iter().find(|text| xml.contains(*text)) {
                Some(text) => LibvirtAnswer::Refused(format!("no {text}")),
                None => LibvirtAnswer::Accepted,
            }
        }
    }

    fn fields(refused: &'static [&'static str]) -> Vec<String> {
        let vmi = json!({
            "metadata": {"name": "a", "namespace": "b"},
            "spec": {
                "domain": {
                    "memory": {"guest": "64Mi"},
                    "cpu": {"cores": 2, "model": "Haswell"},
                    "devices": {
                        "disks": [
                            {"name": "a", "disk": {"bus": "virtio"}},
                            {"name": "b", "io": "native", "disk": {"bus": "sata"}},
                        ],
                        "rng": {},
                    },
                },
                "volumes": [
                    {"name": "a", "emptyDisk": {"capacity": "1Gi"}},
                    {"name": "b", "emptyDisk": {"capacity": "1Gi"}},
                ],
            },
        });
        let found = Questions::new(&Refusing(refused)).refusals(vmi);
        found.into_iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn the_smallest_part_that_libvirt_refuses_is_named() {
        assert_eq!(
            fields(&["io=\"native\""]),
            ["spec.domain.devices.disks[1].io: libvirt refuses it: no io=\"native\""]
        );
        assert_eq!(
            fields(&["<rng", "Haswell"]),
            [
                "spec.domain.cpu.model: libvirt refuses it: no Haswell",
                "spec.domain.devices.rng: libvirt refuses it: no <rng",
            ]
        );
        assert!(
            fields(&["<domain"])
                .iter()
                .all(|it| it.starts_with("spec.domain: "))
        );
        assert_eq!(fields(&[]), [""; 0]);
    }
}
