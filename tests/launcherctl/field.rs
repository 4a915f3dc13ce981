//! Manifests that people have brought, from `../shared/field`: each folder's README has the right
//! answer. Without the folder nothing is tried; with `CI` set that fails.

use std::path::{Path, PathBuf};

use super::{done, has, launcherctl, manifest, refused, stdout};

/// A file of a folder, if there are any.
fn file(name: &str) -> Option<String> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/field");
    if !folder.is_dir() && std::env::var_os("CI").is_none() {
        return None;
    }
    let file = folder.join(name);
    assert!(file.exists(), "{} is missing", file.display());
    Some(file.display().to_string())
}

/// `check` refuses the file, and says this.
#[track_caller]
fn refuses(name: &str, parts: &[&str]) {
    if let Some(file) = file(name) {
        let output = launcherctl(&format!("check {file}"));
        let said = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        parts.iter().for_each(|part| has(&said, part));
    }
}

#[test]
fn what_the_launcher_takes_is_ok() {
    for name in [
        "01-server-interface/vmi.yaml",
        "04-lun-bus/lun-scsi.yaml",
        "06-msdm-secret/vm.yaml",
        "07-userdata-base64-size/base64.yaml",
        "13-command-only-sidecar/vmi.yaml",
        "16-cdrom/simple.yaml",
        "16-cdrom/hotpluggable-disk.yaml",
        "18-odd-sizes/vm.yaml",
        "18-odd-sizes/blank-1G.yaml",
        "19-block-match/vmi.yaml",
        "19-block-match/empty.yaml",
        "19-block-match/dv.yaml",
        "26-names-and-acpi/long.yaml",
        "26-names-and-acpi/dotted.yaml",
        "26-names-and-acpi/dumped.yaml",
    ] {
        let Some(file) = file(name) else { return };
        let said = done(&format!("check {file}"));
        assert!(
            said.starts_with(&format!("{file}: ok (checked: ")),
            "{said}"
        );
        has(&done(&format!("convert {file}")), "<domain type=");
    }
}

#[test]
fn a_machine_depends_on_the_clusters_settings() {
    let Some(file) = file("03-i440fx-ide/vm.yaml") else {
        return;
    };
    let said = done(&format!("check {file}"));
    has(&said, "note: spec.template.spec.domain.machine.type: ");
    has(&said, "emulatedMachines");
}

#[test]
fn a_lun_is_on_a_scsi_bus() {
    for name in ["default", "sata", "virtio"] {
        let field = "spec.domain.devices.disks[1].lun.bus: libvirt refuses it: ";
        let file = format!("04-lun-bus/lun-{name}.yaml");
        refuses(&file, &[field, "; it takes bus: scsi"]);
    }
}

#[test]
fn a_secret_beside_the_vm_has_the_key_of_an_acpi_table() {
    let lacking = "the Secret \"oem-key\" does not have the key msdm.bin";
    refuses("06-msdm-secret/wrongkey.yaml", &[lacking]);
    let (_dir, file) = manifest(
        "kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain: {memory: {guest: 64Mi}, devices: {disks: [{name: answers, cdrom: {bus: sata}}]}}
  volumes: [{name: answers, sysprep: {secret: {name: answers}}}]
---
kind: Secret
metadata: {name: answers}
stringData: {KEY: x}
",
    );
    let output = launcherctl(&format!("check {file}"));
    has(&stdout(&output), "autounattend.xml or unattend.xml");
    std::fs::write(
        &file,
        std::fs::read_to_string(&file)
            .unwrap()
            .replace("KEY", "Unattend.XML"),
    )
    .unwrap();
    has(&done(&format!("check {file}")), ": ok (");
}

#[test]
fn a_disk_that_matches_its_volume_has_block_sizes() {
    for name in ["vmi", "empty", "dv"] {
        if let Some(file) = file(&format!("19-block-match/{name}.yaml")) {
            has(
                &done(&format!("convert {file}")),
                "<blockio logical_block_size=",
            );
        }
    }
}

#[test]
fn the_volume_of_a_completed_memory_dump_is_left_out() {
    if let Some(file) = file("26-names-and-acpi/dumped.yaml") {
        assert!(!done(&format!("convert {file}")).contains("dumped-memory"));
    }
}

#[test]
fn text_is_waited_for_on_a_serial_console_only() {
    if let Some(file) = file("27-headless/noserial.yaml") {
        has(
            &refused(&format!("run {file} --until up")),
            "the VMI has none",
        );
    }
    refuses("27-headless/video.yaml", &["autoattachGraphicsDevice"]);
}

#[test]
fn a_sidecar_without_an_image_is_named() {
    if let Some(file) = file("13-command-only-sidecar/vmi.yaml") {
        let said = refused(&format!("run {file}"));
        has(&said, "1 hook sidecar (the shim's own image)");
    }
}
