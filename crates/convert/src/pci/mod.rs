//! Where devices sit on the guest's PCI buses.
//!
//! ```text
//! root_complex   all devices directly on the root complex, by annotation
//! slots          which devices take a slot of a PCI bus
//! numa           host devices next to their guest NUMA cell
//! grace          the same for NVIDIA Grace GPUs, each behind its own SMMU
//! expander       the buses, ports and numbers of such a layout
//! guest_cell     which guest NUMA cell a host device belongs to
//! host           the node's sysfs, as data; grace_host: Grace GPUs in it
//! ```

mod expander;
mod grace;
mod grace_host;
mod guest_cell;
mod host;
mod numa;
mod root_complex;
mod slots;

pub(super) use grace::{grace, requirements as grace_requirements};
pub use grace_host::{NODE_DIRS_WITHOUT_LINKS, NODE_LINK_DEPTH};
pub(super) use numa::numa;
pub(super) use root_complex::{ANNOTATION as ROOT_COMPLEX_ANNOTATION, root_complex};
pub(super) use slots::pci_addresses;
