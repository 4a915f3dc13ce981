//! The context in which a VMI of a file is converted: that of a pod in which everything is as the
//! VMI expects it.

use std::collections::BTreeMap;

use super::defaults::host_architecture;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use api::vmi::cpu::Cpu;
use convert::Context;
use convert::context::{CellCpu, DiskInfo, NumaCell, Topology};

/// What a conversion sees of a pod in which everything is as the VMI expects it, with the taps of
/// virt-handler.
pub fn context_of_pod(vmi: &Vmi) -> Context {
    let mut ctx = assumed_context(vmi);
    pod::of_options(vmi, &VirtualMachineOptions::default(), &mut ctx);
    attach_interfaces(vmi, &mut ctx);
    assume_cpus(vmi, &mut ctx);
    ctx
}

/// Assumes a qcow2 image in every container disk.
fn container_images(vmi: &Vmi) -> BTreeMap<String, DiskInfo> {
    let image = DiskInfo {
        format: "qcow2".into(),
        ..DiskInfo::default()
    };
    let volumes = vmi.spec.volumes.iter();
    let volumes = volumes.filter(|volume| volume.container_disk.is_some());
    let images = volumes.map(|volume| (volume.name.clone(), image.clone()));
    images.collect()
}

/// virt-handler makes a tap device for each interface of these kinds, unless the options say
/// otherwise.
pub fn attach_interfaces(vmi: &Vmi, ctx: &mut Context) {
    for interface in &vmi.spec.domain.devices.interfaces {
        if interface.bridge.is_some() || interface.masquerade.is_some() {
            let attachments = &mut ctx.domain_attachment_by_interface_name;
            let attachment = attachments.entry(interface.name.clone());
            attachment.or_insert_with(|| "tap".into());
        }
    }
}

/// The context of a pod that meets all of the VMI's expectations.
pub fn assumed_context(vmi: &Vmi) -> Context {
    let architecture = match &*vmi.spec.architecture {
        "" => host_architecture(),
        named => named,
    };
    let volumes = vmi.status.volume_status.iter();
    let volumes = volumes.map(|status| (status.name.clone(), status.clone()));
    let (hotplug_volumes, permanent_volumes) =
        volumes.partition(|(_, status)| status.hotplug_volume.is_some());
    let mut ctx = Context {
        host_architecture: architecture.into(),
        architecture: architecture.into(),
        hypervisor_name: "kvm".into(),
        hypervisor_device_available: true,
        hotplug_volumes,
        permanent_volumes,
        disks_info: container_images(vmi),
        efi_configuration: pod::firmware::in_kubevirts_image(vmi, architecture),
        ..Context::default()
    };
    pod::of_vmi(vmi, &mut ctx);
    ctx
}

/// Assumes a node with the dedicated CPUs of the VMI, unless the options name them.
pub fn assume_cpus(vmi: &Vmi, ctx: &mut Context) {
    if let Some(cpu) = &vmi.spec.domain.cpu
        && cpu.dedicated_cpu_placement
        && ctx.topology.is_none()
    {
        let cpus = sufficient_cpus(cpu);
        ctx.cpu_set = cpus.iter().map(|cpu| cpu.id).collect();
        ctx.topology = Some(Topology {
            numa_cells: vec![NumaCell {
                cpus,
                ..NumaCell::default()
            }],
        });
    }
}

/// CPUs for a VMI that wants dedicated ones: its own, as cores with as many threads, and some for
/// QEMU's other threads.
fn sufficient_cpus(cpu: &Cpu) -> Vec<CellCpu> {
    /// For the emulator and I/O threads.
    const HELPER_CPUS: u32 = 16;
    /// libvirt's limit of a guest; a VMI with more is refused anyway.
    const MAX_CPUS: u32 = 4096;
    let parts = [cpu.sockets, cpu.cores, cpu.threads].map(|count| count.max(1));
    let threads = cpu.threads.clamp(1, 16);
    let wanted = parts.into_iter().fold(1, u32::saturating_mul);
    let count = wanted.saturating_add(HELPER_CPUS).min(MAX_CPUS);
    let core_of = |id: u32| {
        id.checked_div(threads)
            .unwrap_or_default()
            .saturating_mul(threads)
    };
    (0..count)
        .map(|id| CellCpu {
            id,
            siblings: (core_of(id)..core_of(id).saturating_add(threads)).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::manifest;

    const VM: &str = "
kind: ConfigMap
---
kind: VirtualMachine
metadata: {name: web}
spec:
  template:
    spec:
      domain:
        memory: {guest: 256Mi}
        firmware: {bootloader: {efi: {}}}
        devices: {}
      volumes:
      - {name: root, containerDisk: {image: x}}
";

    #[test]
    fn a_vm_manifest_converts_as_in_a_cluster() {
        let (_, vmi) = manifest::read_offline(VM, false).unwrap();
        let xml = convert::domain(&vmi, &context_of_pod(&vmi));
        let xml = xml.unwrap().to_xml();
        let parts = [
            "<name>default_web</name>",
            "OVMF_CODE.secboot.fd",
            r#"<interface type="ethernet">"#,
            r#"bus="sata" dev="sda""#,
        ];
        let missing: Vec<_> = parts.iter().filter(|part| !xml.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} {xml}");
    }

    #[test]
    fn dedicated_cpus_are_there() {
        for cpu in [
            "{cores: 4, dedicatedCpuPlacement: true, isolateEmulatorThread: true}",
            "{sockets: 2, cores: 3, threads: 2, dedicatedCpuPlacement: true}",
        ] {
            let text = VM.replace("devices: {}", &format!("cpu: {cpu}\n        devices: {{}}"));
            let (_, vmi) = manifest::read_offline(&text, false).unwrap();
            convert::domain(&vmi, &context_of_pod(&vmi)).unwrap();
        }
    }
}
