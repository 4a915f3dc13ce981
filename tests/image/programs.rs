//! Our programs, and the others that KubeVirt starts.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::{assert_executable, assert_link, assert_owned, at, elf, output, resolve, text};

#[test]
fn programs_that_kubevirt_starts() {
    for path in [
        "/usr/bin/virt-launcher",
        "/usr/bin/cel-evaluator",
        "/usr/bin/virt-launcher-monitor",
        "/usr/bin/container-disk",
        "/usr/bin/libvirt-hook-client",
        "/usr/bin/virt-freezer",
        "/usr/bin/virt-probe",
        "/usr/bin/virt-tail",
        "/usr/bin/node-labeller.sh",
        "/usr/libexec/virtiofsd",
        "/usr/sbin/virtqemud",
        "/usr/sbin/virtlogd",
        "/usr/bin/virsh",
        "/bin/bash",
        "/bin/sh",
        "/usr/bin/cp",
        "/usr/bin/ps",
        "/usr/bin/pidof",
    ] {
        assert_executable(path);
    }
}

/// container/Containerfile.kubevirt takes the same programs.
#[test]
fn programs_load_in_kubevirts_own_image() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(repository.join("scripts/check-glibc"))
        .args(["virt-launcher", "cel-evaluator"].map(|name| at("/usr/bin").join(name)))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
}

/// Such a path makes two builds of one commit differ. `make release-check` compares whole builds.
#[test]
fn programs_do_not_contain_where_they_were_built() {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = set("HOME").unwrap_or_else(|| "/root".into());
    let cargo = set("CARGO_HOME").unwrap_or_else(|| Path::new(&home).join(".cargo").into());
    for name in [
        "virt-launcher",
        "cel-evaluator",
        "virt-launcher-monitor",
        "pod-tools",
    ] {
        let program = std::fs::read(at("/usr/bin").join(name)).unwrap();
        for place in [
            env!("CARGO_MANIFEST_DIR").as_bytes(),
            cargo.as_encoded_bytes(),
        ] {
            let found = program.windows(place.len()).any(|part| part == place);
            assert!(!found, "{name} has {}", String::from_utf8_lossy(place));
        }
    }
}

#[test]
fn modes() {
    for (path, kind, mode, owner) in [
        ("/usr/bin/virt-launcher", 'f', 0o755, 0),
        ("/usr/bin/cel-evaluator", 'f', 0o755, 0),
        ("/usr/bin/virt-launcher-monitor", 'f', 0o755, 0),
        ("/usr/bin/pod-tools", 'f', 0o755, 0),
        ("/get-version", 'f', 0o644, 0),
    ] {
        assert_owned(path, kind, mode, owner);
    }
}

#[test]
fn links_of_the_small_tools() {
    let listed = output("root", "/usr/bin/pod-tools --list");
    let listed: BTreeSet<_> = listed.lines().collect();
    assert!(listed.contains("container-disk"), "{listed:?}");
    for name in &listed {
        assert_link(&format!("/usr/bin/{name}"), "pod-tools");
    }
}

#[test]
fn container_disk_is_static() {
    let file = std::fs::read(at(&resolve("/usr/bin/container-disk").to_string_lossy())).unwrap();
    assert!(
        elf::is_elf(&file) && elf::interpreter(&file).is_none(),
        "it runs in images that have no libraries of ours"
    );
    let launcher = std::fs::read(at("/usr/bin/virt-launcher")).unwrap();
    assert!(
        elf::interpreter(&launcher).is_some(),
        "the check knows a dynamic executable"
    );
}

#[test]
fn version() {
    assert_eq!(text("/get-version").trim(), env!("CARGO_PKG_VERSION"));
}
