//! What several programs have in common.

use super::container_disk::Disk;
use super::virt_tail::{Tail, append};
use super::*;

#[test]
fn they_do_not_wake_up_while_nothing_happens() {
    let disk = Disk::start();
    // Away from what other tests do in the directory of temporary files.
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("quiet");
    std::fs::create_dir(&dir).unwrap();
    append(&dir.join("log"), "up\n");
    let mut tail = Tail::of(&dir.join("log"));
    assert_eq!(tail.line(), "up\n");
    let waiting = Tail::of(&dir.join("missing/log"));
    let all = [&disk.running, &tail.running, &waiting.running];
    // They may still be starting.
    until("a time without wake-ups", || {
        let before = all.map(Running::wake_ups);
        std::thread::sleep(Duration::from_secs(3));
        (all.map(Running::wake_ups) == before).then_some(())
    });
}

#[test]
fn every_program_says_version_and_build() {
    let list = Command::new(POD_TOOLS).arg("--list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let mut programs: Vec<(&str, Command)> = list
        .lines()
        // Its --version is that of the hook protocol.
        .filter(|name| *name != "sidecar-shim")
        .map(|name| (name, tool(name)))
        .collect();
    programs.push(("pod-tools", Command::new(POD_TOOLS)));
    programs.push((
        "virt-launcher-monitor",
        Command::new(env!("CARGO_BIN_EXE_virt-launcher-monitor")),
    ));
    #[cfg(feature = "libvirt")]
    programs.push((
        "virt-launcher",
        Command::new(env!("CARGO_BIN_EXE_virt-launcher")),
    ));
    assert!(programs.len() >= 5);
    for (name, mut program) in programs {
        let output = program.arg("--version").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let expected = format!("{name} {} (", env!("CARGO_PKG_VERSION"));
        assert!(
            output.status.success() && text.starts_with(&expected),
            "{text}"
        );
        assert!(
            text.contains("(commit ") || text.contains("(debug build)"),
            "{text}"
        );
    }
}

/// Runs a command of the repository; whether it succeeded, and its standard error.
fn in_repository(program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().unwrap();
    (output.status.success(), error_of(&output))
}

#[test]
fn only_a_static_pod_tools_is_installed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (programs, image) = (path("programs"), path("image"));
    std::fs::create_dir(&programs).unwrap();
    let copy = format!("{programs}/pod-tools");
    std::fs::copy(POD_TOOLS, &copy).unwrap();
    // Tests are built with the defaults of cargo: dynamically.
    let (installed, error) = in_repository(
        "make",
        &[
            "install",
            "MANUALS=no",
            &format!("BINARIES={programs}"),
            &format!("DESTDIR={image}"),
        ],
    );
    assert!(!installed && !Path::new(&image).exists(), "{error}");
    assert!(
        error.contains(&format!("{copy} needs a dynamic loader"))
            && error.contains("make programs"),
        "{error}"
    );
    // The same program, without the header that names the loader.
    let mut program = std::fs::read(&copy).unwrap();
    assert!(elf::is_elf(&program));
    let loader = elf::interpreter(&program).unwrap();
    program[loader] = 0;
    std::fs::write(&copy, &program).unwrap();
    assert_eq!(
        in_repository("scripts/check-static", &[&copy]),
        (true, String::new())
    );
    std::fs::write(&copy, "#!/bin/sh\n").unwrap();
    let (_, error) = in_repository("scripts/check-static", &[&copy]);
    assert!(error.contains("is not a 64-bit ELF executable"), "{error}");
}

/// glibc 2.34 is that of CentOS Stream 9, on which KubeVirt's image is built.
#[test]
fn a_program_that_an_older_glibc_cannot_load_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(
        path("main.c"),
        "int value; int *address = &value; int main(void) { return !address; }",
    )
    .unwrap();
    let check = |option: &str| {
        let built = in_repository(
            "cc",
            &["-o", &path("main"), &path("main.c"), "-pie", option],
        );
        assert!(built.0, "{}", built.1);
        in_repository("scripts/check-glibc", &[&path("main")])
    };
    assert_eq!(
        check("-Wl,-z,nopack-relative-relocs"),
        (true, String::new())
    );
    let (_, error) = check("-Wl,-z,pack-relative-relocs");
    assert!(error.contains("main has packed relocations"), "{error}");
    let (_, error) = in_repository("scripts/check-glibc", &[&path("main.c")]);
    assert!(error.contains("main.c cannot be read"), "{error}");
}

#[test]
fn launcherctl_refuses_devices_of_the_wrong_type_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vmi.yaml");
    for (devices, field) in [
        ("{disks: [foo]}", "spec.domain.devices.disks[0]"),
        ("none", "spec.domain.devices"),
    ] {
        let vmi = format!(
            "kind: VirtualMachineInstance\nmetadata: {{name: a}}\nspec:\n  domain: {{memory: {{guest: 64Mi}}, devices: {devices}}}\n  volumes: [{{name: root, emptyDisk: {{capacity: 1Mi}}}}]\n"
        );
        std::fs::write(&file, vmi).unwrap();
        for verb in [
            &["convert"][..],
            &["explain"],
            &["plan", "--root", "/nonexistent"],
            &["run"],
        ] {
            let output = tool("launcherctl").args(verb).arg(&file).output().unwrap();
            let error = error_of(&output);
            assert_eq!(output.status.code(), Some(1), "{verb:?}: {error}");
            assert!(
                error.contains(&format!("vmi.yaml: {field}: ")),
                "{verb:?}: {error}"
            );
        }
    }
}
