//! `devices.gpus`.

use super::super::machine::Machine;
use super::super::{PodError, Root};
use super::claims::Claimed;
use super::pool::Pool;
use super::{all_there, mdev, pci};
use api::vmi::Vmi;
use api::vmi::host_devices::{Gpu, VgpuDisplayOptions};
use convert::context::HostDeviceSpec;

const ON: &str = "on";

/// Whole GPUs, then virtual ones, then claimed ones; each in the VMI's order.
pub(super) fn devices(
    root: &Root,
    machine: &Machine,
    vmi: &Vmi,
) -> Result<Vec<HostDeviceSpec>, PodError> {
    let wanted = &vmi.spec.domain.devices.gpus;
    let claimed = |gpu: &&Gpu| gpu.device_name.is_empty() && !gpu.claim_name.is_empty();
    let pool = |prefix| {
        Pool::new(
            machine,
            prefix,
            wanted.iter().map(|gpu| gpu.device_name.as_str()),
        )
    };

    let mut found = Vec::new();
    let mut addresses = pool("PCI_RESOURCE");
    for gpu in wanted {
        if let Some(address) = addresses.take(&gpu.device_name) {
            found.push(with_asked_display(
                pci(&format!("gpu-{}", gpu.name), &address)?,
                gpu,
            ));
        }
    }
    let mut virtual_gpus = Vec::new();
    let mut uuids = pool("MDEV_PCI_RESOURCE");
    for gpu in wanted {
        if let Some(uuid) = uuids.take(&gpu.device_name) {
            virtual_gpus.push(with_vgpu_display(
                mdev(&format!("gpu-{}", gpu.name), &uuid, "vfio-pci"),
                gpu,
            ));
        }
    }
    default_display(wanted, &mut virtual_gpus);
    found.append(&mut virtual_gpus);
    let plugged: Vec<&str> = wanted
        .iter()
        .filter(|gpu| !claimed(gpu))
        .map(|gpu| gpu.name.as_str())
        .collect();
    all_there("GPUs", &plugged, &found)?;

    let mut from_claims = Vec::new();
    for gpu in wanted.iter().filter(claimed) {
        let alias = format!("dra-gpu-{}", gpu.name);
        from_claims.push(
            match super::claims::find(root, vmi, &gpu.name, &gpu.claim_name, &gpu.request_name)? {
                Claimed::Mdev(uuid) => with_vgpu_display(mdev(&alias, &uuid, "vfio-pci"), gpu),
                Claimed::Pci(address) => pci(&alias, &address)?,
            },
        );
    }
    default_display(wanted, &mut from_claims);
    found.append(&mut from_claims);
    Ok(found)
}

fn display(gpu: &Gpu) -> Option<&VgpuDisplayOptions> {
    gpu.virtual_gpu_options.as_ref()?.display.as_ref()
}

/// A whole GPU is a display only when asked for: a PCI function may be either kind.
// D-next-3 (docs/differences.md).
fn with_asked_display(mut device: HostDeviceSpec, gpu: &Gpu) -> HostDeviceSpec {
    if let Some(options) = display(gpu).filter(|options| options.enabled == Some(true)) {
        device.display = ON.into();
        if options.ram_fb.as_ref().and_then(|ram_fb| ram_fb.enabled) == Some(true) {
            device.ram_fb = ON.into();
        }
    }
    device
}

/// Makes a virtual GPU with display options a display, with a boot framebuffer (`ramFB`), unless
/// the options say no.
fn with_vgpu_display(mut device: HostDeviceSpec, gpu: &Gpu) -> HostDeviceSpec {
    if let Some(options) = display(gpu).filter(|options| options.enabled != Some(false)) {
        device.display = ON.into();
        if options.ram_fb.as_ref().and_then(|ram_fb| ram_fb.enabled) != Some(false) {
            device.ram_fb = ON.into();
        }
    }
    device
}

/// Makes the first virtual GPU a display if no GPU of the VMI has display options.
fn default_display(wanted: &[Gpu], found: &mut [HostDeviceSpec]) {
    if wanted.iter().all(|gpu| display(gpu).is_none())
        && let Some(first) = found.iter_mut().find(|device| device.r#type == "mdev")
    {
        first.display = ON.into();
        first.ram_fb = ON.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displays(variables: &[(&str, &str)], gpus: &str) -> Vec<(String, String, String)> {
        let machine = Machine {
            root: "/".into(),
            environment: variables
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
        };
        let vmi = serde_json::from_str(&format!(
            r#"{{"spec":{{"domain":{{"devices":{{"gpus":{gpus}}}}}}}}}"#
        ))
        .unwrap();
        let found = devices(&Root::default(), &machine, &vmi).unwrap();
        found
            .into_iter()
            .map(|gpu| (gpu.alias, gpu.display, gpu.ram_fb))
            .collect()
    }

    fn row(alias: &str, display: &str, ram_fb: &str) -> (String, String, String) {
        (alias.into(), display.into(), ram_fb.into())
    }

    const TWO_VIRTUAL: (&str, &str) = ("MDEV_PCI_RESOURCE_V", "u1,u2");

    #[test]
    fn the_first_virtual_gpu_is_the_display_by_default() {
        let gpus = r#"[{"name":"a","deviceName":"v"},{"name":"b","deviceName":"v"}]"#;
        assert_eq!(
            displays(&[TWO_VIRTUAL], gpus),
            [row("gpu-a", "on", "on"), row("gpu-b", "", "")]
        );
    }

    #[test]
    fn display_options_replace_the_default() {
        let gpus = r#"[{"name":"a","deviceName":"v","virtualGPUOptions":{"display":{"enabled":false}}},
                       {"name":"b","deviceName":"v","virtualGPUOptions":{"display":{"ramFB":{"enabled":false}}}}]"#;
        assert_eq!(
            displays(&[TWO_VIRTUAL], gpus),
            [row("gpu-a", "", ""), row("gpu-b", "on", "")]
        );
    }

    #[test]
    // D-next-3 (docs/differences.md).
    fn a_whole_gpu_is_a_display_only_when_asked() {
        let gpus = r#"[{"name":"a","deviceName":"v"},{"name":"b","deviceName":"v","virtualGPUOptions":{"display":{"enabled":true}}}]"#;
        let addresses = ("PCI_RESOURCE_V", "0000:3b:10.0,0000:3b:10.1");
        assert_eq!(
            displays(&[addresses], gpus),
            [row("gpu-a", "", ""), row("gpu-b", "on", "")]
        );
    }
}
