//! The VirtualMachineInstance as virt-handler sends it: the part of KubeVirt's API object that a
//! launcher reads (<https://kubevirt.io/api-reference/>). Reading is as lenient as the API server:
//! an unknown field is ignored, `null` is the same as an absent field.
//!
//! A field is declared here once the launcher reads it, and not before: a wrong type refuses the
//! VMI, which must not happen for a field that nothing depends on.

pub mod access_credentials;
pub mod clock;
pub mod cpu;
pub mod devices;
pub mod disks;
pub mod features;
pub mod firmware;
pub mod host_devices;
pub mod interfaces;
mod json;
pub mod launch_security;
pub mod memory;
pub mod migration;
pub mod networks;
mod quantity;
pub mod spec;
pub mod status;
pub mod volumes;

use std::collections::BTreeMap;

pub use json::null_is_default;
pub use quantity::{Factor, IntOrString, Quantity, QuantityError};
use spec::VirtualMachineInstanceSpec;
use status::VirtualMachineInstanceStatus;

/// The annotation with the list of hook sidecars.
pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";

/// Declares API objects: one line for each field, with its name in JSON. Every field may be
/// absent or null; it then has its type's default.
#[macro_export]
macro_rules! api {
    ($($(#[$meta:meta])* $name:ident { $($(#[$m:meta])* $json:literal $field:ident: $t:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {$(
            $(#[$m])* #[serde(rename = $json, deserialize_with = "crate::vmi::null_is_default")]
            pub $field: $t,
        )*}
    )*};
}

api! {
Vmi {
    "metadata" metadata: ObjectMeta,
    "spec" spec: VirtualMachineInstanceSpec,
    "status" status: VirtualMachineInstanceStatus,
}
/// `metadata` of a VMI.
ObjectMeta {
    "name" name: String,
    "namespace" namespace: String,
    "uid" uid: String,
    "annotations" annotations: BTreeMap<String, String>,
    "deletionTimestamp" deletion_timestamp: Option<String>,
}
}

impl Vmi {
    /// The name of the libvirt domain: `<namespace>_<name>`.
    #[must_use]
    pub fn domain_name(&self) -> String {
        format!("{}_{}", self.metadata.namespace, self.metadata.name)
    }

    /// Whether the guest has a TPM with persistent state.
    #[must_use]
    pub fn has_persistent_tpm(&self) -> bool {
        let tpm = self.spec.domain.devices.tpm.as_ref();
        tpm.is_some_and(|tpm| tpm.enabled != Some(false) && tpm.persistent == Some(true))
    }

    /// Whether the guest has devices of the host (VFIO).
    #[must_use]
    pub fn has_vfio(&self) -> bool {
        let devices = &self.spec.domain.devices;
        !devices.host_devices.is_empty()
            || !devices.gpus.is_empty()
            || devices.interfaces.iter().any(|it| it.sriov.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::Vmi;

    // D-conv-7 (docs/differences.md).
    #[test]
    fn a_wrong_type_refuses_only_in_fields_that_are_read() {
        let unread = r#"{"spec":{"nodeSelector":"any","schedulerName":[]},
            "status":{"phase":"Running","migrationState":{"completed":"yes"},"guestOSInfo":1}}"#;
        let vmi: Vmi = serde_json::from_str(unread).unwrap();
        assert_eq!(vmi.status.phase, "Running");
        let read = r#"{"status":{"phase":1}}"#;
        assert!(serde_json::from_str::<Vmi>(read).is_err());
    }
}
