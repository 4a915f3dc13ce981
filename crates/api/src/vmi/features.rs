//! `spec.domain.features`, with the Hyper-V enlightenments.
use crate::api;

api! {
/// `features` of `DomainSpec`.
Features {
    "acpi" acpi: FeatureState,
    "apic" apic: Option<FeatureApic>,
    "hypervPassthrough" hyperv_passthrough: Option<HypervPassthrough>,
    "hyperv" hyperv: Option<FeatureHyperv>,
    "smm" smm: Option<FeatureState>,
    "kvm" kvm: Option<FeatureKvm>,
    "pvspinlock" pvspinlock: Option<FeatureState>,
}
/// `acpi`, in several places.
FeatureState {
    "enabled" enabled: Option<bool>,
}
/// `apic` of `Features`.
FeatureApic {
    "enabled" enabled: Option<bool>,
}
/// `hypervPassthrough` of `Features`.
HypervPassthrough {
    "enabled" enabled: Option<bool>,
}
/// `hyperv` of `Features`.
FeatureHyperv {
    "relaxed" relaxed: Option<FeatureState>,
    "vapic" vapic: Option<FeatureState>,
    "spinlocks" spinlocks: Option<FeatureSpinlocks>,
    "vpindex" vpindex: Option<FeatureState>,
    "runtime" runtime: Option<FeatureState>,
    "synic" synic: Option<FeatureState>,
    "synictimer" synictimer: Option<SynicTimer>,
    "reset" reset: Option<FeatureState>,
    "vendorid" vendorid: Option<FeatureVendorId>,
    "frequencies" frequencies: Option<FeatureState>,
    "reenlightenment" reenlightenment: Option<FeatureState>,
    "tlbflush" tlbflush: Option<TlbFlush>,
    "ipi" ipi: Option<FeatureState>,
    "evmcs" evmcs: Option<FeatureState>,
}
/// `kvm` of `Features`.
FeatureKvm {
    "hidden" hidden: bool,
}
/// `spinlocks` of `FeatureHyperv`.
FeatureSpinlocks {
    "enabled" enabled: Option<bool>,
    "spinlocks" spinlocks: Option<u32>,
}
/// `synictimer` of `FeatureHyperv`.
SynicTimer {
    "enabled" enabled: Option<bool>,
    "direct" direct: Option<FeatureState>,
}
/// `vendorid` of `FeatureHyperv`.
FeatureVendorId {
    "enabled" enabled: Option<bool>,
    "vendorid" vendorid: String,
}
/// `tlbflush` of `FeatureHyperv`.
TlbFlush {
    "enabled" enabled: Option<bool>,
    "direct" direct: Option<FeatureState>,
    "extended" extended: Option<FeatureState>,
}
}
