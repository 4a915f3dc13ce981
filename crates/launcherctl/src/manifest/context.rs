//! The context in which a VMI of a file is converted without `--context`: that of a pod in which
//! everything is as the VMI expects it.

use super::defaults::host_architecture;
use api::proto::cmd::v1::VirtualMachineOptions;
use api::vmi::Vmi;
use api::vmi::cpu::Cpu;
use convert::Context;
use convert::context::{BlockDeviceProbe, CellCpu, DiskInfo, DiskModes, NumaCell, Topology};

/// What a conversion sees of a pod in which everything is as the VMI expects it: with a qcow2 image
/// in every container disk, files that can be opened with `O_DIRECT`, the taps of virt-handler, and
/// a node with the dedicated CPUs.
pub fn context_of_pod(vmi: &Vmi) -> Context {
    let architecture = match &*vmi.spec.architecture {
        "" => host_architecture(),
        named => named,
    };
    let volumes = vmi.status.volume_status.iter();
    let volumes = volumes.map(|status| (status.name.clone(), status.clone()));
    let (hotplug_volumes, permanent_volumes) =
        volumes.partition(|(_, status)| status.hotplug_volume.is_some());
    let image = DiskInfo {
        format: "qcow2".into(),
        ..DiskInfo::default()
    };
    let volumes = vmi.spec.volumes.iter();
    let container_disks = volumes.filter(|volume| volume.container_disk.is_some());
    let images = container_disks.map(|volume| (volume.name.clone(), image.clone()));
    let mut ctx = Context {
        host_architecture: architecture.into(),
        architecture: architecture.into(),
        hypervisor_name: "kvm".into(),
        hypervisor_device_available: true,
        hotplug_volumes,
        permanent_volumes,
        disks_info: images.collect(),
        disk_modes: Some(DiskModes {
            direct_io: true,
            ..DiskModes::default()
        }),
        efi_configuration: pod::firmware::in_kubevirts_image(vmi, architecture),
        ..Context::default()
    };
    pod::of_vmi(vmi, &mut ctx);
    add_disks(vmi, &mut ctx);
    pod::of_options(vmi, &VirtualMachineOptions::default(), &mut ctx);
    let interfaces = vmi.spec.domain.devices.interfaces.iter();
    let with_tap = interfaces.filter(|it| it.bridge.is_some() || it.masquerade.is_some());
    ctx.domain_attachment_by_interface_name = with_tap
        .map(|interface| (interface.name.clone(), "tap".into()))
        .collect();
    let cpu = vmi.spec.domain.cpu.as_ref();
    if let Some(cpu) = cpu.filter(|cpu| cpu.dedicated_cpu_placement) {
        let cpus = sufficient_cpus(cpu);
        ctx.cpu_set = cpus.iter().map(|cpu| cpu.id).collect();
        let cell = NumaCell {
            cpus,
            ..NumaCell::default()
        };
        let numa_cells = vec![cell];
        ctx.topology = Some(Topology { numa_cells });
    }
    ctx
}

/// Claims of LUNs are block devices; volumes have the block sizes that most file systems and disks
/// have.
fn add_disks(vmi: &Vmi, ctx: &mut Context) {
    let probe = BlockDeviceProbe {
        logical: 512,
        physical: 4096,
        discard_granularity: 4096,
    };
    for disk in &vmi.spec.domain.devices.disks {
        let name = &disk.name;
        let mut volumes = vmi.spec.volumes.iter();
        let Some(volume) = volumes.find(|it| it.name == *name) else {
            continue;
        };
        if disk.lun.is_some() {
            ctx.is_block_pvc.insert(name.clone(), true);
            ctx.is_block_dv.insert(name.clone(), true);
        }
        if pod::matches_volume(disk) {
            let images = pod::images(&ctx.paths(), vmi, volume).into_iter();
            let sizes: Vec<_> = images.map(|image| (image, 4096)).collect();
            let devices = [
                ctx.paths().claim_device(name),
                ctx.paths().hotplug_device(name),
            ];
            ctx.file_block_sizes.extend(sizes);
            let probes = devices.map(|device| (device, probe.clone()));
            ctx.block_device_probes.extend(probes);
        }
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
    let cpu_of = |id| {
        let first = id - id % threads;
        let siblings = (first..first + threads).collect();
        CellCpu { id, siblings }
    };
    (0..count).map(cpu_of).collect()
}

#[cfg(test)]
mod tests {
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
