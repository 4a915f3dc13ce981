//! What a conversion starts from: a VMI, and the context that a pod would add, as files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::error::CtlError;
use super::files::{InFile, read_text};
use super::manifest::{self, Origin, host_architecture};
use super::options::Options;
use super::target::{read_manifest_text, warn_of_unknown_fields};
use crate::manifest::in_manifest;
use api::vmi::Vmi;
use api::vmi::cpu::Cpu;
use convert::Context;
use convert::context::{CellCpu, DiskInfo, NumaCell, Topology};

/// What a conversion starts from, as files.
#[derive(Debug, Args)]
pub struct Inputs {
    #[command(flatten)]
    vmi: VmiFile,
    /// What the pod adds, as JSON, to a VMI as its launcher got it; without it, a pod in which everything that the VMI needs is there
    #[arg(long)]
    pub context: Option<PathBuf>,
    /// Options that virt-handler would send with the VMI, as JSON
    #[arg(long)]
    pub options: Option<PathBuf>,
}

impl Inputs {
    /// The VMI's file.
    pub fn vmi(&self) -> &Path {
        self.vmi
            .given
            .as_deref()
            .or(self.vmi.named.as_deref())
            .unwrap_or(Path::new("-"))
    }

    /// Reads them: the VMI, also in the form that JSON has, and the context.
    ///
    /// # Errors
    /// If a file cannot be read, or is not such a document.
    pub fn read(&self) -> Result<(Value, Vmi, Context), CtlError> {
        self.read_text(&read_manifest_text(self.vmi())?)
    }

    /// As [`Self::read`], also where in the file each field of the VMI is.
    ///
    /// # Errors
    /// If a file cannot be read, or is not such a document.
    pub fn read_with_origin(&self) -> Result<(Value, Context, Origin), CtlError> {
        let text = read_manifest_text(self.vmi())?;
        let (value, _, context) = self.read_text(&text)?;
        Ok((value, context, Origin::of(&text)))
    }

    fn read_text(&self, text: &str) -> Result<(Value, Vmi, Context), CtlError> {
        warn_of_unknown_fields(self.vmi(), text);
        let (value, vmi) = manifest::read_offline(text, self.context.is_some())
            .map_err(in_manifest(self.vmi()))?;
        let context = read_context(&vmi, self.context.as_deref(), self.options.as_deref())?;
        Ok((value, vmi, context))
    }
}

/// The VMI, with or without an option's name: exactly one of them.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct VmiFile {
    /// VMI or VM manifest, YAML or JSON; `-` is standard input
    #[arg(value_name = "VMI")]
    given: Option<PathBuf>,
    /// The same as VMI
    #[arg(long = "vmi", value_name = "FILE")]
    named: Option<PathBuf>,
}

/// What a conversion sees of a pod in which everything is as the VMI expects it, with the taps of virt-handler.
pub fn context_of_pod(vmi: &Vmi) -> Context {
    let mut ctx = assumed_context(vmi);
    pod::of_options(vmi, &Options::default().into_message(), &mut ctx);
    attach_interfaces(vmi, &mut ctx);
    assume_cpus(vmi, &mut ctx);
    ctx
}

/// Reads context and options; without a context, one is derived from the VMI.
fn read_context(
    vmi: &Vmi,
    context: Option<&Path>,
    options: Option<&Path>,
) -> Result<Context, CtlError> {
    let options = match options {
        Some(file) => Some(parse_json::<Options>(&read_text(file)?, file)?.into_message()),
        None => None,
    };
    let mut ctx = match context {
        Some(file) => parse_json(&read_text(file)?, file)?,
        None => assumed_context(vmi),
    };
    // A context may already contain the effect of options; explicit options override it.
    if options.is_some() || context.is_none() {
        pod::of_options(vmi, &options.unwrap_or_default(), &mut ctx);
    }
    if context.is_none() {
        attach_interfaces(vmi, &mut ctx);
        assume_cpus(vmi, &mut ctx);
    }
    Ok(ctx)
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str, file: &Path) -> Result<T, CtlError> {
    serde_json::from_str(text).map_err(|error| InFile::new(file, error).into())
}

/// Assumes a qcow2 image in every container disk.
fn container_images(vmi: &Vmi) -> BTreeMap<String, DiskInfo> {
    let volumes = vmi
        .spec
        .volumes
        .iter()
        .filter(|volume| volume.container_disk.is_some());
    volumes
        .map(|volume| {
            (
                volume.name.clone(),
                DiskInfo {
                    format: "qcow2".into(),
                    ..DiskInfo::default()
                },
            )
        })
        .collect()
}

/// virt-handler makes a tap device for each interface of these kinds, unless the options say otherwise.
fn attach_interfaces(vmi: &Vmi, ctx: &mut Context) {
    let with_tap = vmi
        .spec
        .domain
        .devices
        .interfaces
        .iter()
        .filter(|interface| interface.bridge.is_some() || interface.masquerade.is_some());
    for interface in with_tap {
        ctx.domain_attachment_by_interface_name
            .entry(interface.name.clone())
            .or_insert_with(|| "tap".into());
    }
}

/// The context of a pod in which everything is as the VMI expects it.
fn assumed_context(vmi: &Vmi) -> Context {
    let architecture = if vmi.spec.architecture.is_empty() {
        host_architecture().into()
    } else {
        vmi.spec.architecture.clone()
    };
    let (hotplug, permanent) = vmi
        .status
        .volume_status
        .iter()
        .cloned()
        .partition::<Vec<_>, _>(|status| status.hotplug_volume.is_some());
    let by_name = |list: Vec<api::vmi::status::VolumeStatus>| {
        list.into_iter()
            .map(|status| (status.name.clone(), status))
            .collect()
    };
    let mut ctx = Context {
        host_architecture: architecture.clone(),
        architecture: architecture.clone(),
        hypervisor_name: "kvm".into(),
        hypervisor_device_available: true,
        hotplug_volumes: by_name(hotplug),
        permanent_volumes: by_name(permanent),
        disks_info: container_images(vmi),
        efi_configuration: pod::firmware::in_kubevirts_image(vmi, &architecture),
        ..Context::default()
    };
    pod::of_vmi(vmi, &mut ctx);
    ctx
}

/// A VMI with dedicated CPUs is on a node that has them, unless the options say what it has.
fn assume_cpus(vmi: &Vmi, ctx: &mut Context) {
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

/// CPUs for a VMI that wants dedicated ones: its own, as cores with as many threads, and some for QEMU's other threads.
fn sufficient_cpus(cpu: &Cpu) -> Vec<CellCpu> {
    /// Of the emulator and of I/O threads.
    const HELPER_CPUS: u32 = 16;
    /// As many as libvirt takes for a guest; a VMI that asks for more is refused anyway.
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
        let xml = convert::domain(&vmi, &read_context(&vmi, None, None).unwrap())
            .unwrap()
            .to_xml();
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
