//! Users, name services, libvirt's configuration, and what the Containerfile adds to the tree.

use std::path::Path;

use super::text;

/// Lines without comments and empty ones.
fn settings(path: &str) -> Vec<String> {
    let text = text(path);
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_whitespace().collect())
        .collect()
}

/// libvirt-qemu is another name of 107: Debian's libvirt resolves it before it reads qemu.conf, and
/// ends without it.
#[test]
fn users() {
    let expected = "root:x:0:0:root:/root:/bin/bash\nqemu:x:107:107:qemu:/home/qemu:/bin/bash\n\
                    libvirt-qemu:x:107:107:qemu:/home/qemu:/bin/bash\n";
    assert_eq!(text("/etc/passwd"), expected);
    assert_eq!(
        text("/etc/group"),
        "root:x:0:\nqemu:x:107:\nlibvirt-qemu:x:107:\n"
    );
}

#[test]
fn name_services() {
    let mut settings = settings("/etc/nsswitch.conf");
    let special = ["hosts:filesdnsmyhostname", "networks:filesdns"];
    settings.retain(|line| !special.contains(&line.as_str()));
    assert!(settings.len() > 8, "{settings:?}");
    for line in settings {
        assert!(line.ends_with(":files"), "{line}");
    }
    for line in special {
        assert!(
            self::settings("/etc/nsswitch.conf")
                .iter()
                .any(|found| found == line),
            "{line}"
        );
    }
}

#[test]
fn configuration_of_libvirt() {
    let mut qemu = settings("/etc/libvirt/qemu.conf");
    qemu.sort_unstable();
    let expected = [
        "cgroup_controllers=[]",
        "dynamic_ownership=1",
        "group=\"qemu\"",
        "namespaces=[]",
        "remember_owner=0",
        "stdio_handler=\"logd\"",
        "user=\"qemu\"",
        "vnc_listen=\"0.0.0.0\"",
        "vnc_sasl=0",
        "vnc_tls=0",
    ];
    assert_eq!(qemu, expected);
    let mut daemon = settings("/etc/libvirt/virtqemud.conf");
    daemon.sort_unstable();
    assert_eq!(
        daemon,
        ["listen_tcp=0", "listen_tls=0", "log_outputs=\"1:stderr\""]
    );
    assert_eq!(
        settings("/etc/libvirt/virtlogd.conf"),
        Vec::<String>::new(),
        "the distribution's defaults"
    );
}

#[test]
fn user_and_entry_point() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Containerfile"))
        .unwrap();
    let (_, last_stage) = text.rsplit_once("\nFROM ").unwrap();
    let lines: Vec<_> = last_stage
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert_eq!(
        lines,
        [
            "scratch",
            "COPY --from=tree / /",
            "ARG RESTART_LAUNCHER=no",
            "ENV RESTART_LAUNCHER=$RESTART_LAUNCHER",
            "USER 107",
            r#"ENTRYPOINT ["/usr/bin/virt-launcher"]"#
        ]
    );
}
