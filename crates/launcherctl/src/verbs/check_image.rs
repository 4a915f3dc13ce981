//! `check --image`: which VMs the launcher image that this runs in can start and receive.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{CtlError, fail};
use crate::files::read_text;
use crate::host::libvirt_capabilities::LibvirtCapabilities;
use crate::json::text_at;
use crate::manifest::{FieldError, all_vms, in_manifest};
use crate::view::output::{Format, Line, or_dash, print};
use api::vmi::Vmi;
use convert::Arch;
use os::logging::chain;
use terminal::table;

/// What the image has, and what it can do with each VM.
#[derive(Debug, Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    image: &'a LibvirtCapabilities,
    vms: Vec<VmReport>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct VmReport {
    kind: String,
    namespace: String,
    name: String,
    /// `status.machine.type` of a VM that runs, else `spec.domain.machine.type`.
    machine: String,
    /// Whether it can be started; `None` if that cannot be checked.
    can_run: Option<bool>,
    /// Whether it can be received in a migration; `None` if it does not run.
    can_receive: Option<bool>,
    /// What the image lacks, or why it cannot be checked.
    reasons: Vec<String>,
}

/// Exit status 0 if all can be started, and all that run received.
///
/// # Errors
/// A file cannot be read, or libvirt does not answer.
pub fn check(files: &[PathBuf], format: Format) -> Result<ExitCode, CtlError> {
    let mut vms = Vec::new();
    for file in files {
        let text = read_text(file)?;
        vms.extend(all_vms(&text).map_err(in_manifest(file))?);
    }
    if vms.is_empty() {
        fail!("there is no virtual machine in what was given, so nothing was checked");
    }
    let image = LibvirtCapabilities::read()?;
    let vms = vms.into_iter().map(|(vm, vmi)| report(&image, &vm, vmi));
    let report = Report {
        image: &image,
        vms: vms.collect(),
    };
    print(format, &json!(report), || text(&report, format));
    Ok(ExitCode::from(u8::from(!report.vms.iter().all(is_fit))))
}

fn is_fit(vm: &VmReport) -> bool {
    vm.can_run == Some(true) && vm.can_receive != Some(false)
}

fn report(image: &LibvirtCapabilities, vm: &Value, vmi: Result<Vmi, FieldError>) -> VmReport {
    let field = |pointer| text_at(vm, pointer).to_owned();
    let mut report = VmReport {
        kind: field("/kind"),
        namespace: field("/metadata/namespace"),
        name: field("/metadata/name"),
        ..VmReport::default()
    };
    let vmi = match vmi {
        Ok(vmi) => vmi,
        Err(error) => {
            report.reasons.push(format!("cannot be checked: {error}"));
            return report;
        }
    };
    let lacks = lacks(image, &vmi);
    let spec = &vmi.spec.domain;
    let wanted = spec.machine.as_ref().map_or("", |it| it.r#type.as_str());
    let running = vmi.status.machine.as_ref().map(|it| it.r#type.as_str());
    let running = running.filter(|machine| !machine.is_empty());
    report.machine = running.unwrap_or(wanted).to_owned();
    let arch = arch(&vmi).os_arch;
    let has = |machine: &str| machine.is_empty() || image.has_machine(arch, machine);
    report.can_run = Some(lacks.is_empty() && has(wanted));
    report.can_receive = running.map(|machine| lacks.is_empty() && has(machine));
    report.reasons = lacks;
    if image.has_arch(arch) {
        let machines = [
            ("spec.domain.machine.type", Some(wanted)),
            ("status.machine.type", running),
        ];
        for (field, machine) in machines {
            if let Some(machine) = machine.filter(|machine| !has(machine)) {
                let reason = format!("{field}: this QEMU does not have {machine:?}");
                report.reasons.push(reason);
            }
        }
    }
    report
}

/// What both a start and a migration need, and the image does not have.
fn lacks(image: &LibvirtCapabilities, vmi: &Vmi) -> Vec<String> {
    let Arch { name, os_arch, .. } = arch(vmi);
    if !image.has_arch(os_arch) {
        return vec![format!("spec.architecture: there is no QEMU for {name}")];
    }
    let mut lacks = Vec::new();
    let cpu = vmi.spec.domain.cpu.as_ref();
    let model = cpu.map_or("", |cpu| cpu.model.as_str());
    let is_named = !matches!(model, "" | "host-model" | "host-passthrough");
    if is_named && !image.has_cpu_model(os_arch, model) {
        lacks.push(format!(
            "spec.domain.cpu.model: this libvirt does not know {model:?}"
        ));
    }
    if let Err(error) = pod::firmware::check_image(vmi, name) {
        lacks.push(format!("spec.domain.firmware: {}", chain(&error)));
    }
    lacks
}

/// The VMI's architecture; without one, this machine's.
fn arch(vmi: &Vmi) -> &'static Arch {
    let named = Some(vmi.spec.architecture.as_str()).filter(|named| !named.is_empty());
    let name = named.unwrap_or(std::env::consts::ARCH);
    Arch::by_any_name(name).unwrap_or_else(|| Arch::named(name))
}

fn text(report: &Report<'_>, format: Format) -> Vec<Line> {
    let LibvirtCapabilities { libvirt, qemu, .. } = report.image;
    let mut lines = vec![format!("This image has libvirt {libvirt} and QEMU {qemu}.").into()];
    let cells = report.vms.iter().map(|vm| {
        let (run, receive) = (yes_no(vm.can_run, "?"), yes_no(vm.can_receive, "-"));
        let [namespace, name, machine] = [&*vm.namespace, &vm.name, &vm.machine].map(or_dash);
        let why = vm.reasons.join("; ");
        format!("{namespace}\t{name}\t{machine}\t{run}\t{receive}\t{why}")
    });
    lines.extend(table(
        format.width(),
        "NAMESPACE\tNAME\tMACHINE\tRUN\tRECEIVE\tWHY NOT",
        cells,
    ));
    lines
}

fn yes_no(answer: Option<bool>, unknown: &'static str) -> &'static str {
    answer.map_or(unknown, |yes| if yes { "yes" } else { "no" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::host::libvirt_capabilities::of_test;
    use crate::view::output::joined;

    const CLUSTER: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
        {"kind": "VirtualMachineInstance", "metadata": {"namespace": "a", "name": "fits"},
         "spec": {"architecture": "amd64", "domain": {"machine": {"type": "q35"}, "cpu": {"model": "EPYC"}}},
         "status": {"machine": {"type": "pc-q35-10.0"}}},
        {"kind": "VirtualMachineInstance", "metadata": {"namespace": "a", "name": "restarts"},
         "spec": {"architecture": "amd64", "domain": {"machine": {"type": "q35"}, "cpu": {"model": "host-model"}}},
         "status": {"machine": {"type": "pc-q35-rhel9.6.0"}}},
        {"kind": "VirtualMachine", "metadata": {"namespace": "b", "name": "stopped"},
         "spec": {"template": {"spec": {"architecture": "amd64", "domain": {"machine": {"type": "pc-q35-rhel9.6.0"}, "cpu": {"model": "EPYC-Turin"}}}}}},
        {"kind": "VirtualMachine", "metadata": {"namespace": "b", "name": "typed"}, "spec": {"instancetype": {"name": "large"}}},
        {"kind": "VirtualMachineInstance", "metadata": {"namespace": "b", "name": "arm"},
         "spec": {"architecture": "arm64", "domain": {"machine": {"type": "virt"}}}},
        {"kind": "ConfigMap"}]}"#;

    #[test]
    fn each_vm_of_a_list_is_told_what_the_image_lacks() {
        let image = of_test();
        let vms = all_vms(CLUSTER).unwrap().into_iter();
        let report = Report {
            image: &image,
            vms: vms.map(|(vm, vmi)| report(&image, &vm, vmi)).collect(),
        };
        let shown = joined(text(&report, Format::Wide));
        let expected = [
            "This image has libvirt 11.3.0 and QEMU 10.0.2.",
            "NAMESPACE  NAME      MACHINE           RUN  RECEIVE  WHY NOT",
            "a          fits      pc-q35-10.0       yes  yes",
            r#"a          restarts  pc-q35-rhel9.6.0  yes  no       status.machine.type: this QEMU does not have "pc-q35-rhel9.6.0""#,
            r#"b          stopped   pc-q35-rhel9.6.0  no   -        spec.domain.cpu.model: this libvirt does not know "EPYC-Turin"; spec.domain.machine.type: this QEMU does not have "pc-q35-rhel9.6.0""#,
            r#"b          typed     -                 ?    -        cannot be checked: spec.instancetype: only a cluster applies VirtualMachineClusterInstancetype "large": take what it makes of the VM, by virtctl expand -f FILE, or by kubectl get vmi NAME -o yaml while it runs"#,
            "b          arm       virt              no   -        spec.architecture: there is no QEMU for arm64",
        ];
        assert_eq!(shown, expected.join("\n"));
        let fit: Vec<bool> = report.vms.iter().map(is_fit).collect();
        assert_eq!(fit, [true, false, false, false, false]);
        let json = json!(report);
        assert_eq!(json["libvirt"], "11.3.0");
        assert_eq!(json["vms"][1]["canReceive"], false);
    }
}
