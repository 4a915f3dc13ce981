//! The rules, as data.

use serde_json::{Map, Value};

use super::check::Check::{
    AtMost, AtMostOne, Below, ExactlyOne, Has, If, Named, Needs, OneOf, Text, Unique, Wrong,
};
use super::check::{Rules, is_empty, not_one_of};
use super::memory::{not_whole_pages, too_little_memory, wrong_quantity};
use super::text::{
    BASE64, CLOUD_INIT, LABEL, MAC, SERIAL, SUBDOMAIN, is_base64, is_label, is_mac, is_serial,
    is_subdomain, may_be_cloud_init, may_be_encoded_cloud_init,
};
use crate::json::{copy_at, find_named, is_object_at, is_true_at, list_at, text_at};
use crate::manifest::hook_sidecars::of_annotation;
use crate::manifest::type_error::wrong_type;
use api::vmi::HOOK_SIDECARS;

type Object = Map<String, Value>;

const VOLUME_SOURCES: &str = "containerDisk|persistentVolumeClaim|dataVolume|emptyDisk|hostDisk|\
    ephemeral|cloudInitNoCloud|cloudInitConfigDrive|configMap|secret|serviceAccount|downwardAPI|\
    downwardMetrics|sysprep|memoryDump|containerPath";
const USER_DATA: &str = "secretRef|userDataBase64|userData";
const NETWORK_DATA: &str = "networkDataSecretRef|networkDataBase64|networkData";

/// Those that admission accepts without a feature gate.
const RUN_STRATEGIES: &str = "Always|RerunOnFailure|Manual|Halted|Once";
const NAME_TAKEN: &str = "{value} is the name of {other} already";

/// Rules for a VMI as its user wrote it.
#[rustfmt::skip]
pub(super) const VMI: Rules = &[
    ("spec.volumes|networks[]", Has("name")),
    ("spec.domain.devices.disks|filesystems|interfaces[]", Has("name")),
    ("spec.volumes[]", Unique("name", NAME_TAKEN)),
    ("spec.networks[]", Unique("name", NAME_TAKEN)),
    ("spec.domain.devices.disks[]", Unique("name", NAME_TAKEN)),
    ("spec.domain.devices.filesystems[]", Unique("name", NAME_TAKEN)),
    ("spec.domain.devices.interfaces[]", Unique("name", NAME_TAKEN)),
    ("spec.volumes[].name", Text(is_label, LABEL)),
    ("spec.domain.devices.disks[].name", Text(is_label, LABEL)),
    ("metadata.namespace", Text(is_label, LABEL)),
    ("spec.hostname", Text(is_label, LABEL)),
    ("spec.subdomain", Text(is_subdomain, SUBDOMAIN)),
    ("spec.startStrategy", OneOf("Paused")),
    ("spec.evictionStrategy", OneOf("None|LiveMigrate|LiveMigrateIfPossible|External")),
    ("spec.domain.ioThreadsPolicy", OneOf("shared|auto|supplementalPool")),
    ("spec.dnsPolicy", OneOf("ClusterFirst|ClusterFirstWithHostNet|Default|None")),
    ("spec.terminationGracePeriodSeconds", Wrong(negative)),
    ("spec.readinessProbe|livenessProbe", ExactlyOne("httpGet|tcpSocket|exec|guestAgentPing")),
    ("spec.domain.firmware.bootloader", AtMostOne("efi|bios")),
    ("spec.domain.firmware.kernelBoot.container", Has("image")),
    ("spec.domain.firmware.kernelBoot.kernelArgs", Needs(
        |vmi| is_object_at(vmi, "/spec/domain/firmware/kernelBoot/container"),
        "arguments need a kernel, from kernelBoot.container")),
    ("spec.domain.cpu", Below(without_dedicated_cpus)),
    ("spec.domain.cpu.features[]", Has("name")),
    ("spec.domain.cpu.features[].policy", OneOf("force|require|optional|disable|forbid")),
    ("spec.domain.cpu.sockets", AtMost("spec.domain.cpu.maxSockets")),
    ("spec.domain.devices.inputs[].type", OneOf("tablet")),
    ("spec.domain.devices.inputs[].bus", OneOf("virtio|usb")),
    ("spec.domain.devices.panicDevices[].model", OneOf("hyperv|isa|pvpanic")),
    ("spec.domain.devices.sound", Has("name")),
    ("spec.domain.devices.sound.model", OneOf("ich9|ac97")),
    ("spec.domain.devices.video", Needs(
        |vmi| copy_at(vmi, "/spec/domain/devices/autoattachGraphicsDevice") != false,
        "autoattachGraphicsDevice: false leaves no place for it")),
    ("spec.domain.devices.video.type", OneOf("vga|cirrus|virtio|ramfb|bochs")),
    ("spec.domain.memory.guest|maxGuest", Wrong(wrong_quantity)),
    ("spec.domain.memory.hugepages.pageSize", Wrong(wrong_quantity)),
    ("spec.domain.resources.requests|limits.memory|cpu", Wrong(wrong_quantity)),
    ("spec.domain.memory.guest", Wrong(too_little_memory)),
    ("spec.domain.resources.requests.memory", Wrong(too_little_memory)),
    ("spec.volumes[]", ExactlyOne(VOLUME_SOURCES)),
    ("spec.volumes[]", If(is_downward_metrics_off_virtio, &[("", Wrong(|_| Some(NOT_VIRTIO.to_owned())))])),
    ("spec.volumes[].persistentVolumeClaim", Has("claimName")),
    ("spec.volumes[].ephemeral", Has("persistentVolumeClaim")),
    ("spec.volumes[].ephemeral.persistentVolumeClaim", Has("claimName")),
    ("spec.volumes[].dataVolume|configMap", Has("name")),
    ("spec.volumes[].containerDisk", Has("image")),
    ("spec.volumes[].emptyDisk", Has("capacity")),
    ("spec.volumes[].emptyDisk|hostDisk.capacity", Wrong(wrong_quantity)),
    ("spec.volumes[].hostDisk", Has("path")),
    ("spec.volumes[].hostDisk", Has("type")),
    ("spec.volumes[].hostDisk.type", OneOf("Disk|DiskOrCreate")),
    ("spec.volumes[].hostDisk", Below(capacity_unlike_type)),
    ("spec.volumes[].secret", Has("secretName")),
    ("spec.volumes[].serviceAccount", Has("serviceAccountName")),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive", AtMostOne(USER_DATA)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive", AtMostOne(NETWORK_DATA)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive", Wrong(without_data)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive.userDataBase64|networkDataBase64",
        Text(is_base64, BASE64)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive.userData|networkData",
        Text(may_be_cloud_init, CLOUD_INIT)),
    ("spec.volumes[].cloudInitNoCloud|cloudInitConfigDrive.userDataBase64|networkDataBase64",
        Text(may_be_encoded_cloud_init, CLOUD_INIT)),
    ("spec.volumes[]", Unique("cloudInitNoCloud", ONE_SEED)),
    ("spec.volumes[]", Unique("cloudInitConfigDrive", ONE_SEED)),
    ("spec.domain.devices.disks[]", AtMostOne("disk|lun|cdrom")),
    ("spec.domain.devices.disks[].disk|lun|cdrom.bus", OneOf("virtio|scsi|sata|usb")),
    ("spec.domain.devices.disks[].errorPolicy", OneOf("stop|ignore|report|enospace")),
    ("spec.domain.devices.disks[]", If(is_lun_of_file, &[("lun", Wrong(|_| Some(NO_LUN.to_owned())))])),
    ("spec.domain.devices.disks[].cdrom.bus",
        Text(|bus| bus != "virtio", "a CD-ROM drive is on sata, scsi or usb")),
    ("spec.domain.devices.disks[].cache", OneOf("none|writethrough|writeback")),
    ("spec.domain.devices.disks[].io", OneOf("native|threads")),
    ("spec.domain.devices.disks[].serial", Text(is_serial, SERIAL)),
    ("spec.domain.devices.interfaces[]", Wrong(former_binding)),
    ("spec.domain.devices.interfaces[]", ExactlyOne("bridge|masquerade|sriov|passtBinding|binding")),
    ("spec.domain.devices.interfaces[].macAddress", Text(is_mac, MAC)),
    ("spec.domain.devices.interfaces[].model",
        OneOf("virtio|e1000|e1000e|igb|ne2k_pci|pcnet|rtl8139")),
    ("spec.domain.devices.interfaces[].state", OneOf("up|down|absent")),
    ("spec.domain.devices.interfaces[].ports[]", Has("port")),
    ("spec.domain.devices.interfaces[].ports[].port", Wrong(wrong_port)),
    ("spec.domain.devices.interfaces[].ports[].protocol", OneOf("TCP|UDP")),
    ("spec.networks[]", ExactlyOne("pod|multus|resourceClaim")),
    ("spec.networks[].multus", Has("networkName")),
    ("spec.accessCredentials[]", ExactlyOne("sshPublicKey|userPassword")),
    ("spec.accessCredentials[].sshPublicKey|userPassword", Has("source")),
    ("spec.accessCredentials[].sshPublicKey|userPassword", Has("propagationMethod")),
    ("spec.accessCredentials[].sshPublicKey|userPassword.source", ExactlyOne("secret")),
    ("spec.accessCredentials[].sshPublicKey.propagationMethod",
        ExactlyOne("noCloud|configDrive|qemuGuestAgent")),
    ("spec.accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent", Has("users")),
    ("spec.accessCredentials[].userPassword.propagationMethod", ExactlyOne("qemuGuestAgent")),
    ("metadata.annotations", Below(wrong_sidecars)),
    ("metadata.annotations", Wrong(misspelt_sidecars)),
    ("metadata.labels", Wrong(wrong_type::<Object>)),
    ("metadata.labels.*", Wrong(wrong_type::<String>)),
    ("spec.domain.memory.guest", AtMost("spec.domain.memory.maxGuest")),
    ("spec.domain.memory.guest", AtMost("spec.domain.resources.limits.memory")),
    ("spec.domain.resources.requests.memory", AtMost("spec.domain.resources.limits.memory")),
    ("spec.domain.resources.requests.cpu", AtMost("spec.domain.resources.limits.cpu")),
    ("", Below(not_whole_pages)),
    ("spec.domain.firmware.bootloader.efi", Needs(has_firmware,
        "Secure Boot needs spec.domain.features.smm: {enabled: true}; or set secureBoot: false")),
    ("spec.accessCredentials[].sshPublicKey.propagationMethod.noCloud",
        Needs(|vmi| has_volume_of(vmi, "cloudInitNoCloud"),
            "it needs a volume cloudInitNoCloud in spec.volumes")),
    ("spec.accessCredentials[].sshPublicKey.propagationMethod.configDrive",
        Needs(|vmi| has_volume_of(vmi, "cloudInitConfigDrive"),
            "it needs a volume cloudInitConfigDrive in spec.volumes")),
    ("spec.domain.devices.disks|interfaces[].bootOrder",
        Wrong(|order| (*order == 0).then(|| "0; the first is 1".to_owned()))),
    ("spec.domain.devices.disks|interfaces[]",
        Unique("bootOrder", "{value} is the place of {other} already")),
    ("spec.domain.devices.disks[]",
        If(|_, disk| is_object_at(disk, "/disk") || !is_object_at(disk, "/cdrom"), NO_DRIVE)),
    ("spec.networks[]", Named("spec.domain.devices.interfaces",
        "no interface in spec.domain.devices.interfaces has the name {value}")),
    ("spec.networks[]", Unique("pod", "only one network may be the pod's, and {other} is")),
    ("spec.domain.devices.interfaces[]",
        Named("spec.networks", "no network in spec.networks has the name {value}")),
];

/// Rules for a VirtualMachine's fields outside its template.
#[rustfmt::skip]
pub(super) const VM: Rules = &[
    ("spec.running", Wrong(wrong_type::<bool>)),
    ("spec.running", Needs(|vm| copy_at(vm, "/spec/runStrategy").is_null(),
        "both running and runStrategy are there; keep runStrategy")),
    ("", Below(does_not_say_whether_it_runs)),
    ("spec.runStrategy", Wrong(wrong_run_strategy)),
    ("spec.dataVolumeTemplates", Wrong(wrong_type::<Vec<Value>>)),
    ("spec.dataVolumeTemplates[]", If(|_, _| true, DATA_VOLUME)),
    ("spec.dataVolumeTemplates[]", Has("metadata")),
    ("spec.dataVolumeTemplates[].metadata", Unique("name", NAME_TAKEN)),
    ("spec.dataVolumeTemplates[]", If(is_without_volume, &[("", Wrong(|_| Some(UNUSED.to_owned())))])),
    ("metadata.annotations", Below(misplaced_sidecars)),
    ("metadata.labels|annotations", Wrong(wrong_type::<Object>)),
    ("metadata.labels|annotations.*", Wrong(wrong_type::<String>)),
];

/// Rules for a DataVolume, in a file or in the templates of a VirtualMachine.
#[rustfmt::skip]
pub(super) const DATA_VOLUME: Rules = &[
    ("metadata", Has("name")),
    ("spec", ExactlyOne("storage|pvc")),
    ("spec.source", ExactlyOne("blank|gcs|http|imageio|pvc|registry|s3|snapshot|upload|vddk")),
    ("spec.storage|pvc.resources.requests.storage", Wrong(wrong_quantity)),
];

/// Rules for a disk that is no CD-ROM drive.
#[rustfmt::skip]
const NO_DRIVE: Rules = &[
    ("", Named("spec.volumes",
        "no volume in spec.volumes has the name {value}; only a CD-ROM drive may be empty")),
];

const NO_LUN: &str = "only a persistentVolumeClaim or dataVolume can be a lun; write disk";
const ONE_SEED: &str = "a VM has one such volume, and {other} is it";
const UNUSED: &str = "no volume in spec.template.spec.volumes uses it";
const NOT_VIRTIO: &str =
    "it needs an entry in spec.domain.devices.disks with its name and disk: {bus: virtio}";
/// KubeVirt no longer takes these.
const FORMER_BINDINGS: [&str; 3] = ["slirp", "macvtap", "passt"];

fn former_binding(interface: &Value) -> Option<String> {
    let mut former = FORMER_BINDINGS.into_iter();
    let former = former.find(|it| interface.get(*it).is_some())?;
    Some(format!(
        "KubeVirt no longer has the binding {former}; write masquerade: {{}}"
    ))
}

fn negative(number: &Value) -> Option<String> {
    let is_negative = number.as_i64().is_some_and(|number| number < 0);
    is_negative.then(|| format!("{number}; it cannot be negative"))
}

/// The guest reads its metrics from a virtio disk; libvirt refuses it on another bus.
fn is_downward_metrics_off_virtio(vmi: &Value, volume: &Value) -> bool {
    let disk = find_named(vmi, "/spec/domain/devices/disks", text_at(volume, "/name"));
    is_object_at(volume, "/downwardMetrics")
        && disk.is_none_or(|disk| text_at(disk, "/disk/bus") != "virtio")
}

fn without_data(source: &Value) -> Option<String> {
    let mut fields = USER_DATA.split('|').chain(NETWORK_DATA.split('|'));
    let is_there = fields.any(|field| !is_empty(source.get(field)));
    (!is_there).then(|| "it has no data, such as userData: …".to_owned())
}

/// Secure Boot needs System Management Mode.
fn has_firmware(vmi: &Value) -> bool {
    let smm = copy_at(vmi, "/spec/domain/features/smm");
    copy_at(vmi, "/spec/domain/firmware/bootloader/efi/secureBoot") == false
        || (smm.is_object() && copy_at(&smm, "/enabled") != false)
        || is_object_at(vmi, "/spec/domain/launchSecurity/tdx")
}

/// What only a VM with CPUs of its own may have.
fn without_dedicated_cpus(cpu: &Value) -> Option<(&'static str, String)> {
    let is_set = |field: &&str| {
        let field = cpu.get(*field);
        field.is_some_and(|field| field.is_object() || *field == true)
    };
    let field = ["isolateEmulatorThread", "numa", "realtime"];
    let field = field.into_iter().find(is_set)?;
    let message = "it needs dedicatedCpuPlacement: true";
    (!is_true_at(cpu, "/dedicatedCpuPlacement")).then(|| (field, message.to_owned()))
}

fn capacity_unlike_type(disk: &Value) -> Option<(&'static str, String)> {
    let message = match (text_at(disk, "/type"), is_empty(disk.get("capacity"))) {
        ("Disk", false) => {
            "a disk that exists has its size; leave it out, or set type: DiskOrCreate"
        }
        ("DiskOrCreate", true) => "missing; the disk is made with this size, such as 10Gi",
        _ => return None,
    };
    Some(("capacity", message.to_owned()))
}

fn is_lun_of_file(vmi: &Value, disk: &Value) -> bool {
    let volume = find_named(vmi, "/spec/volumes", text_at(disk, "/name"));
    is_object_at(disk, "/lun")
        && volume.is_some_and(|volume| {
            let claims = ["persistentVolumeClaim", "dataVolume"];
            claims.iter().all(|claim| is_empty(volume.get(claim)))
        })
}

/// Whether no volume of the VM uses the DataVolume that would be made from this template.
fn is_without_volume(vm: &Value, template: &Value) -> bool {
    let name = text_at(template, "/metadata/name");
    let names = ["/dataVolume/name", "/persistentVolumeClaim/claimName"];
    let mut volumes = list_at(vm, "/spec/template/spec/volumes").iter();
    !name.is_empty() && !volumes.any(|it| names.iter().any(|at| text_at(it, at) == name))
}

fn wrong_port(port: &Value) -> Option<String> {
    let number = port.as_i64();
    let is_port = number.is_some_and(|number| (1..=65535).contains(&number));
    (!is_port).then(|| format!("{port}; expected 1 to 65535"))
}

/// An annotation that looks like the one of hook sidecars.
fn misspelt_sidecars(annotations: &Value) -> Option<String> {
    const PREFIXES: [&str; 3] = [
        "hooks.kubevirt.io/",
        "hook.kubevirt.io/",
        "kubevirt.io/hook",
    ];
    let names = annotations.as_object()?.keys();
    let mut names = names.filter(|name| PREFIXES.iter().any(|it| name.starts_with(it)));
    let name = names.find(|name| *name != HOOK_SIDECARS)?;
    Some(format!(
        "{name} is not known, and no sidecar is started for it; did you mean {HOOK_SIDECARS}?"
    ))
}

fn wrong_sidecars(annotations: &Value) -> Option<(&'static str, String)> {
    let text = annotations.get(HOOK_SIDECARS)?.as_str()?;
    Some((HOOK_SIDECARS, of_annotation(text).err()?))
}

fn misplaced_sidecars(annotations: &Value) -> Option<(&'static str, String)> {
    annotations.get(HOOK_SIDECARS)?;
    let message =
        "nobody reads it here: a VirtualMachine has it in spec.template.metadata.annotations";
    Some((HOOK_SIDECARS, message.to_owned()))
}

fn has_volume_of(vmi: &Value, source: &str) -> bool {
    let mut volumes = list_at(vmi, "/spec/volumes").iter();
    volumes.any(|volume| volume.get(source).is_some_and(|source| !source.is_null()))
}

fn does_not_say_whether_it_runs(vm: &Value) -> Option<(&'static str, String)> {
    let is_missing = |pointer| copy_at(vm, pointer).is_null();
    (is_missing("/spec/running") && is_missing("/spec/runStrategy")).then(|| {
        let message = format!(
            "missing; a cluster refuses a VirtualMachine without it: Always starts the VM, Halted leaves it stopped; expected {}",
            RUN_STRATEGIES.replace('|', ", ")
        );
        ("spec.runStrategy", message)
    })
}

fn wrong_run_strategy(strategy: &Value) -> Option<String> {
    match strategy.as_str() {
        Some(name) => not_one_of(name, RUN_STRATEGIES),
        None => wrong_type::<String>(strategy),
    }
}
