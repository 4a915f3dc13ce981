use std::ffi::OsString;

use super::*;

fn flags(args: &[&str]) -> LauncherFlags {
    match LauncherFlags::parse(args.iter().map(OsString::from)).unwrap() {
        Parsed::Run(config) => *config,
        other => panic!("{other:?}"),
    }
}

fn refusal(args: &[&str]) -> String {
    os::logging::chain(&LauncherFlags::parse(args.iter().map(OsString::from)).unwrap_err())
}

#[test]
fn no_flags_are_kubevirts_defaults() {
    // The literal values of cmd/virt-launcher/virt-launcher.go.
    let seconds = Duration::from_secs;
    let expected = LauncherFlags {
        restart_launcher: false,
        qemu_timeout: seconds(3 * 60),
        share_dir: "/var/run/kubevirt".into(),
        ephemeral_disk_dir: "/var/run/kubevirt-ephemeral-disks".into(),
        container_disk_dir: "/var/run/kubevirt/container-disks".into(),
        hotplug_disk_dir: "/var/run/kubevirt/hotplug-disks/".into(),
        name: "".into(),
        uid: "".into(),
        namespace: "".into(),
        grace_period: Seconds::new(30),
        allow_emulation: false,
        allow_cross_arch_emulation: false,
        run_as_nonroot: false,
        image_volume: false,
        libvirt_hook_server_and_client: false,
        upgrade_ordinal_ifaces: false,
        vgpu_dedicated_hook: false,
        vm_stats_collector: false,
        firmware_auto_selection: false,
        hook_sidecars: 0,
        disk_memory_limit: 2000 * 1024 * 1024,
        ovmf_path: "/usr/share/edk2/ovmf".into(),
        qemu_agent_sys_interval: seconds(120),
        qemu_agent_file_interval: seconds(300),
        qemu_agent_user_interval: seconds(10),
        qemu_agent_version_interval: seconds(300),
        qemu_fsfreeze_status_interval: seconds(5),
        simulate_crash: false,
        libvirt_log_filters: "".into(),
        hypervisor: "kvm".into(),
        verbosity: 2,
        // virt-launcher-monitor's.
        keep_after_failure: false,
        // Not in KubeVirt.
        root: Root::new("/"),
        libvirt: LibvirtMode::Auto,
        metrics_socket: String::new(),
        force_emulation: false,
    };
    assert_eq!(flags(&[]), expected);
}

#[test]
fn what_virt_controller_writes() {
    let line = "--qemu-timeout 253s --name demo --uid 1-2 --namespace default \
                --kubevirt-share-dir /var/run/kubevirt --ephemeral-disk-dir /eph \
                --container-disk-dir /cd --grace-period-seconds 45 --hook-sidecars 2 \
                --ovmf-path /usr/share/OVMF --disk-memory-limit 2097152000 --hypervisor kvm \
                --run-as-nonroot --image-volume --libvirt-hook-server-and-client \
                --upgrade-ordinal-ifaces --allow-emulation --keep-after-failure \
                --libvirt-log-filters";
    let mut words: Vec<&str> = line.split_whitespace().collect();
    words.push("1:qemu 3:*");
    let flags = flags(&words);
    assert_eq!(flags.qemu_timeout, Duration::from_secs(253));
    assert_eq!(flags.name, "demo");
    assert_eq!(flags.uid, "1-2");
    assert_eq!(flags.namespace, "default");
    assert_eq!(flags.grace_period, Seconds::new(45));
    assert_eq!(flags.hook_sidecars, 2);
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
fn values_are_read_as_they_stand() {
    for (line, name) in [
        ("--name=a=b --ovmf-path=", "a=b"),
        ("--name --uid", "--uid"),
        ("--name a --name=b", "b"),
        ("run --name a -- --unknown", "a"),
        ("--allow-emulation false --name demo", "demo"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(flags(&words).name, name, "{line}");
    }
    assert_eq!(flags(&["--ovmf-path="]).ovmf_path, "", "s390x has none");
    assert!(flags(&["--allow-emulation", "false"]).allow_emulation);
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
fn flags_that_kubevirt_does_not_have() {
    let flags = flags(&["--root", "/tmp/x", "--libvirt=embed", "--force-emulation"]);
    assert_eq!(
        (&flags.root, flags.libvirt, flags.force_emulation),
        (&Root::of_user("/tmp/x"), LibvirtMode::Embed, true)
    );
}

#[test]
fn wrong_flags_and_values_are_refused_by_name() {
    for (line, expected) in [
        ("--name a --nosuch 1", "unknown flag: --nosuch"),
        ("--nosuch=1", "unknown flag: --nosuch"),
        ("-x", "unknown flag: -x"),
        ("--name", "flag needs an argument: --name"),
        (
            "--qemu-timeout 240",
            "invalid argument \"240\" for \"--qemu-timeout\" flag: a duration such as 253s or 1h2m3s is expected",
        ),
        (
            "--hook-sidecars=-1",
            "invalid argument \"-1\" for \"--hook-sidecars\" flag: a whole number is expected",
        ),
        (
            "--image-volume=maybe",
            "invalid argument \"maybe\" for \"--image-volume\" flag: true or false is expected",
        ),
        (
            "--libvirt xen",
            "invalid argument \"xen\" for \"--libvirt\" flag: virtqemud, libvirtd, embed or auto is expected",
        ),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(refusal(&words), expected);
    }
}

#[test]
fn argument_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let args = ["--name".into(), OsString::from_vec(vec![0xff])];
    assert!(matches!(
        LauncherFlags::parse(args),
        Err(FlagError::NotText(_))
    ));
}

#[test]
fn help_and_version_can_be_asked_for() {
    for (flag, expected) in [
        ("--help", Parsed::Help),
        ("-h", Parsed::Help),
        ("--version", Parsed::Version),
    ] {
        let parsed = LauncherFlags::parse([flag.into()]);
        assert_eq!(parsed.unwrap(), expected, "{flag}");
    }
}

#[test]
fn the_help_names_every_flag_with_its_default() {
    let usage = usage();
    let flags: Vec<&Flag> = GROUPS.iter().flat_map(|group| group.flags).collect();
    assert!(flags.len() > 30);
    for flag in flags {
        let line = usage.lines().find(|line| line.contains(flag.spelling));
        let helps = line.is_some_and(|line| line.contains(flag.help));
        assert!(helps, "{}", flag.spelling);
    }
    assert!(usage.contains("sockets shared with virt-handler (default /var/run/kubevirt)\n"));
    assert!(usage.contains("how long to wait for sidecars, and for a domain (default 180s)\n"));
}

#[test]
fn every_flag_has_a_name_of_its_own() {
    let mut names: Vec<&str> = GROUPS
        .iter()
        .flat_map(|group| group.flags)
        .map(Flag::name)
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(names.iter().all(|name| name.starts_with("--")));
}

#[test]
fn the_monitor_ignores_what_it_does_not_understand() {
    let known = |args: &[&str]| LauncherFlags::parse_known(args.iter().map(OsString::from));
    let line = "--new-flag=1 --new-switch --other value -x --hook-sidecars many \
                --container-disk-dir /x -v4 --uid";
    let config = known(&line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(config.container_disk_dir, "/x");
    assert_eq!((config.verbosity, config.hook_sidecars), (4, 0));
}
