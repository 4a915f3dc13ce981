//! `<memory>`, `<maxMemory>` and `<memoryBacking>`.

use super::{ConvertError, DomainSpec, Input};
use crate::error::refuse;
use api::vmi::{Quantity, QuantityError, Vmi};
use domain::cpu::{Numa, NumaCell};
use domain::memory::{
    HugePages, MaxMemory, Memory, MemoryBacking, MemoryBackingAccess, MemoryBackingSource,
};

pub(super) const GUEST: &str = "spec.domain.memory.guest";
pub(super) const MAX_GUEST: &str = "spec.domain.memory.maxGuest";

/// `"false"` keeps hugepages from being allocated through memfd; anything else does not.
const MEMFD: &str = "kubevirt.io/memfd";

/// Memory of the guest: `memory.guest`, else `resources.requests`, else `resources.limits`, else
/// nothing. virt-controller adds the memory overhead (`reservedOverhead`) to the pod, not to this.
#[must_use]
pub fn guest_memory(vmi: &Vmi) -> Option<GuestSize<'_>> {
    let domain = &vmi.spec.domain;
    let memory = domain.memory.as_ref();
    let (requests, limits) = (&domain.resources.requests, &domain.resources.limits);
    let places = [
        (GUEST, memory.and_then(|memory| memory.guest.as_ref())),
        (
            "spec.domain.resources.requests.memory",
            requests.get("memory"),
        ),
        ("spec.domain.resources.limits.memory", limits.get("memory")),
    ];
    let mut found = places.into_iter().filter_map(|(field, quantity)| {
        let quantity = quantity?;
        Some(GuestSize { field, quantity })
    });
    found.next()
}

/// A size, and the field of the VMI that has it.
#[derive(Debug, Clone, Copy)]
pub struct GuestSize<'a> {
    /// Path of the field.
    pub field: &'static str,
    pub quantity: &'a Quantity,
}

impl GuestSize<'_> {
    /// The size in bytes.
    ///
    /// # Errors
    /// When it is not a quantity, or a negative one.
    pub fn bytes(&self) -> Result<u64, ConvertError> {
        self.quantity.bytes().map_err(|error| self.refusal(error))
    }

    fn refusal(&self, error: QuantityError) -> ConvertError {
        ConvertError::new(self.field, error)
    }
}

/// Memory of the guest, and how far it can grow where `maxGuest` differs from it.
pub(super) fn memory(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let in_bytes = |value| Memory {
        value,
        unit: String::from("b"),
    };
    let memory = input.spec.memory.as_ref();
    if let Some(max_guest) = memory.and_then(|memory| memory.max_guest.as_ref()) {
        let max_guest = GuestSize {
            field: MAX_GUEST,
            quantity: max_guest,
        };
        let Some(guest) = memory.and_then(|memory| memory.guest.as_ref()) else {
            refuse!(
                MAX_GUEST,
                "is {}, but the guest's memory at the start is missing: set {GUEST}",
                max_guest.quantity.0
            );
        };
        if !max_guest
            .quantity
            .equals(guest)
            .map_err(|error| max_guest.refusal(error))?
        {
            domain.max_memory = Some(MaxMemory {
                value: max_guest.bytes()?,
                unit: String::from("b"),
                slots: 0,
            });
        }
    }
    domain.memory = in_bytes(guest_memory(input.vmi).map_or(Ok(0), |size| size.bytes())?);
    Ok(())
}

/// `<hugepages>`, shared memory for virtiofsd and passt, and memfd, which either needs.
// D-next-4 (docs/differences.md).
pub(super) fn backing(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let vmi = input.vmi;
    let devices = &vmi.spec.domain.devices;
    let hugepages = vmi
        .spec
        .domain
        .memory
        .as_ref()
        .is_some_and(|memory| memory.hugepages.is_some());
    let shared = devices.filesystems.iter().any(|fs| fs.virtiofs.is_some())
        || devices
            .interfaces
            .iter()
            .any(|iface| iface.passt_binding.is_some());
    if !hugepages && !shared {
        return Ok(());
    }
    let memfd = shared || input.annotation(MEMFD) != "false";
    domain.memory_backing = Some(MemoryBacking {
        huge_pages: hugepages.then(HugePages::default),
        access: shared.then(|| MemoryBackingAccess {
            mode: String::from("shared"),
        }),
        source: memfd.then(|| MemoryBackingSource {
            r#type: String::from("memfd"),
        }),
        ..MemoryBacking::default()
    });
    if memfd && domain.cpu.numa.is_none() {
        domain.cpu.numa = Some(single_cell(
            vmi,
            domain.vcpu.as_ref().map_or(0, |vcpu| vcpu.cpus),
        )?);
    }
    Ok(())
}

/// QEMU takes memfd through NUMA cells only: one with all vCPUs, those that can be plugged
/// included, and the memory to start with.
fn single_cell(vmi: &Vmi, vcpus: u32) -> Result<Numa, ConvertError> {
    let bytes = guest_memory(vmi).map_or(Ok(0), |size| {
        size.quantity.value().map_err(|error| size.refusal(error))
    })?;
    let cell = NumaCell {
        id: String::from("0"),
        cpus: format!("0-{}", vcpus.wrapping_sub(1)),
        memory: Some(u64::try_from(bytes / 1024).unwrap_or(0)),
        unit: String::from("KiB"),
        ..NumaCell::default()
    };
    Ok(Numa { cells: vec![cell] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmi(domain: &str) -> Vmi {
        serde_json::from_str(&format!(r#"{{"spec":{{"domain":{domain}}}}}"#)).unwrap()
    }

    #[test]
    fn requests_count_before_limits_and_guest_before_both() {
        let resources = r#""resources":{"requests":{"memory":"1Gi"},"limits":{"memory":"2Gi"}}"#;
        let memory =
            |domain: &str| guest_memory(&vmi(domain)).map(|size| size.quantity.0.to_string());
        assert_eq!(memory(&format!("{{{resources}}}")).unwrap(), "1Gi");
        assert_eq!(
            memory(&format!(r#"{{{resources},"memory":{{"guest":"512Mi"}}}}"#)).unwrap(),
            "512Mi"
        );
        assert_eq!(
            memory(r#"{"resources":{"limits":{"memory":"2Gi"}}}"#).unwrap(),
            "2Gi"
        );
        assert_eq!(memory("{}"), None);
    }

    #[test]
    fn the_cell_for_memfd_spans_all_vcpus_in_kib() {
        let cell = single_cell(&vmi(r#"{"memory":{"guest":"1Gi","maxGuest":"4Gi"}}"#), 8)
            .unwrap()
            .cells
            .remove(0);
        assert_eq!(
            (cell.cpus.as_str(), cell.memory, cell.unit.as_str()),
            ("0-7", Some(1 << 20), "KiB")
        );
    }
}
