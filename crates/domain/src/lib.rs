//! libvirt's domain as types: one schema from which come XML writing, XML reading and the Domain
//! JSON that virt-handler decodes. The elements are those of
//! <https://libvirt.org/formatdomain.html>; the JSON names are the wire contract with virt-handler.
#![forbid(unsafe_code)]

pub mod address;
pub mod alias;
pub mod backup;
pub mod character;
pub mod clock;
pub mod controllers;
pub mod cpu;
pub mod devices;
pub mod disks;
pub mod display;
mod excerpt;
pub mod features;
pub mod firmware;
pub mod guest_agent;
pub mod host_devices;
pub mod interfaces;
pub mod launch_security;
pub mod memory;
pub mod metadata;
pub mod object;
pub mod pci_address;
pub mod spec;
pub mod stats;
pub mod status;
pub mod sysinfo;
pub mod vocabulary;
pub mod xml;

pub use excerpt::excerpt;
pub use object::Domain;
pub use pci_address::{PciAddress, PciAddressError};
pub use spec::DomainSpec;
pub use vocabulary::{OnOff, YesNo};

xml::documents! {
    DomainSpec: "domain",
    backup::DomainBackup: "domainbackup",
    backup::DomainCheckpoint: "domaincheckpoint",
    disks::Disk: "disk",
    host_devices::HostDevice: "hostdev",
    interfaces::Interface: "interface",
    memory::MemoryDevice: "memory",
    metadata::KubeVirtMetadata: "kubevirt",
}

impl DomainSpec {
    /// Reads a `<domain>` document; skips elements that the schema does not know.
    ///
    /// # Errors
    /// When the text is not a domain document, see [`xml::ReadError`].
    pub fn from_xml(text: &str) -> Result<Self, xml::ReadError> {
        let mut domain: Self = xml::from_str("domain", text)?;
        // The namespace may have been declared under another prefix, or further down.
        if domain.qemu_cmd.is_some() && domain.xmlns.is_empty() {
            domain.xmlns = xml::Namespace::Qemu.uri().into();
        }
        Ok(domain)
    }

    /// Whether QEMU emulates the processor, without KVM or Hyper-V.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.r#type == "qemu"
    }

    /// The document as virt-handler decodes it, with Go's names: the `Spec` of a Domain document.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Only maps with keys that are not text and failing writers make this fail; there are
        // neither.
        serde_json::to_string(&xml::Go(self)).unwrap_or_default()
    }
}
