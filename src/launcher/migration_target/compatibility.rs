//! Whether this pod's libvirt and QEMU have the machine type and the CPU model of the guest that
//! would arrive. Without this check its source fails later, when libvirt refuses the domain.

use crate::launcher::error::LauncherError;
use crate::launcher::libvirt_domain::LibvirtDomain;
use api::vmi::Vmi;
use domain::DomainSpec;
use libvirt::Connection;

use super::error::TargetError;

/// The value of `<cpu mode>` with a named model.
const CUSTOM: &str = "custom";

/// What the arriving guest needs of libvirt and QEMU.
struct Needs {
    /// `kvm` or `qemu`.
    kind: String,
    /// libvirt's name of the architecture.
    arch: String,
    machine: String,
    /// The model that the VMI names, or empty: the source has chosen one for this node.
    cpu_model: String,
}

/// Refuses a guest that cannot run here.
///
/// # Errors
/// [`TargetError::MachineType`], [`TargetError::CpuModel`].
// D-mig-34 (docs/differences.md).
pub(super) async fn check(
    libvirt: &LibvirtDomain,
    vmi: &Vmi,
    wanted: &DomainSpec,
) -> Result<(), LauncherError> {
    let needs = Needs::new(vmi, wanted);
    let what = "asking libvirt for its machine types and CPU models";
    let asked = libvirt.read_in_any_time(what, move |connection, _| needs.check(connection));
    match asked.await {
        Err(LauncherError::Target(refusal)) => Err(refusal.into()),
        Err(error) => {
            // libvirt may still take the guest.
            tracing::warn!(reason = %os::logging::chain(&error), "Could not check the guest's machine type and CPU model");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

impl Needs {
    fn new(vmi: &Vmi, wanted: &DomainSpec) -> Self {
        let (kind, cpu) = (&wanted.os.r#type, &wanted.cpu);
        let is_custom = cpu.mode == CUSTOM;
        // `q35` of the spec is another version on each QEMU; the status has the running one.
        let running = vmi.status.machine.as_ref();
        let running = running.map_or("", |machine| machine.r#type.as_str());
        let machine = if running.is_empty() {
            &kind.machine
        } else {
            running
        };
        Self {
            kind: wanted.r#type.clone(),
            arch: kind.arch.clone(),
            machine: machine.to_owned(),
            cpu_model: if is_custom {
                cpu.model.clone()
            } else {
                String::new()
            },
        }
    }

    fn check(self, connection: &Connection) -> Result<(), LauncherError> {
        match connection.check_machine(&self.kind, &self.arch, &self.machine) {
            // It could also be the kind of domain that is not valid.
            Err(refusal)
                if refusal.is_invalid_argument() && refusal.message.contains(&self.machine) =>
            {
                let machine = self.machine;
                return Err(TargetError::MachineType { machine, refusal }.into());
            }
            checked => checked?,
        }
        if self.cpu_model.is_empty() {
            return Ok(());
        }
        let known = connection.cpu_models(&self.arch)?;
        if known.is_empty() || known.contains(&self.cpu_model) {
            return Ok(());
        }
        let model = self.cpu_model;
        Err(TargetError::CpuModel { model }.into())
    }
}
