//! What `check` refuses because this machine's libvirt does, without a rule of its own.

use std::os::unix::fs::PermissionsExt;

use super::{has, json, launcherctl, launcherctl_command, manifest, schema, stdout};

/// What a manifest has more, the field below `spec.domain` that is refused, and libvirt's words.
const REFUSED: [(More, &str, &str); 17] = [
    (
        Disk("lun: {bus: sata}"),
        "devices.disks[1].lun.bus",
        "is not supported for bus='sata'",
    ),
    (
        Disk("lun: {bus: usb}"),
        "devices.disks[1].lun.bus",
        "USB is disabled",
    ),
    (
        Disk("cdrom: {bus: usb}"),
        "devices.disks[1].cdrom.bus",
        "USB is disabled",
    ),
    (
        Disk("disk: {bus: sata, readonly: true}"),
        "devices.disks[1].disk.readonly",
        "readonly sata disks",
    ),
    (
        Disk("io: native, cache: writeback, disk: {bus: virtio}"),
        "devices.disks[1].cache",
        "io='native' needs",
    ),
    (
        Disk("disk: {bus: virtio, pciAddress: '0000:00:40.0'}"),
        "devices.disks[1].disk.pciAddress",
        "must be <= 0x1F",
    ),
    (
        Disk("disk: {bus: virtio, pciAddress: '0000:00:1f.2'}"),
        "devices.disks[1].disk.pciAddress",
        "double use of PCI Address",
    ),
    (
        Nic("macAddress: '01:00:5e:00:00:01'"),
        "devices.interfaces[0].macAddress",
        "expected unicast mac address",
    ),
    (
        Nic("pciAddress: '0000:01:20.0'"),
        "devices.interfaces[0].pciAddress",
        "Invalid PCI address",
    ),
    (
        Device("panicDevices: [{model: isa}, {model: isa}]"),
        "devices.panicDevices[0]",
        "Multiple panic devices",
    ),
    (
        Domain("clock: {utc: {}, timer: {pit: {tickPolicy: merge}}}"),
        "clock.timer.pit.tickPolicy",
        "unsupported pit tickpolicy 'merge'",
    ),
    (
        Domain("clock: {utc: {}, timer: {rtc: {tickPolicy: merge}}}"),
        "clock.timer.rtc.tickPolicy",
        "unsupported rtc timer tickpolicy",
    ),
    (
        Domain("clock: {utc: {}, timer: {rtc: {track: boot}}}"),
        "clock.timer.rtc.track",
        "unsupported rtc timer track",
    ),
    (
        Domain("firmware: {uuid: 5d307ca9}"),
        "firmware.uuid",
        "uuid element",
    ),
    (
        Device("watchdog: {name: w, i6300esb: {action: reboot}}"),
        "devices.watchdog",
        "reboot",
    ),
    (
        Domain("cpu: {sockets: 5000}"),
        "cpu.sockets",
        "Maximum CPUs greater than",
    ),
    (
        Domain("features: {hyperv: {spinlocks: {spinlocks: 16}}}"),
        "features.hyperv.spinlocks.spinlocks",
        "retry count must be at least 4095",
    ),
];

enum More {
    Disk(&'static str),
    Nic(&'static str),
    Device(&'static str),
    Domain(&'static str),
}
use More::{Device, Disk, Domain, Nic};

impl More {
    fn manifest(&self) -> String {
        let (mut domain, mut device, mut disk, mut spec) = ("", String::new(), String::new(), "");
        match self {
            Disk(more) => disk = format!("      - {{name: data, {more}}}"),
            Device(more) => device = format!("      {more}"),
            Domain(more) => domain = more,
            Nic(more) => {
                device = format!("      interfaces: [{{name: net, bridge: {{}}, {more}}}]");
                spec = "  networks: [{name: net, pod: {}}]";
            }
        }
        format!(
            "kind: VirtualMachineInstance
metadata: {{name: a}}
spec:
{spec}
  domain:
    {domain}
    memory: {{guest: 64Mi}}
    devices:
{device}
      disks:
      - {{name: root, disk: {{bus: virtio}}}}
{disk}
  volumes:
  - {{name: root, containerDisk: {{image: x}}}}
  - {{name: data, persistentVolumeClaim: {{claimName: data}}}}
"
        )
    }
}

#[test]
fn what_libvirt_refuses_is_refused_with_its_words_and_the_field() {
    for (more, field, words) in REFUSED {
        let (_dir, file) = manifest(&more.manifest());
        let output = launcherctl(&format!("check {file}"));
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{field}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        has(
            &said,
            &format!(": spec.domain.{field}: libvirt refuses it: "),
        );
        has(&said, words);
    }
}

#[test]
fn where_libvirt_is_not_asked_that_is_said() {
    let (dir, file) = manifest(&Disk("lun: {bus: sata}").manifest());
    let mut command = launcherctl_command(&format!("check {file}"));
    let output = command.env("PATH", dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", stdout(&output));
    assert_eq!(
        stdout(&output),
        format!(
            "{file}: ok (checked: fields, types and the conversion; QEMU and a cluster's admission have more rules; libvirt was not asked: virsh is not installed)\n"
        )
    );
    // There is no QEMU.
    std::os::unix::fs::symlink("/usr/bin/virsh", dir.path().join("virsh")).unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stdout(&output));
    has(
        &stdout(&output),
        "libvirt was not asked: unsupported configuration: No emulator",
    );
    let json = json(&format!("check {file} -o json"));
    schema::check("check", &json);
    assert!(json[0]["libvirtNotAsked"].is_null(), "{json}");
}

/// libvirt takes the directory in a URI, and `virsh` reads quotes.
#[test]
fn a_directory_with_any_name_is_no_reason_for_a_refusal() {
    let (dir, file) = manifest(&Domain("").manifest());
    for name in ["a b", "a#b", "a&b", "a'b", "ä"] {
        let temporary = dir.path().join(name);
        std::fs::create_dir(&temporary).unwrap();
        let mut command = launcherctl_command(&format!("check {file}"));
        let output = command.env("TMPDIR", &temporary).output().unwrap();
        has(&stdout(&output), "the conversion and libvirt; ");
    }
}

#[test]
fn a_virsh_that_gives_no_answer_is_not_libvirt() {
    let (dir, file) = manifest(&Disk("lun: {bus: sata}").manifest());
    for (script, why) in [
        ("exit 3", "virsh gave up"),
        ("echo 'error: no driver' >&2; exit 1", "no driver"),
    ] {
        let path = dir.path().join("virsh");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = launcherctl_command(&format!("check {file}"));
        let output = command.env("PATH", dir.path()).output().unwrap();
        assert!(output.status.success(), "{}", stdout(&output));
        has(&stdout(&output), "libvirt was not asked: ");
        has(&stdout(&output), why);
    }
}

/// The cache directory keeps what libvirt has asked QEMU.
#[test]
fn libvirt_keeps_the_capabilities_of_qemu() {
    let (dir, file) = manifest(&Domain("").manifest());
    let mut command = launcherctl_command(&format!("check {file}"));
    let output = command.env("XDG_CACHE_HOME", dir.path()).output().unwrap();
    has(&stdout(&output), "the conversion and libvirt; ");
    let kept = std::fs::read_dir(dir.path().join("virt-launcher/capabilities"));
    assert_eq!(kept.unwrap().count(), 1);
}
