//! Memory hotplug (`SyncVirtualMachineMemory`): a running domain has one virtio-mem device, of
//! which the guest uses as much as is requested.
//!
//! libvirt: [memory devices](https://libvirt.org/formatdomain.html#memory-devices)

use crate::error::refuse;
use api::vmi::{Quantity, Vmi};
use domain::DomainSpec;
use domain::memory::{Memory, MemoryDevice, MemoryTarget};

use crate::ConvertError;
use crate::memory::{GUEST, MAX_GUEST};

const GUEST_AT_BOOT: &str = "status.memory.guestAtBoot";

/// The unit of plugging (`<block>`): QEMU's advice, the size of a transparent huge page.
/// virt-api and virt-controller check the alignment of the VMI's sizes to it.
const BLOCK_BYTES: u64 = 2 << 20;
/// Block size for a guest with hugepages of 1Gi.
const LARGE_BLOCK_BYTES: u64 = 1 << 30;

/// What to do to the domain's memory.
#[derive(Debug, Clone, PartialEq)]
pub enum MemoryChange {
    /// It has the requested size.
    Nothing,
    Attach(MemoryDevice),
    /// Change the device: its size stays, its requested size is new.
    Update(MemoryDevice),
}

/// The change that the memory of the `live` domain needs for the VMI.
///
/// # Errors
/// When the VMI does not say how much the guest can have, has, or had at its boot, or asks for more
/// or less than that allows.
pub fn memory(live: &DomainSpec, vmi: &Vmi) -> Result<MemoryChange, ConvertError> {
    let wanted = Wanted::of(vmi)?;
    let requested = bytes(wanted.requested);
    let Some(device) = &live.devices.memory else {
        return Ok(MemoryChange::Attach(wanted.device()));
    };
    let mut device = device.clone();
    let target = device.target.get_or_insert_default();
    if in_bytes(&target.requested) == Some(wanted.requested) {
        return Ok(MemoryChange::Nothing);
    }
    target.requested = requested;
    Ok(MemoryChange::Update(device))
}

/// Sizes in bytes.
struct Wanted {
    size: u64,
    requested: u64,
    block: u64,
}

impl Wanted {
    fn of(vmi: &Vmi) -> Result<Self, ConvertError> {
        let memory = vmi.spec.domain.memory.as_ref();
        let guest = size(GUEST, memory.and_then(|it| it.guest.as_ref()))?;
        let max_guest = size(MAX_GUEST, memory.and_then(|it| it.max_guest.as_ref()))?;
        let status = vmi.status.memory.as_ref();
        let at_boot = size(
            GUEST_AT_BOOT,
            status.and_then(|it| it.guest_at_boot.as_ref()),
        )?;
        let huge_pages = memory.and_then(|memory| memory.hugepages.as_ref());
        let above_boot = |field, size: u64| {
            let why = format!(
                "is less than the {at_boot} bytes of {GUEST_AT_BOOT}, below which a running guest cannot go"
            );
            size.checked_sub(at_boot)
                .ok_or_else(|| ConvertError::new(field, why))
        };
        Ok(Self {
            size: above_boot(MAX_GUEST, max_guest)?,
            requested: above_boot(GUEST, guest)?,
            block: if huge_pages.is_some_and(|pages| pages.page_size == "1Gi") {
                LARGE_BLOCK_BYTES
            } else {
                BLOCK_BYTES
            },
        })
    }

    fn device(&self) -> MemoryDevice {
        MemoryDevice {
            model: "virtio-mem".into(),
            target: Some(MemoryTarget {
                size: bytes(self.size),
                requested: bytes(self.requested),
                node: "0".into(),
                block: bytes(self.block),
                ..MemoryTarget::default()
            }),
            ..MemoryDevice::default()
        }
    }
}

// D-memory-1 (docs/differences.md).
fn size(field: &'static str, quantity: Option<&Quantity>) -> Result<u64, ConvertError> {
    let Some(quantity) = quantity else {
        refuse!(
            field,
            "is missing; without it the memory of a running guest cannot be changed"
        );
    };
    quantity.bytes().map_err(ConvertError::of(field))
}

fn bytes(value: u64) -> Memory {
    Memory {
        value,
        unit: "b".into(),
    }
}

/// libvirt reports KiB.
fn in_bytes(memory: &Memory) -> Option<u64> {
    match memory.unit.as_str() {
        "b" | "bytes" => Some(memory.value),
        "KiB" => memory.value.checked_mul(1024),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(memory: &serde_json::Value, at_boot: &serde_json::Value) -> Vmi {
        serde_json::from_value(json!({
            "spec": {"domain": {"memory": memory}},
            "status": {"memory": {"guestAtBoot": at_boot}},
        }))
        .unwrap()
    }

    fn live(devices: &str) -> DomainSpec {
        DomainSpec::from_xml(&format!(
            "<domain type='kvm'><name>vm</name><devices>{devices}</devices></domain>"
        ))
        .unwrap()
    }

    #[test]
    fn the_first_change_attaches_a_device_for_all_that_the_guest_can_have() {
        let vmi = vmi(&json!({"guest": "2Gi", "maxGuest": "4Gi"}), &json!("1Gi"));
        let MemoryChange::Attach(device) = memory(&live(""), &vmi).unwrap() else {
            panic!("no device is attached");
        };
        let xml = device.to_xml();
        for part in [
            r#"<memory model="virtio-mem">"#,
            r#"<size unit="b">3221225472</size>"#,
            r#"<requested unit="b">1073741824</requested>"#,
            r#"<node>0</node>"#,
            r#"<block unit="b">2097152</block>"#,
        ] {
            assert!(xml.contains(part), "{part} is not in {xml}");
        }
    }

    #[test]
    fn a_later_change_asks_for_more_or_less_of_the_same_device() {
        let device = "<memory model='virtio-mem'><target><size unit='KiB'>3145728</size><node>0</node>\
            <block unit='KiB'>2048</block><requested unit='KiB'>1048576</requested>\
            <current unit='KiB'>1048576</current></target><alias name='ua-virtiomem0'/></memory>";
        let at = |guest: &str| {
            memory(
                &live(device),
                &vmi(&json!({"guest": guest, "maxGuest": "4Gi"}), &json!("1Gi")),
            )
            .unwrap()
        };
        assert_eq!(at("2Gi"), MemoryChange::Nothing);
        for (guest, requested) in [("3Gi", 2_147_483_648_u64), ("1Gi", 0)] {
            let MemoryChange::Update(device) = at(guest) else {
                panic!("{guest} changes nothing");
            };
            let target = device.target.as_ref().unwrap();
            assert_eq!(
                (target.requested.value, target.size.value),
                (requested, 3_145_728)
            );
            assert!(
                device.to_xml().contains("virtiomem0"),
                "{}",
                device.to_xml()
            );
        }
    }

    #[test]
    fn what_is_missing_or_impossible_is_refused_by_name() {
        let refused = |memory_spec, at_boot| {
            memory(&live(""), &vmi(&memory_spec, &at_boot))
                .unwrap_err()
                .to_string()
        };
        let text = refused(json!({"guest": "2Gi"}), json!("1Gi"));
        assert!(
            text.starts_with("spec.domain.memory.maxGuest: is missing"),
            "{text}"
        );
        let text = refused(json!({"guest": "2Gi", "maxGuest": "4Gi"}), json!(null));
        assert!(
            text.starts_with("status.memory.guestAtBoot: is missing"),
            "{text}"
        );
        let text = refused(json!({"guest": "512Mi", "maxGuest": "4Gi"}), json!("1Gi"));
        assert!(
            text.starts_with("spec.domain.memory.guest: is less than"),
            "{text}"
        );
    }
}
