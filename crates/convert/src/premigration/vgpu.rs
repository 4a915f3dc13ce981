//! The vGPU: the mediated device of this pod in place of the source's (`--vgpu-dedicated-hook`).

use super::{Context, PreMigrationError};
use domain::xml::tree::Element;

/// Puts the UUID of this pod's vGPU into the domain's host device. Without GPUs here, or host
/// devices there, nothing.
pub(super) fn rewrite(domain: &mut Element, ctx: &Context) -> Result<(), PreMigrationError> {
    let mut incoming: Vec<&mut Element> = super::devices_mut(domain, "hostdev").collect();
    let count = incoming.len();
    let (Some(device), Some(gpu)) = (incoming.first_mut(), ctx.gpu_host_devices.first()) else {
        return Ok(());
    };
    if count > 1 || ctx.gpu_host_devices.len() > 1 {
        return Err(PreMigrationError::SeveralGpus {
            incoming: count,
            here: ctx.gpu_host_devices.len(),
        });
    }
    let uuid = gpu.source_address.as_ref().map(|address| &address.uuid);
    let uuid = uuid
        .filter(|_| gpu.r#type == "mdev")
        .ok_or(PreMigrationError::NotMediated("the GPU of this pod"))?;
    let is_mediated = device.attribute("type") == Some("mdev");
    let address = device
        .child_mut("source")
        .and_then(|source| source.child_mut("address"))
        .filter(|_| is_mediated)
        .ok_or(PreMigrationError::NotMediated("the incoming host device"))?;
    address.attributes.retain(|(name, _)| name != "uuid");
    address.attributes.push(("uuid".to_owned(), uuid.clone()));
    Ok(())
}
