//! Live migration: the domain that the source sends to the target, and how much there is to
//! transfer. Pure, as the rest of the conversion.
//!
//! ```text
//! libvirt's migratable XML ──► metadata of the VM only ──► volumes that move ──► CPUs and paths of the target ──► UID
//!                                                                               (the target's hook server
//!                                                                                does this where it is on)
//! ```

mod data_size;
mod dedicated_cpus;
mod document;
mod error;
mod moved_volumes;
mod namespace;
mod root;
mod volumes;

pub use data_size::data_size_gigabytes;
pub use document::{TargetRewrite, migration_xml};
pub use error::DocumentError;
pub(crate) use namespace::move_to_namespace;
pub use root::move_to_root;
pub use volumes::disks_to_copy;

use domain::alias::Alias;
use domain::xml::tree::Element;

/// The disks of a domain's document.
fn disks_mut(domain: &mut Element) -> impl Iterator<Item = &mut Element> {
    let devices = domain.child_mut("devices").into_iter();
    devices
        .flat_map(Element::children_mut)
        .filter(|device| device.name == "disk")
}

/// The volume of a disk, which is its alias.
fn volume_of(disk: &Element) -> Option<String> {
    let name = disk.child("alias")?.attribute("name")?;
    Some(Alias::from_qualified(name).name)
}

/// Sets an attribute, where it is if it is there.
fn set_attribute(element: &mut Element, name: &str, value: &str) {
    match element.attributes.iter_mut().find(|(key, _)| key == name) {
        Some((_, old)) => value.clone_into(old),
        None => element.attributes.push((name.into(), value.into())),
    }
}
