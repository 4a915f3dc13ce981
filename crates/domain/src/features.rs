//! `<features>`, with the Hyper-V enlightenments.
//!
//! libvirt: [hypervisor features](https://libvirt.org/formatdomain.html#hypervisor-features)
use super::vocabulary::OnOff;
use super::xml::elements;

elements! {
/// `<features>`.
Features {
    child "acpi" "ACPI" acpi: Option<FeatureEnabled>,
    child "apic" "APIC" apic: Option<FeatureEnabled>,
    child "hyperv" "Hyperv" hyperv: Option<FeatureHyperv>,
    child "smm" "SMM" smm: Option<FeatureEnabled>,
    child "kvm" "KVM" kvm: Option<FeatureKvm>,
    child "pvspinlock" "PVSpinlock" pv_spinlock: Option<FeaturePvSpinlock>,
    child "pmu" "PMU" pmu: Option<FeatureState>,
    child "vmport" "VMPort" vmport: Option<FeatureState>,
}
/// `<hyperv>`: what makes Windows run well.
FeatureHyperv {
    attr? "mode" "Mode" mode: String,
    child "relaxed" "Relaxed" relaxed: Option<FeatureState>,
    child "vapic" "VAPIC" vapic: Option<FeatureState>,
    child "spinlocks" "Spinlocks" spinlocks: Option<FeatureSpinlocks>,
    child "vpindex" "VPIndex" vpindex: Option<FeatureState>,
    child "runtime" "Runtime" runtime: Option<FeatureState>,
    child "synic" "SyNIC" synic: Option<FeatureState>,
    child "stimer" "SyNICTimer" synic_timer: Option<SynicTimer>,
    child "reset" "Reset" reset: Option<FeatureState>,
    child "vendor_id" "VendorID" vendor_id: Option<FeatureVendorId>,
    child "frequencies" "Frequencies" frequencies: Option<FeatureState>,
    child "reenlightenment" "Reenlightenment" reenlightenment: Option<FeatureState>,
    child "tlbflush" "TLBFlush" tlb_flush: Option<TlbFlush>,
    child "ipi" "IPI" ipi: Option<FeatureState>,
    child "evmcs" "EVMCS" evmcs: Option<FeatureState>,
}
/// `<spinlocks>`: retries before a vCPU gives up its turn.
FeatureSpinlocks {
    attr? "state" "State" state: OnOff,
    attr? "retries" "Retries" retries: Option<u32>,
}
/// `<stimer>`: synthetic timers.
SynicTimer {
    child "direct" "Direct" direct: Option<FeatureState>,
    attr? "state" "State" state: OnOff,
}
/// `<tlbflush>`: the guest asks the host to flush.
TlbFlush {
    child "direct" "Direct" direct: Option<FeatureState>,
    child "extended" "Extended" extended: Option<FeatureState>,
    attr? "state" "State" state: OnOff,
}
/// `<pvspinlock>`: spinlocks that know of the host.
FeaturePvSpinlock {
    attr? "state" "State" state: OnOff,
}
/// `<vendor_id>`: the name of the hypervisor, at most 12 characters.
FeatureVendorId {
    attr? "state" "State" state: OnOff,
    attr? "value" "Value" value: String,
}
/// A feature that is on if its element is there.
FeatureEnabled {}
/// A feature that is `on` or `off`.
FeatureState {
    attr? "state" "State" state: OnOff,
}
/// `<kvm>`: what the guest may know of KVM.
FeatureKvm {
    child "hidden" "Hidden" hidden: Option<FeatureState>,
    child "hint-dedicated" "HintDedicated" hint_dedicated: Option<FeatureState>,
}
}

impl From<bool> for FeatureState {
    fn from(on: bool) -> Self {
        Self { state: on.into() }
    }
}
