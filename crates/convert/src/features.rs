//! `<features>`: ACPI, APIC, SMM, KVM, PMU, the VMware port, and Hyper-V.

use super::{ConvertError, DomainSpec, Input, hyperv};
use domain::features::{FeatureEnabled, FeatureKvm, FeaturePvSpinlock, Features};

/// Without `spec.domain.features` the element is empty. A feature of the VMI is on unless `enabled`
/// is false; ACPI is on even if the VMI does not have it. `endOfInterrupt` of APIC has no effect.
pub(super) fn features(input: &Input<'_>, domain: &mut DomainSpec) -> Result<(), ConvertError> {
    let features = domain.features.insert(Features::default());
    let Some(wanted) = &input.spec.features else {
        return Ok(());
    };
    let enabled = |value: Option<bool>| value.unwrap_or(true).then_some(FeatureEnabled {});

    features.acpi = enabled(wanted.acpi.enabled);
    features.smm = wanted.smm.as_ref().and_then(|smm| enabled(smm.enabled));
    features.apic = wanted.apic.as_ref().and_then(|apic| enabled(apic.enabled));
    features.hyperv = hyperv::enlightenments(wanted)?;
    features.kvm = wanted.kvm.as_ref().map(|kvm| FeatureKvm {
        hidden: Some(kvm.hidden.into()),
        ..FeatureKvm::default()
    });
    features.pv_spinlock = wanted.pvspinlock.as_ref().map(|lock| FeaturePvSpinlock {
        state: lock.enabled.unwrap_or(true).into(),
    });
    // A TDX module does not virtualise performance counters.
    features.pmu = input.ctx.use_launch_security_tdx.then(|| false.into());
    features.vmport = input.arch.vmport.then(|| false.into());
    Ok(())
}
