#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;

fn flags(args: &[&str]) -> Flags {
    match parse(args.iter().map(OsString::from)).unwrap() {
        Parsed::Run(flags) => *flags,
        Parsed::Help => panic!("help"),
    }
}

fn refusal(args: &[&str]) -> String {
    os::logging::chain(&parse(args.iter().map(OsString::from)).unwrap_err())
}

#[test]
fn no_flags_are_kubevirts_defaults() {
    assert_eq!(flags(&[]), Flags::default());
}

#[test]
fn what_virt_controller_writes() {
    let flags = flags(&[
        "--qemu-timeout",
        "253s",
        "--name",
        "demo",
        "--uid",
        "1-2",
        "--namespace",
        "default",
        "--kubevirt-share-dir",
        "/var/run/kubevirt",
        "--ephemeral-disk-dir",
        "/eph",
        "--container-disk-dir",
        "/cd",
        "--grace-period-seconds",
        "45",
        "--hook-sidecars",
        "2",
        "--ovmf-path",
        "/usr/share/OVMF",
        "--disk-memory-limit",
        "2097152000",
        "--hypervisor",
        "kvm",
        "--run-as-nonroot",
        "--image-volume",
        "--libvirt-hook-server-and-client",
        "--upgrade-ordinal-ifaces",
        "--libvirt-log-filters",
        "1:qemu 3:*",
        "--allow-emulation",
        "--keep-after-failure",
    ]);
    assert_eq!(flags.qemu_timeout, Duration::from_secs(253));
    assert_eq!(
        (
            flags.name.as_str(),
            flags.uid.as_str(),
            flags.namespace.as_str()
        ),
        ("demo", "1-2", "default")
    );
    assert_eq!(
        (flags.grace_period, flags.hook_sidecars),
        (Duration::from_secs(45), 2)
    );
    assert_eq!(flags.libvirt_log_filters, "1:qemu 3:*");
    assert!(
        flags.run_as_nonroot
            && flags.image_volume
            && flags.allow_emulation
            && flags.keep_after_failure
    );
    assert!(!flags.simulate_crash && !flags.vm_stats_collector && !flags.firmware_auto_selection);
}

#[test]
fn value_after_an_equals_sign() {
    assert_eq!(flags(&["--name=a=b", "--ovmf-path="]).name, "a=b");
    assert_eq!(flags(&["--ovmf-path="]).ovmf_path, "", "s390x has none");
}

#[test]
fn value_that_looks_like_a_flag() {
    assert_eq!(flags(&["--name", "--uid"]).name, "--uid");
}

#[test]
fn switch_spellings() {
    for on in [
        "--allow-emulation",
        "--allow-emulation=true",
        "--allow-emulation=1",
        "--allow-emulation=T",
    ] {
        assert!(flags(&[on]).allow_emulation, "{on}");
    }
    for off in [
        "--allow-emulation=false",
        "--allow-emulation=0",
        "--allow-emulation=F",
    ] {
        assert!(!flags(&["--allow-emulation", off]).allow_emulation, "{off}");
    }
}

#[test]
fn switch_leaves_the_next_argument_alone() {
    let flags = flags(&["--allow-emulation", "false", "--name", "demo"]);
    assert!(flags.allow_emulation);
    assert_eq!(flags.name, "demo");
}

#[test]
fn verbosity_spellings() {
    for args in [
        &["-v", "3"][..],
        &["-v=3"],
        &["-v3"],
        &["--v", "3"],
        &["--v=3"],
    ] {
        assert_eq!(flags(args).verbosity, 3, "{args:?}");
    }
}

#[test]
fn last_one_counts() {
    assert_eq!(flags(&["--name", "a", "--name=b"]).name, "b");
}

#[test]
fn arguments_that_are_no_flags_are_passed_over() {
    assert_eq!(flags(&["run", "--name", "a", "--", "--unknown"]).name, "a");
}

#[test]
fn ours() {
    let flags = flags(&["--root", "/tmp/x", "--libvirt=embed", "--force-emulation"]);
    assert_eq!(
        (flags.root.to_str(), flags.libvirt, flags.force_emulation),
        (Some("/tmp/x"), LibvirtMode::Embed, true)
    );
}

#[test]
fn unknown_flag_is_refused_by_name() {
    assert_eq!(
        refusal(&["--name", "a", "--nosuch", "1"]),
        "unknown flag: --nosuch"
    );
    assert_eq!(refusal(&["--nosuch=1"]), "unknown flag: --nosuch");
    assert_eq!(refusal(&["-x"]), "unknown flag: -x");
}

#[test]
fn flag_without_its_value_is_refused() {
    assert_eq!(refusal(&["--name"]), "flag needs an argument: --name");
}

#[test]
fn wrong_values_are_refused() {
    assert_eq!(
        refusal(&["--qemu-timeout", "240"]),
        "invalid argument \"240\" for \"--qemu-timeout\" flag: a duration such as 253s or 1h2m3s is expected"
    );
    assert_eq!(
        refusal(&["--hook-sidecars=-1"]),
        "invalid argument \"-1\" for \"--hook-sidecars\" flag: a whole number is expected"
    );
    assert_eq!(
        refusal(&["--image-volume=maybe"]),
        "invalid argument \"maybe\" for \"--image-volume\" flag: true or false is expected"
    );
    assert_eq!(
        refusal(&["--libvirt", "xen"]),
        "invalid argument \"xen\" for \"--libvirt\" flag: virtqemud, libvirtd, embed or auto is expected"
    );
}

#[test]
fn argument_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let args = ["--name".into(), OsString::from_vec(vec![0xff])];
    assert!(matches!(parse(args), Err(FlagError::NotText(_))));
}

#[test]
fn help_is_for_the_asking() {
    assert_eq!(parse(["--help".into()]).unwrap(), Parsed::Help);
    assert_eq!(parse(["-h".into()]).unwrap(), Parsed::Help);
}

#[test]
fn usage_names_every_switch() {
    for name in USAGE
        .split_whitespace()
        .filter(|word| word.starts_with("--"))
        .map(|word| &word[2..])
    {
        let name = name.trim_end_matches(',');
        if name.contains('{') {
            continue;
        }
        let args = [format!("--{name}").into(), "1".into()];
        assert!(
            !matches!(parse(args), Err(FlagError::Unknown(_))),
            "--{name}"
        );
    }
}
