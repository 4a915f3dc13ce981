//! Modes, owners, links and capabilities, as far as they do not come with our programs.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::{assert_link, assert_owned, at, capability, metadata, resolve, tree, walk};

/// `cap_net_bind_service=ep`, as the kernel stores it (revision 2).
const NET_BIND_SERVICE: &str = "0100000200040000000000000000000000000000";

/// The emulators that are there: one, or two with CROSS_ARCH.
pub fn emulators() -> Vec<&'static str> {
    let mut all = vec![
        "/usr/bin/qemu-system-aarch64",
        "/usr/bin/qemu-system-x86_64",
    ];
    all.retain(|path| at(path).exists());
    all
}

#[test]
fn modes() {
    for (path, kind, mode, owner) in [
        ("/tmp", 'd', 0o1777, 0),
        ("/run", 'd', 0o755, 0),
        ("/etc/passwd", 'f', 0o644, 0),
        ("/etc/group", 'f', 0o644, 0),
        ("/etc/nsswitch.conf", 'f', 0o644, 0),
        ("/etc/libvirt", 'd', 0o755, 0),
        ("/etc/libvirt/qemu.conf", 'f', 0o644, 0),
        ("/etc/libvirt/virtqemud.conf", 'f', 0o644, 0),
        ("/etc/libvirt/virtlogd.conf", 'f', 0o644, 0),
        ("/etc/libvirt/hooks", 'd', 0o755, 107),
        ("/etc/libvirt/hooks/qemu", 'f', 0o755, 107),
        ("/home/qemu", 'd', 0o700, 107),
        ("/usr/lib64/qemu-kvm", 'd', 0o755, 0),
        ("/usr/bin/node-labeller.sh", 'f', 0o755, 0),
        ("/var/lib/libvirt", 'd', 0o755, 0),
        ("/var/lib/libvirt/qemu", 'd', 0o751, 107),
        ("/var/cache/libvirt/qemu", 'd', 0o750, 107),
        ("/var/log/libvirt/qemu", 'd', 0o700, 0),
        ("/var/lib/swtpm-localca", 'd', 0o750, 0),
    ] {
        assert_owned(path, kind, mode, owner);
    }
    assert_eq!(
        walk("/usr/lib64/qemu-kvm").len(),
        0,
        "/usr/lib64/qemu-kvm is empty"
    );
}

#[test]
fn owners() {
    let owned = walk("/")
        .into_iter()
        .filter(|path| (metadata(path).uid(), metadata(path).gid()) != (0, 0));
    let owned: BTreeSet<_> = owned.collect();
    let expected = [
        "/etc/libvirt/hooks",
        "/etc/libvirt/hooks/qemu",
        "/home/qemu",
        "/var/cache/libvirt/qemu",
        "/var/lib/libvirt/qemu",
    ];
    assert_eq!(owned, expected.map(String::from).into());
}

#[test]
fn only_temporary_directories_are_writable_by_all() {
    let writable = walk("/")
        .into_iter()
        .filter(|path| !metadata(path).is_symlink() && metadata(path).mode() & 0o002 != 0);
    assert_eq!(
        writable.collect::<BTreeSet<_>>(),
        ["/tmp", "/var/lock", "/var/tmp"].map(String::from).into()
    );
}

#[test]
fn capabilities_of_files() {
    let with: Vec<_> = walk("/")
        .into_iter()
        .filter(|path| !capability(path).is_empty())
        .collect();
    let mut expected = emulators();
    assert!(!expected.is_empty());
    expected.push("/usr/bin/virt-launcher-monitor");
    expected.retain(|path| at(path).exists());
    expected.sort_unstable();
    let mut found: Vec<_> = with.iter().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    for path in expected {
        assert_eq!(capability(path), NET_BIND_SERVICE, "{path}");
    }
}

#[test]
fn no_file_has_a_set_user_id_bit() {
    let found: Vec<_> = walk("/")
        .into_iter()
        .filter(|path| metadata(path).is_file() && metadata(path).mode() & 0o6000 != 0)
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn no_device_no_socket_no_fifo() {
    let special = |path: &String| {
        let kind = metadata(path).file_type();
        kind.is_block_device() || kind.is_char_device() || kind.is_socket() || kind.is_fifo()
    };
    assert_eq!(
        walk("/").into_iter().filter(special).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}

#[test]
fn links() {
    assert_link("/var/run", "../run");
    assert_link("/usr/sbin/virtqemud", "libvirtd");
    assert_link("/usr/bin/sh", "bash");
    assert_link("/usr/bin/awk", "mawk");
    for (link, target) in [
        ("/bin", "usr/bin"),
        ("/sbin", "usr/sbin"),
        ("/lib", "usr/lib"),
    ] {
        assert_link(link, target);
    }
}

#[test]
fn links_lead_somewhere() {
    // Made by other packages than those that are here, or by the container's start.
    let known = ["/etc/rmt", "/usr/share/zoneinfo/localtime"];
    let links = walk("/")
        .into_iter()
        .filter(|path| metadata(path).is_symlink() && !path.starts_with("/usr/share/doc/"));
    let broken: Vec<_> = links
        .filter(|path| !at(&resolve(path).to_string_lossy()).exists())
        .collect();
    let broken: Vec<_> = broken
        .iter()
        .filter(|path| !known.contains(&path.as_str()))
        .collect();
    assert!(broken.is_empty(), "{}: {broken:?}", tree().display());
}
