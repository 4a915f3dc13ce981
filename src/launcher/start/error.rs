//! Why a domain does not start.

use convert::HotplugPortsError;

/// A failure to define or start the domain. The preparation has errors of its own.
#[derive(Debug, thiserror::Error)]
pub enum DomainStartError {
    /// libvirt refused a definition that sidecars or plugins had changed.
    #[error("{refusal}; the domain was changed by {}", modified_by.join(", "))]
    Define {
        /// The sidecars and plugins that changed the domain.
        modified_by: Vec<String>,
        /// libvirt's error. The text begins with it, as in the reference, so this is not a source.
        refusal: libvirt::Error,
    },
    /// libvirt does not know parts of the domain that its host devices need.
    #[error(
        "the libvirt of this image does not know {parts} and ignores it, so the host devices would not be as asked for; start the VM with an image that has a newer libvirt"
    )]
    Ignored {
        /// Their paths below `<domain>`.
        parts: String,
    },
    /// The hooks' XML means another domain to libvirt.
    #[error(
        "libvirt has defined {name:?} with the UUID {uuid}, which is not the domain of this VMI: virt-handler would lose the virtual machine; the domain was changed by {modified_by}"
    )]
    OtherDomain {
        name: String,
        uuid: String,
        /// The sidecars and plugins that changed the domain.
        modified_by: String,
    },
    /// The hotplug ports of the domain cannot be planned or made.
    #[error(transparent)]
    HotplugPorts(#[from] HotplugPortsError),
    /// A kill came while the domain was being started.
    #[error("the virtual machine was killed while it was being started")]
    Killed,
}
