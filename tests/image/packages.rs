//! Debian's packages against the list, and the firmware.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use super::files::emulators;
use super::{assert_executable, assert_link, assert_owned, at, metadata, text, tree, walk};

fn has_x86() -> bool {
    emulators().contains(&"/usr/bin/qemu-system-x86_64")
}

fn has_arm() -> bool {
    emulators().contains(&"/usr/bin/qemu-system-aarch64")
}

/// The first words of the lines of container/packages: of those that begin with "!", or of the
/// others.
fn listed(left_out: bool) -> Vec<String> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("container/packages");
    let text = std::fs::read_to_string(list).unwrap();
    let mut words = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (word, architecture) = line.split_once(' ').unwrap_or((line, ""));
        let here = match architecture {
            "" => true,
            "[amd64]" => has_x86(),
            "[arm64]" => has_arm(),
            other => panic!("{line}: {other}"),
        };
        if here && word.starts_with('!') == left_out {
            words.push(word.trim_start_matches('!').to_owned());
        }
    }
    words
}

#[test]
fn packages() {
    let status = text("/var/lib/dpkg/status");
    let unpacked: BTreeSet<_> = status
        .lines()
        .filter_map(|line| line.strip_prefix("Package: "))
        .collect();
    for name in listed(false) {
        assert!(unpacked.contains(name.as_str()), "{name} is not there");
    }
    for name in listed(true) {
        assert!(!unpacked.contains(name.as_str()), "{name} is there");
    }
    assert_eq!(
        status.matches("\nStatus: install ok installed\n").count(),
        unpacked.len()
    );
    assert!(
        unpacked.len() < 160,
        "{} packages: which is new, and is it needed?",
        unpacked.len()
    );
    for name in ["libc6", "bash", "virtiofsd"] {
        assert!(
            at(&format!("/usr/share/doc/{name}/copyright")).exists(),
            "{name}'s licence"
        );
    }
}

#[test]
fn files_that_are_left_out() {
    let patterns = listed(true);
    let patterns = patterns.iter().filter(|line| line.starts_with('/'));
    for pattern in patterns {
        let path = at(pattern);
        let found = Command::new("find")
            .arg(tree())
            .arg("-path")
            .arg(path)
            .output()
            .unwrap();
        assert!(found.status.success());
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "{pattern}");
    }
}

#[test]
fn firmware() {
    if has_x86() {
        for (name, target) in [
            ("OVMF_CODE.fd", "OVMF_CODE_4M.fd"),
            ("OVMF_VARS.fd", "OVMF_VARS_4M.fd"),
            ("OVMF_CODE.secboot.fd", "OVMF_CODE_4M.secboot.fd"),
            ("OVMF_VARS.secboot.fd", "OVMF_VARS_4M.ms.fd"),
            ("OVMF_CODE.cc.fd", "OVMF_CODE_4M.fd"),
        ] {
            assert_link(
                &format!("/usr/share/edk2/ovmf/{name}"),
                &format!("../../OVMF/{target}"),
            );
        }
        let sev = walk("/usr/share/qemu/firmware").iter().any(|path| {
            let text = text(path);
            text.contains("/OVMF_CODE_4M.fd\"") && text.contains("\"amd-sev\"")
        });
        assert!(sev, "Debian's description of OVMF_CODE_4M.fd names SEV");
        for bios in [
            "/usr/share/seabios/bios-256k.bin",
            "/usr/share/seabios/vgabios-virtio.bin",
            "/usr/share/qemu/efi-virtio.rom",
        ] {
            assert!(at(bios).exists(), "{bios}");
        }
    }
    if has_arm() {
        assert_link("/usr/share/AAVMF/AAVMF_CODE.fd", "AAVMF_CODE.no-secboot.fd");
        assert_owned("/usr/share/AAVMF/AAVMF_VARS.fd", 'f', 0o644, 0);
        assert!(
            metadata("/usr/share/AAVMF/AAVMF_VARS.fd").blocks() * 512 < 1 << 20,
            "its zeros take no space"
        );
    }
    assert!(at("/usr/share/qemu/firmware").read_dir().unwrap().count() > 0);
    for path in walk("/usr/share/qemu/firmware") {
        for file in text(&path).split('"').filter(|word| word.ends_with(".fd")) {
            assert!(at(file).exists(), "{path} names {file}");
        }
    }
}

#[test]
fn firmware_with_keys_that_anybody_has_is_left_out() {
    let found: Vec<_> = walk("/usr/share")
        .into_iter()
        .filter(|path| path.contains("snakeoil"))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn programs_that_the_launcher_and_libvirt_start() {
    for path in [
        "qemu-img",
        "xorriso",
        "passt",
        "swtpm",
        "swtpm_setup",
        "swtpm_localca",
        "swtpm_cert",
        "certtool",
    ] {
        assert_executable(&format!("/usr/bin/{path}"));
    }
    emulators().into_iter().for_each(assert_executable);
}

#[test]
fn tools_for_kubectl_exec() {
    for path in [
        "awk", "cat", "df", "find", "grep", "id", "ls", "sed", "stat", "sort", "tail", "tar",
        "taskset", "lsblk", "ip",
    ] {
        assert!(
            at(&format!("/usr/bin/{path}")).exists() || at(&format!("/usr/sbin/{path}")).exists(),
            "{path}"
        );
    }
}
