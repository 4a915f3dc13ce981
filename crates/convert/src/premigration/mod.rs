//! What a migration target changes in the domain that arrives, before its QEMU starts: the parts
//! that name things of the source's pod or node. libvirt's hook brings the document and takes it
//! back (`libvirt-hook-client`).
//!
//! ```text
//!   source's XML ─► cpus ─► disk paths ─► taps ─► vgpu ─► target's XML
//! ```
//!
//! The document is edited as text, so that elements that the schema does not know stay as they are.

pub(crate) mod cpus;
pub(crate) mod disk_paths;
mod taps;
#[cfg(test)]
mod tests;
mod vgpu;

use super::{Context, ConvertError};
use api::vmi::Vmi;
use domain::xml::ReadError;
use domain::xml::tree::Element;

/// Which of the rewrites that depend on flags are on; the others always are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rewrites {
    /// `--upgrade-ordinal-ifaces`.
    pub upgrade_ordinal_interfaces: bool,
    /// `--vgpu-dedicated-hook`.
    pub vgpu: bool,
}

/// Why the domain cannot arrive.
#[derive(Debug, thiserror::Error)]
pub enum PreMigrationError {
    /// It is not a domain document.
    #[error("the document of the incoming domain cannot be read")]
    Read(#[from] ReadError),
    /// The target's CPUs do not fit.
    #[error("the incoming domain cannot be pinned to the CPUs of this pod")]
    Cpus(#[from] ConvertError),
    /// A network interface does not belong to a network of the VMI.
    #[error("tap device {device:?} of the incoming domain: {reason}")]
    Tap {
        /// Its name on the source.
        device: String,
        reason: &'static str,
    },
    /// There is more than one vGPU, here or in the domain.
    #[error(
        "a VM with vGPUs migrates with one only; the domain has {incoming} host devices, and this pod has {here} GPUs"
    )]
    SeveralGpus {
        /// Host devices of the incoming domain.
        incoming: usize,
        /// GPUs of this pod.
        here: usize,
    },
    /// The GPU here, or the device that arrives, is not a mediated device.
    #[error("{0} is not a mediated device (vGPU) with a UUID, and cannot migrate")]
    NotMediated(&'static str),
}

/// The incoming document as this pod needs it. `ctx` is the target's own, with its CPU set,
/// topology and vGPU.
///
/// # Errors
/// [`PreMigrationError`]. The migration must then fail: the guest stays on the source.
pub fn rewrite(
    xml: &str,
    vmi: &Vmi,
    ctx: &Context,
    rewrites: Rewrites,
) -> Result<String, PreMigrationError> {
    let mut domain = Element::parse(xml)?;
    cpus::rewrite(xml, &mut domain, vmi, ctx)?;
    disk_paths::rewrite(&mut domain, vmi);
    if rewrites.upgrade_ordinal_interfaces {
        taps::rewrite(&mut domain, vmi)?;
    }
    if rewrites.vgpu {
        vgpu::rewrite(&mut domain, ctx)?;
    }
    Ok(domain.to_xml())
}

/// The devices of this kind.
fn devices_mut<'e>(
    domain: &'e mut Element,
    kind: &'static str,
) -> impl Iterator<Item = &'e mut Element> {
    let devices = domain.child_mut("devices");
    let all = devices.into_iter().flat_map(Element::children_mut);
    all.filter(move |device| device.name == kind)
}
