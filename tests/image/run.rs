//! What is in the tree runs there.

use std::process::Command;

use super::executable::copy_program;
use super::{at, enter, output, resolve};

/// The arguments with which virt-controller starts an ordinary pod, but for `--run-as-nonroot`.
const LAUNCHER: &str = "/usr/bin/virt-launcher --qemu-timeout 240s --name vm --uid 5b0e1f9e-0000 --namespace default \
    --kubevirt-share-dir /var/run/kubevirt --ephemeral-disk-dir /var/run/kubevirt-ephemeral-disks \
    --container-disk-dir /var/run/kubevirt/container-disks --grace-period-seconds 45 --hook-sidecars 0 \
    --ovmf-path /usr/share/edk2/ovmf --disk-memory-limit 2097152000 --hypervisor kvm --image-volume \
    --libvirt-hook-server-and-client --upgrade-ordinal-ifaces --allow-emulation";

#[test]
fn libraries_are_complete() {
    let script = r#"
        checked=0
        while read -r file; do
            [ "$(head -c4 "$file" | od -An -tx1)" = " 7f 45 4c 46" ] || continue
            checked=$((checked + 1))
            /lib64/ld-linux-x86-64.so.2 --list "$file" 2>&1 | sed -n "s|.*not found.*|$file: &|p"
        done < <(find /usr/bin /usr/sbin /usr/lib /usr/libexec -type f)
        echo $checked
    "#;
    let output = output("root", script);
    let checked: u32 = output
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("libraries are missing:\n{output}"));
    assert!(checked > 200, "only {checked} executables and libraries");
}

#[test]
fn programs_start() {
    for command in [
        "virt-launcher --help",
        "virt-launcher-monitor --help",
        "container-disk --no-op",
        "/usr/libexec/virtiofsd --version",
        "passt --version",
        "swtpm --version",
        "qemu-img --version",
        "qemu-system-x86_64 --version",
        "xorriso -version",
        "virsh --version",
        "virtqemud --version",
        "virtlogd --version",
        "certtool --version",
        "ps -e",
        "ip link",
        "lsblk --version",
        "tar --version",
    ] {
        output("launcher", command);
    }
}

/// Starts a launcher, asks its libvirt for the capabilities once it is ready, and ends it.
fn launcher(user: &str, flag: &str, uri: &str) -> String {
    let script = format!(
        r#"
        id -u; grep -E '^(CapEff|CapPrm|CapAmb|NoNewPrivs)' /proc/self/status
        {LAUNCHER} {flag} &>/tmp/log &
        launcher=$!
        for _ in $(seq 300); do [ -e /var/run/kubevirt/sockets/launcher-sock ] && break; sleep 0.1; done
        if [ ! -S /var/run/kubevirt/sockets/launcher-sock ]; then cat /tmp/log; exit 1; fi
        ps -o comm= --ppid $launcher
        virsh -c '{uri}' capabilities
        kill $launcher
        wait $launcher || true
        grep -c 'Marked as ready' /tmp/log
        "#
    );
    let output = output(user, &script);
    for daemon in ["virtqemud", "virtlogd"] {
        assert!(
            output.lines().any(|line| line.trim() == daemon),
            "process name {daemon}: {output}"
        );
    }
    for part in [
        "<capabilities>",
        "<emulator>/usr/bin/qemu-system-x86_64</emulator>",
        "pc-q35-",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(output.ends_with("\n1\n"), "{output}");
    output
}

#[test]
fn launcher_and_its_libvirt() {
    let output = launcher(
        "launcher",
        "--run-as-nonroot",
        "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock",
    );
    assert!(output.starts_with("107\n"), "{output}");
    for line in [
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
    ] {
        assert!(output.contains(line), "{line}: {output}");
    }
}

#[test]
fn launcher_as_root_and_its_libvirt() {
    launcher("root", "", "qemu:///system");
}

#[test]
fn firmware_that_libvirt_finds() {
    let output = output(
        "launcher",
        "virtqemud --daemon --timeout 30
         virsh -c qemu:///session domcapabilities --machine q35 --virttype qemu",
    );
    for part in [
        "<value>efi</value>",
        "/usr/share/OVMF/OVMF_CODE_4M",
        "<value>emulator</value>",
        "<value>passt</value>",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[test]
fn node_labeller() {
    let script = r#"
        export HYPERVISOR_DEVICE=kvm PREFERRED_VIRTTYPE=kvm
        sh -c node-labeller.sh >&2
        cd /var/lib/kubevirt-node-labeller
        for file in *; do echo "== $file"; cat $file; done
    "#;
    let output = output("root", script);
    let files: Vec<_> = output
        .lines()
        .filter_map(|line| line.strip_prefix("== "))
        .collect();
    let expected = [
        "capabilities.xml",
        "supported_features.xml",
        "virsh_domcapabilities.xml",
        "virsh_domcapabilities_aarch64.xml",
    ];
    assert_eq!(files, expected);
    for part in [
        "<capabilities>",
        "<domainCapabilities>",
        "<mode name='host-model'",
        "<feature policy='require' name=",
    ] {
        assert!(output.contains(part), "{part}: {output}");
    }
}

#[test]
fn tpm() {
    let script = "mkdir /tmp/tpm
        swtpm_setup --tpm2 --tpmstate /tmp/tpm --create-config-files skip-if-exist >&2
        swtpm_setup --tpm2 --tpmstate /tmp/tpm --create-ek-cert --create-platform-cert --lock-nvram --overwrite >&2
        ls /tmp/tpm";
    let output = output("launcher", script);
    assert!(output.contains("tpm2-00.permall"), "{output}");
}

/// One is not in the profile, the other has arguments that are not. User 107 may do both where
/// there is no filter.
#[test]
fn a_system_call_outside_the_profile_fails() {
    const USER: &str = "setpriv --reuid 107 --clear-groups --bounding-set -all --no-new-privs";
    for command in ["ionice --class idle true", "unshare --user --net true"] {
        output("root", &format!("{USER} {command}"));
        let refused = enter("launcher", command);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && message.contains("Function not implemented"),
            "{command}: {message}"
        );
    }
}

/// It makes namespaces of its own before it takes a guest's packets, and ends if it cannot.
#[test]
fn passt_isolates_itself() {
    output("launcher", "passt --socket /tmp/passt.sock && pgrep passt");
}

#[test]
fn time_zones() {
    let zones = output(
        "launcher",
        "for zone in Europe/Berlin US/Eastern UTC; do TZ=$zone date -d @1700000000 +%z; done",
    );
    assert_eq!(zones, "+0100\n-0500\n+0000\n");
}

#[test]
fn hook_marks_a_migrated_guest() {
    let script = r#"
        mkdir -m 2777 /var/run/kubevirt-private/backend-storage-meta
        cd /var/run/kubevirt-private/backend-storage-meta
        umask 077
        for event in "release end shutdown" "release begin migrated" "stopped end migrated" "migrate begin -"; do
            /etc/libvirt/hooks/qemu default_vm $event </dev/null
            [ ! -e migrated ] || { echo "made by $event"; exit 1; }
        done
        /etc/libvirt/hooks/qemu default_vm release end migrated </dev/null
        stat -c %a migrated
    "#;
    assert_eq!(output("launcher", script), "644\n");
}

#[test]
fn launcher_can_replace_the_hook() {
    let script =
        "cd /etc/libvirt/hooks; rm qemu; ln -s /usr/bin/libvirt-hook-client qemu; readlink qemu";
    assert_eq!(output("launcher", script), "/usr/bin/libvirt-hook-client\n");
}

#[test]
fn launcher_can_write_only_where_it_has_to() {
    let script = "{ find / -xdev -writable ! -type l 2>/dev/null || true; } | sort";
    let output = output("launcher", script);
    let found: Vec<_> = output.lines().collect();
    let expected = [
        "/etc/libvirt/hooks",
        "/etc/libvirt/hooks/qemu",
        "/home/qemu",
        "/tmp",
        "/var/cache/libvirt/qemu",
        "/var/lib/libvirt/qemu",
        "/var/lock",
        "/var/tmp",
    ];
    assert_eq!(found, expected);
}

#[test]
fn monitor_gains_its_capability() {
    let script = "exec 3</usr/bin/virt-launcher-monitor; getcap /usr/bin/virt-launcher-monitor";
    assert_eq!(
        output("launcher", script),
        "/usr/bin/virt-launcher-monitor cap_net_bind_service=ep\n"
    );
}

/// container-disk in an image that has nothing but it.
#[test]
fn container_disk_in_an_empty_image() {
    let image = tempfile::tempdir().unwrap();
    copy_program(
        at(&resolve("/usr/bin/container-disk").to_string_lossy()),
        &image.path().join("container-disk"),
    );
    let status = Command::new("chroot")
        .arg(image.path())
        .args(["/container-disk", "--no-op"])
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let other = Command::new("chroot")
        .arg(image.path())
        .args(["/container-disk", "--nonsense"])
        .status()
        .unwrap();
    assert!(
        !other.success(),
        "an unknown flag is an error: so the program did run"
    );
}

#[test]
fn a_failing_script_fails() {
    assert_eq!(enter("launcher", "exit 3").status.code(), Some(3));
}
