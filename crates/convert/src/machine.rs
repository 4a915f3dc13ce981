//! What every domain has, and what happens when the guest reboots.

use super::{ConvertError, DomainSpec, Input};

/// Namespace of `<qemu:commandline>`.
const QEMU_NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// `<on_reboot>`: without a policy libvirt's default, which is to reboot. `<on_crash>` and
/// `<on_poweroff>` always are libvirt's defaults.
pub(super) fn reboot_policy(
    input: &Input<'_>,
    domain: &mut DomainSpec,
) -> Result<(), ConvertError> {
    domain.on_reboot = String::from(match input.spec.reboot_policy.as_deref() {
        Some("Terminate") => "destroy",
        Some("Reboot") => "restart",
        _ => "",
    });
    Ok(())
}

/// What a domain has when no other rule says otherwise: KVM, full virtualisation, the
/// architecture's machine.
pub(super) fn defaults(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    domain.xmlns = String::from(QEMU_NAMESPACE);
    if domain.r#type.is_empty() {
        domain.r#type = String::from("kvm");
    }
    let kind = &mut domain.os.r#type;
    kind.os = String::from("hvm");
    if kind.arch.is_empty() {
        kind.arch = String::from(input.arch.os_arch);
    }
    if kind.machine.is_empty() {
        kind.machine = String::from(input.arch.default_machine);
    }
    Ok(())
}
