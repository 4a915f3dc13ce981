//! Firmware, boot, features and launch security.

use super::Text;
use super::compute::SynicTimer;
use crate::api;

api! {
/// `firmware` of `DomainSpec`.
Firmware {
    "uuid" uuid: Text,
    "bootloader" bootloader: Option<Bootloader>,
    "serial" serial: Text,
    "kernelBoot" kernel_boot: Option<KernelBoot>,
    "acpi" acpi: Option<Acpi>,
}
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
/// `chassis` of `DomainSpec`.
Chassis {
    "manufacturer" manufacturer: Text,
    "version" version: Text,
    "serial" serial: Text,
    "asset" asset: Text,
    "sku" sku: Text,
}
/// `launchSecurity` of `DomainSpec`.
LaunchSecurity {
    "sev" sev: Option<Sev>,
    "snp" snp: Option<SevSnp>,
    "tdx" tdx: Option<Tdx>,
}
/// `bootloader` of `Firmware`.
Bootloader {
    "bios" bios: Option<Bios>,
    "efi" efi: Option<Efi>,
}
/// `kernelBoot` of `Firmware`.
KernelBoot {
    "kernelArgs" kernel_args: Text,
    "container" container: Option<KernelBootContainer>,
}
/// `acpi` of `Firmware`.
Acpi {
    "slicNameRef" slic_name_ref: Text,
    "msdmNameRef" msdm_name_ref: Text,
}
/// `acpi`, in several places.
FeatureState {
    "enabled" enabled: Option<bool>,
}
/// `apic` of `Features`.
FeatureApic {
    "enabled" enabled: Option<bool>,
    "endOfInterrupt" end_of_interrupt: bool,
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
/// `sev` of `LaunchSecurity`.
Sev {
    "policy" policy: Option<SevPolicy>,
    "attestation" attestation: Option<SevAttestation>,
    "session" session: Text,
    "dhCert" dh_cert: Text,
}
/// `snp` of `LaunchSecurity`.
SevSnp {
}
/// `tdx` of `LaunchSecurity`.
Tdx {
}
/// `bios` of `Bootloader`.
Bios {
    "useSerial" use_serial: Option<bool>,
}
/// `efi` of `Bootloader`.
Efi {
    "secureBoot" secure_boot: Option<bool>,
    "persistent" persistent: Option<bool>,
}
/// `container` of `KernelBoot`.
KernelBootContainer {
    "image" image: Text,
    "imagePullSecret" image_pull_secret: Text,
    "imagePullPolicy" image_pull_policy: Text,
    "kernelPath" kernel_path: Text,
    "initrdPath" initrd_path: Text,
}
/// `spinlocks` of `FeatureHyperv`.
FeatureSpinlocks {
    "enabled" enabled: Option<bool>,
    "spinlocks" spinlocks: Option<u32>,
}
/// `vendorid` of `FeatureHyperv`.
FeatureVendorId {
    "enabled" enabled: Option<bool>,
    "vendorid" vendorid: Text,
}
/// `tlbflush` of `FeatureHyperv`.
TlbFlush {
    "enabled" enabled: Option<bool>,
    "direct" direct: Option<FeatureState>,
    "extended" extended: Option<FeatureState>,
}
/// `policy` of `Sev`.
SevPolicy {
    "encryptedState" encrypted_state: Option<bool>,
}
/// `attestation` of `Sev`.
SevAttestation {
}
}
