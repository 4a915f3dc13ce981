//! What libvirt refuses of a VMI that converts, and the field because of which it does.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::context::context_of_pod;
use super::error::FieldError;
use super::paths::{is_related, join, pointer};
use super::typed;
use crate::json::set_default;

/// Limit of the domains that libvirt is asked about for one VMI.
const MAX_DOMAINS: usize = 600;
/// Limit of a domain that it is asked about.
const MAX_XML_BYTES: usize = 1 << 20;
/// All have one, so that each replaces the one before.
const UUID: &str = "5d307ca9-b3ef-428c-8861-06e72d69f223";
const BUSES: [&str; 4] = ["virtio", "scsi", "sata", "usb"];
/// What depends on this machine's processor, QEMU and firmware: another machine may take it.
const OF_MACHINE: [&str; 5] = [
    "spec.domain.cpu.model",
    "spec.domain.cpu.features",
    "spec.domain.launchSecurity",
    "spec.domain.machine",
    "spec.domain.firmware.bootloader",
];

/// Whoever reads domains as libvirt does.
pub trait Libvirt {
    /// Whether guests can use KVM here.
    fn has_kvm(&self) -> bool;
    /// Its answer to each domain, or one only if it cannot be asked.
    fn define(&self, xmls: &[String]) -> Vec<LibvirtAnswer>;
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

/// Whether libvirt has been asked about a text's VMs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Asked {
    /// There was no sound VM.
    #[default]
    Nothing,
    Libvirt,
    /// It cannot be asked here, for this reason.
    Nobody(String),
}

/// Questions about the domains of a text's VMIs.
pub struct Questions<'l> {
    libvirt: &'l dyn Libvirt,
    left: Cell<usize>,
    uses_kvm: Cell<bool>,
    pub asked: RefCell<Asked>,
}

impl<'l> Questions<'l> {
    pub fn new(libvirt: &'l dyn Libvirt) -> Self {
        Self {
            libvirt,
            left: Cell::new(0),
            uses_kvm: Cell::new(libvirt.has_kvm()),
            asked: RefCell::default(),
        }
    }

    /// The fields of a VMI that libvirt refuses, each with libvirt's words: libvirt says one at a
    /// time, so it is asked again without the field, or with another bus. The VMI must convert.
    pub fn refusals(&self, mut vmi: Value) -> Vec<FieldError> {
        self.left.set(MAX_DOMAINS);
        let mut found = Vec::new();
        loop {
            let answer = self.ask([vmi.clone()].into_iter()).pop().flatten();
            let words = match answer {
                Some(LibvirtAnswer::Refused(words)) => words,
                // /dev/kvm may be there and not work: the same question about an emulated guest.
                Some(LibvirtAnswer::NotAsked(_)) if self.uses_kvm.replace(false) => {
                    self.asked.replace(Asked::Nothing);
                    continue;
                }
                _ => break,
            };
            let field = self.blamed(&vmi, "spec.domain".to_owned(), &words);
            let remedy = self.remedy(&vmi, &field);
            // Another refusal of the same field would follow from the first.
            if found
                .iter()
                .any(|it: &FieldError| is_related(&it.field, &field))
            {
                break;
            }
            let mut message = format!("libvirt refuses it: {words}");
            if let Some((_, names)) = &remedy {
                let _ = write!(message, "; it takes bus: {names}");
            }
            found.push(FieldError::new(field.clone(), message));
            match remedy {
                Some((taken, _)) => vmi = taken,
                // An item of a list stays: without it the items behind it had other numbers.
                None if !field.ends_with(']') && remove(&mut vmi, &field) => {}
                None => break,
            }
        }
        found
    }

    /// The smallest part of the VMI at or below the field without which libvirt takes the domain,
    /// or refuses another part.
    fn blamed(&self, vmi: &Value, field: String, words: &str) -> String {
        let parts: Vec<String> = match vmi.pointer(&pointer(&field)) {
            Some(Value::Object(members)) => members.keys().map(|key| join(&field, key)).collect(),
            Some(Value::Array(items)) => (0..items.len())
                .map(|index| format!("{field}[{index}]"))
                .collect(),
            _ => return field,
        };
        let answers = self.ask(parts.iter().map(|part| {
            let mut rest = vmi.clone();
            remove(&mut rest, part);
            rest
        }));
        let taken = |it: &Option<LibvirtAnswer>| *it == Some(LibvirtAnswer::Accepted);
        let other = |it: &Option<LibvirtAnswer>| matches!(it, Some(LibvirtAnswer::Refused(it)) if it != words);
        let found = answers.iter().position(taken);
        let found = found.or_else(|| answers.iter().position(other));
        match found.and_then(|index| parts.get(index)) {
            Some(part) => self.blamed(vmi, part.clone(), words),
            None => field,
        }
    }

    /// If the field is a bus: the VMI with the first one that libvirt takes, and the names of all.
    fn remedy(&self, vmi: &Value, field: &str) -> Option<(Value, String)> {
        let bus = pointer(field);
        let others = BUSES.iter().map(|name| {
            let mut other = vmi.clone();
            if let Some(bus) = other.pointer_mut(&bus) {
                *bus = json!(name);
            }
            other
        });
        let others: Vec<Value> = others.filter(|_| field.ends_with(".bus")).collect();
        let answers = self.ask(others.iter().cloned());
        let taken = BUSES.iter().zip(others).zip(answers);
        let mut taken = taken.filter(|(_, it)| *it == Some(LibvirtAnswer::Accepted));
        let ((name, first), _) = taken.next()?;
        let names = taken.map(|((name, _), _)| *name);
        let names: Vec<&str> = [*name].into_iter().chain(names).collect();
        Some((first, names.join(", ")))
    }

    /// libvirt's answers; `None` for a VMI that does not convert, or when too much has been asked.
    fn ask(&self, vmis: impl Iterator<Item = Value>) -> Vec<Option<LibvirtAnswer>> {
        let xmls: Vec<Option<String>> = vmis.map(|vmi| self.xml(vmi)).collect();
        let known: Vec<String> = xmls.iter().flatten().cloned().collect();
        if known.is_empty() {
            return Vec::new();
        }
        let mut answers = self.libvirt.define(&known).into_iter();
        let mut asked = self.asked.borrow_mut();
        match answers.as_slice() {
            [LibvirtAnswer::NotAsked(reason), ..] => *asked = Asked::Nobody(reason.clone()),
            _ if *asked == Asked::Nothing => *asked = Asked::Libvirt,
            _ => {}
        }
        let answer = |xml: &Option<String>| xml.as_ref().and_then(|_| answers.next());
        xmls.iter().map(answer).collect()
    }

    /// The domain of a VMI.
    fn xml(&self, mut vmi: Value) -> Option<String> {
        self.left.set(self.left.get().checked_sub(1)?);
        set_default(&mut vmi, "/spec/domain/firmware/uuid", UUID);
        let vmi = typed(&vmi).ok()?;
        let mut context = context_of_pod(&vmi);
        context.allow_emulation = true;
        context.hypervisor_device_available = self.uses_kvm.get();
        let xml = convert::domain(&vmi, &context).ok()?.to_xml();
        (xml.len() <= MAX_XML_BYTES).then_some(xml)
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

        fn define(&self, xmls: &[String]) -> Vec<LibvirtAnswer> {
            let of = |xml: &String| match self.0.iter().find(|text| xml.contains(*text)) {
                Some(text) => LibvirtAnswer::Refused(format!("no {text}")),
                None => LibvirtAnswer::Accepted,
            };
            xmls.iter().map(of).collect()
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
            fields(&["bus=\"sata\""]),
            [
                "spec.domain.devices.disks[1].disk.bus: libvirt refuses it: no bus=\"sata\"; it takes bus: virtio, scsi, usb"
            ]
        );
        assert_eq!(
            fields(&["<rng", "Haswell"]),
            [
                "spec.domain.devices.rng: libvirt refuses it: no <rng",
                "spec.domain.cpu.model: libvirt refuses it: no Haswell",
            ]
        );
        assert!(
            fields(&["<domain"])
                .iter()
                .all(|it| it.starts_with("spec.domain: "))
        );
        assert_eq!(fields(&[]), [""; 0]);
    }

    /// Takes emulated guests only, whatever this machine has.
    struct WithoutKvm;

    impl Libvirt for WithoutKvm {
        fn has_kvm(&self) -> bool {
            true
        }

        fn define(&self, xmls: &[String]) -> Vec<LibvirtAnswer> {
            let of = |xml: &String| match xml.contains("type=\"kvm\"") {
                true => LibvirtAnswer::NotAsked("no KVM".to_owned()),
                false => LibvirtAnswer::Accepted,
            };
            xmls.iter().map(of).collect()
        }
    }

    #[test]
    fn where_kvm_does_not_work_libvirt_is_asked_about_an_emulated_guest() {
        let vmi =
            json!({"metadata": {"name": "a"}, "spec": {"domain": {"memory": {"guest": "64Mi"}}}});
        let questions = Questions::new(&WithoutKvm);
        assert_eq!(questions.refusals(vmi), []);
        assert_eq!(questions.asked.take(), Asked::Libvirt);
    }
}
