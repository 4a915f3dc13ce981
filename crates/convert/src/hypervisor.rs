//! `type` of `<domain>` and `<emulator>`: what executes the guest's code.

use super::{Arch, ConvertError, DomainSpec, Input};

/// KVM, the Microsoft hypervisor (`--hypervisor`), or QEMU's own translator where neither is there
/// and `--allow-emulation` is given (`useEmulation` of the cluster), or where the guest's
/// architecture is not the host's.
pub(super) fn hypervisor(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let ctx = input.ctx;
    match (
        ctx.hypervisor_name.as_str(),
        ctx.hypervisor_device_available,
    ) {
        ("hyperv-direct", true) => domain.r#type = String::from("hyperv"),
        ("hyperv-direct", false) if !ctx.allow_emulation => return Err(unavailable("/dev/mshv")),
        ("hyperv-direct", false) => domain.r#type = String::from("qemu"),
        _ if is_foreign(input) => {
            domain.r#type = String::from("qemu");
            domain.devices.emulator = foreign_emulator(input)?;
        }
        (_, true) => {}
        (_, false) if !ctx.allow_emulation => return Err(unavailable("/dev/kvm")),
        (_, false) => domain.r#type = String::from("qemu"),
    }
    Ok(())
}

fn unavailable(device: &str) -> ConvertError {
    ConvertError::new(
        "hypervisorDeviceAvailable",
        format!("is false: {device} cannot be used, and emulation is not allowed"),
    )
}

/// The guest's architecture is known and not the host's, with `--allow-cross-arch-emulation`.
fn is_foreign(input: &Input<'_>) -> bool {
    let (guest, host) = (&input.vmi.spec.architecture, &input.ctx.host_architecture);
    input.ctx.allow_cross_arch_emulation && !guest.is_empty() && !host.is_empty() && guest != host
}

fn foreign_emulator(input: &Input<'_>) -> Result<String, ConvertError> {
    let guest = &input.vmi.spec.architecture;
    let refuse = |reason| Err(ConvertError::new("spec.architecture", reason));
    let Some(arch) = Arch::by_any_name(guest) else {
        return refuse(format!(
            "{guest:?} cannot be emulated; amd64, arm64 and s390x can"
        ));
    };
    if input
        .ctx
        .missing_emulator_binaries
        .iter()
        .any(|missing| missing == arch.emulator)
    {
        return refuse(format!(
            "{guest:?} cannot be emulated here: {} is not installed",
            arch.emulator
        ));
    }
    Ok(String::from(arch.emulator))
}
